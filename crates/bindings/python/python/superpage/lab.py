"""Designs of operating systems on a simulated machine. The same experiment gives the same report on any computer."""

from __future__ import annotations

import io
import json as _json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, TypedDict, Union

from . import _frames, _superpage
from ._words import Size, Value, several, words

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Comparison", "Figures", "Made", "Run", "Sweep", "Table", "compare", "run", "sweep", "table", "tables"]

Several = Union[str, Sequence[str]]
"""One, or a list of them."""


class Made(TypedDict):
    """Superpages that were made, by kind."""

    at_fault: int
    in_place: int
    by_copy: int


class Figures(TypedDict):
    """A run in figures. Shares are of the program's cycles, the speed-up is over the first design; None is unknown."""

    design: str
    finished: bool
    seconds: float
    speedup: Optional[float]
    translation: Optional[float]
    faults: Optional[float]
    upkeep: Optional[float]
    superpages: int
    made: Made
    coverage: Optional[float]
    utilisation: Optional[float]
    bloat: Optional[float]
    daemons: Optional[float]
    p99_microseconds: Optional[float]


class _Result:
    """A document, and the command's table of it (``print``)."""

    def __init__(self, made: Tuple[str, str, str]) -> None:
        self.json, self._text, self._figures = made
        self.document: Dict[str, Any] = _json.loads(self.json)
        """The document, as ``--json`` prints it; :attr:`json` is its text."""

    def _rows(self) -> List[_frames.Row]:
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame."""
        return _frames.to_pandas(self._rows())

    def to_arrow(self) -> pyarrow.Table:
        """The same as a table of Arrow."""
        return _frames.to_arrow(self._rows())

    def __str__(self) -> str:
        return self._text


class Run(_Result):
    """One design on one workload (``superpage.lab.run/1``). Its rows are its time line."""

    @property
    def figures(self) -> Figures:
        """It in figures."""
        figures: Figures = _json.loads(self._figures)[0]
        return figures

    def _rows(self) -> List[_frames.Row]:
        moments: List[_frames.Row] = self.document["timeline"]
        return moments

    def __repr__(self) -> str:
        cell = self.document["cell"]
        return f"<superpage.lab.Run: {cell['workload']} under {cell['design']}, {self.figures['seconds']:.3g} s>"


class Comparison(_Result):
    """Several designs on one workload (``superpage.lab.compare/1``). It has a row of figures for each."""

    @property
    def figures(self) -> List[Figures]:
        """A line of figures for each design."""
        figures: List[Figures] = _json.loads(self._figures)
        return figures

    def _rows(self) -> List[_frames.Row]:
        rows = []
        for line in self.figures:
            made = line["made"]
            row: _frames.Row = {name: value for name, value in line.items() if name != "made"}
            rows.append({**row, **{f"made_{kind}": count for kind, count in made.items()}})
        return rows

    def __repr__(self) -> str:
        return f"<superpage.lab.Comparison: {', '.join(line['design'] for line in self.figures)}>"


class Table(_Result):
    """A published table, rerun (``superpage.lab.table/1``). It has a row for each cell."""

    def _rows(self) -> List[_frames.Row]:
        columns = self.document["columns"]
        return [
            {"row": row["name"], "column": column, **cell}
            for row in self.document["rows"]
            for column, cell in zip(columns, row["cells"])
        ]

    def __repr__(self) -> str:
        return f"<superpage.lab.Table: {self.document['name']} ({self.document['source']})>"


class Sweep:
    """A sweep's results (``superpage.lab.sweep/1``). It has a row for each cell."""

    def __init__(self, made: Tuple[str, bytes, int, int, List[Tuple[str, str]]]) -> None:
        self.json, self.parquet, self.cells, self.planned, self.failed = made
        """What ``sweep merge`` writes; cells that are there, and that were planned; passes that could not be run, each with
        the reason."""

    @property
    def document(self) -> Dict[str, Any]:
        """The document: every report, with its time line."""
        document: Dict[str, Any] = _json.loads(self.json)
        return document

    def to_arrow(self) -> pyarrow.Table:
        """The table of the Parquet file."""
        return _frames.module("pyarrow.parquet").read_table(io.BytesIO(self.parquet))

    def to_pandas(self) -> pandas.DataFrame:
        """The same as a data frame."""
        _frames.module("pandas")
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def __repr__(self) -> str:
        return f"<superpage.lab.Sweep: {self.cells} of {self.planned} cells>"


