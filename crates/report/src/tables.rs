//! Tables that a screen reader can read and a telephone can scroll.

use crate::format::{self, UNKNOWN, known};
use crate::markup::{Element, el};

/// A table; the first cell of each row names the row, cells of `numbers` columns line up to the
/// right (all but the first column) or not at all.
pub fn table(caption: &str, numbers: bool, head: Vec<String>, rows: Vec<Vec<String>>) -> Element {
    let class = |index: usize| if numbers && index > 0 { "n" } else { "t" };
    let names = head
        .into_iter()
        .enumerate()
        .map(|(index, name)| el("th").with("scope", "col").class(class(index)).text(name));
    let body = rows.into_iter().map(|row| {
        el("tr").all(row.into_iter().enumerate().map(|(index, cell)| match index {
            0 => el("th").with("scope", "row").text(cell),
            _ if cell == UNKNOWN => el("td").class(format!("{} unknown", class(index))).text(cell),
            _ => el("td").class(class(index)).text(cell),
        }))
    });
    let table = el("table").add(el("caption").text(caption));
    let table = table.add(el("thead").add(el("tr").all(names))).add(el("tbody").all(body));
    scroll(if numbers { "scroll numbers" } else { "scroll" }, caption, table)
}

/// Names and values.
pub fn pairs<N: Into<String>>(caption: &str, rows: Vec<(N, String)>) -> Element {
    let body = rows.into_iter().map(|(name, value)| {
        let class = if value == UNKNOWN { "t unknown" } else { "t" };
        let name = el("th").with("scope", "row").text(name.into());
        el("tr").add(name).add(el("td").class(class).text(value))
    });
    scroll(
        "scroll",
        caption,
        el("table").add(el("caption").text(caption)).add(el("tbody").all(body)),
    )
}

/// A wide table scrolls by itself, also by keyboard.
fn scroll(class: &str, caption: &str, table: Element) -> Element {
    let frame = el("div").class(class).with("tabindex", 0).with("role", "region");
    frame.with("aria-label", caption).add(table)
}

/// A word for a flag.
pub fn flag(value: Option<bool>) -> String {
    known(value, |on| if on { "yes" } else { "no" }.to_string())
}

/// A count that may be unknown.
pub fn count(value: Option<u64>) -> String {
    known(value, |count| format::count(count as f64))
}
