for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, at) => {
    const cell = row.cells[at];
    return 'key' in cell.dataset ? Number(cell.dataset.key) : cell.textContent;
  };
  heads.forEach((head, at) => head.addEventListener('click', () => {
    const up = head.getAttribute('aria-sort') !== 'ascending';
    heads.forEach(other => other.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    const numbers = [...body.rows].some(row => typeof key(row, at) === 'number');
    const order = (one, other) => {
      const [a, b] = [key(one, at), key(other, at)];
      if (!numbers) return a.localeCompare(b) * (up ? 1 : -1);
      const [known, unknown] = [typeof a === 'number', typeof b === 'number'];
      return known && unknown ? (a - b) * (up ? 1 : -1) : unknown - known;
    };
    body.append(...[...body.rows].sort(order));
  }));
}