def run(
    design: str,
    workload: str,
    *,
    machine: Optional[str] = None,
    memory: Optional[Size] = None,
    nodes: Union[None, str, int] = None,
    movable: Optional[Size] = None,
    fragmentation: Optional[str] = None,
    profile: Union[None, str, os.PathLike[str]] = None,
    swap: Optional[Size] = None,
    seed: Optional[int] = None,
    utilisation: bool = True,
) -> Run:
    """Run a workload under one design.

    ``design`` and ``machine`` are names or files, ``workload`` a specification (``"gups:size=8G"``) or a trace (``.spt``).
    Each keyword is the option of ``superpage lab run`` of that name and has its default: see docs/guide/lab.md;
    ``utilisation=False`` is ``--no-utilisation``.
    """
    experiment = _experiment(workload, machine, memory, nodes, movable, fragmentation, profile, swap, seed, utilisation)
    return Run(_superpage.lab_run(words({"design": design, **experiment})))


def compare(
    designs: Sequence[str],
    workload: str,
    *,
    machine: Optional[str] = None,
    memory: Optional[Size] = None,
    nodes: Union[None, str, int] = None,
    movable: Optional[Size] = None,
    fragmentation: Optional[str] = None,
    profile: Union[None, str, os.PathLike[str]] = None,
    swap: Optional[Size] = None,
    seed: Optional[int] = None,
    utilisation: bool = True,
    explain: bool = False,
) -> Comparison:
    """Run a workload under several designs, in one pass. The first is what the others are relative to.

    The keywords are those of :func:`run`; with ``explain`` the text says why the fastest was faster.
    """
    experiment = _experiment(workload, machine, memory, nodes, movable, fragmentation, profile, swap, seed, utilisation)
    return Comparison(_superpage.lab_compare(words({"design": several(designs), **experiment, "explain": explain})))


def _experiment(
    workload: str,
    machine: Optional[str],
    memory: Optional[Size],
    nodes: Union[None, str, int],
    movable: Optional[Size],
    fragmentation: Optional[str],
    profile: Union[None, str, os.PathLike[str]],
    swap: Optional[Size],
    seed: Optional[int],
    utilisation: bool,
) -> Dict[str, Value]:
    return {
        "workload": workload, "machine": machine, "memory": memory, "nodes": nodes, "movable": movable,
        "fragmentation": fragmentation, "profile": None if profile is None else os.fspath(profile), "swap": swap,
        "seed": seed, "no-utilisation": not utilisation,
    }


def table(name: str) -> Table:
    """Rerun a published table: see :func:`tables` for their names, docs/works.md for what they are."""
    return Table(_superpage.lab_table([name]))


def tables() -> Dict[str, str]:
    """The names of the tables that can be rerun, and what each shows."""
    return {one["name"]: one["summary"] for one in _json.loads(_superpage.lab_tables())["tables"]}


def sweep(
    directory: Union[None, str, os.PathLike[str]] = None,
    *,
    designs: Several = (),
    workloads: Several = (),
    machines: Several = (),
    fragmentations: Several = (),
    memory: Union[Size, Sequence[Size]] = (),
    nodes: Union[str, int, Sequence[Union[str, int]]] = (),
    movable: Union[Size, Sequence[Size]] = (),
    seeds: Union[None, str, int] = None,
    plan: Union[None, str, os.PathLike[str]] = None,
    force: bool = False,
    jobs: Optional[int] = None,
    max_time: Optional[float] = None,
    progress: Optional[Callable[[int, int], object]] = None,
) -> Sweep:
    """Run designs x workloads x machines x fragmentations x memory x seeds, on all CPUs.

    Each pass is kept in ``directory`` when it ends, so the same call goes on where one was stopped, and shards may be run
    elsewhere (``superpage lab sweep run``). With a directory alone, what was planned there is run; without one, it is
    temporary. ``plan`` is a file with lists; ``seeds`` is a number or a text such as ``"1-10,20"``. Passes begin within
    ``max_time`` seconds, ``jobs`` at a time; ``progress`` is called with the cells done and to do.
    """
    asked = {
        "design": several(designs), "workload": several(workloads), "machine": several(machines),
        "fragmentation": several(fragmentations), "memory": several(memory), "nodes": several(nodes),
        "movable": several(movable), "seeds": seeds,
    }
    planned = words(asked) if plan is None else [*words(asked), "--", os.fspath(plan)]
    with tempfile.TemporaryDirectory() as temporary:
        place = temporary if directory is None else os.fspath(directory)
        if planned or directory is None:
            planned = words({"output": place, "force": force}) + planned
        return Sweep(_superpage.lab_sweep(place, planned, jobs, max_time, progress))
