//! Accessible tables: readable by screen readers, scrollable on phones.

use crate::format::{self, UNKNOWN, known};
use crate::markup::{Element, el};

/// A table; the first cell of each row names the row. With `numbers`, all other columns are right-aligned.
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

/// Script that sorts the rows of a table when a heading is clicked; a second click reverses the order.
const SORT: &str = include_str!("sort.js");

/// A cell of a sortable table: text, sort key and class. Cells without a key are sorted last.
pub struct Cell {
    /// The text.
    pub text: String,
    /// The sort key.
    pub key: Option<f64>,
    /// Additional class.
    pub class: &'static str,
}

impl Cell {
    /// A cell of words, sorted as text.
    pub fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), key: None, class: "t" }
    }

    /// A cell with a number.
    pub fn number(text: impl Into<String>, key: Option<f64>) -> Self {
        Self { text: text.into(), key, class: "n" }
    }
}

/// A table whose rows are sorted by a click on a heading, if the page has [`sorting`].
pub fn sortable(caption: &str, head: &[(&str, &'static str)], rows: Vec<Vec<Cell>>) -> Element {
    let names = head.iter().map(|(name, class)| {
        let button = el("button").with("type", "button").text(name);
        el("th").with("scope", "col").class(class).add(button)
    });
    let cell = |(index, cell): (usize, Cell)| {
        let element = match index {
            0 => el("th").with("scope", "row"),
            _ => el("td"),
        };
        let keyed = match cell.key.filter(|key| key.is_finite()) {
            Some(key) => element.with("data-key", key),
            None => element,
        };
        // On a narrow page each cell stands below the one before, with its heading before it.
        keyed
            .with("data-label", head.get(index).map_or("", |(name, _)| name))
            .class(cell.class)
            .text(cell.text)
    };
    let body = rows.into_iter().map(|row| el("tr").all(row.into_iter().enumerate().map(cell)));
    let table = el("table").class("sortable").add(el("caption").text(caption));
    let table = table.add(el("thead").add(el("tr").all(names))).add(el("tbody").all(body));
    scroll("scroll numbers", caption, table)
}

/// The script for [`sortable`] tables, to be placed at the end of the page.
pub fn sorting() -> Element {
    el("script").sheet(SORT)
}

/// A table of names and values.
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

/// Puts a wide table into a frame that scrolls, also by keyboard.
fn scroll(class: &str, caption: &str, table: Element) -> Element {
    let frame = el("div").class(class).with("tabindex", 0).with("role", "region");
    frame.with("aria-label", caption).add(table)
}

/// Formats a flag as a word.
pub fn flag(value: Option<bool>) -> String {
    known(value, |on| if on { "yes" } else { "no" }.to_string())
}

/// Formats a count that may be unknown.
pub fn count(value: Option<u64>) -> String {
    known(value, |count| format::count(count as f64))
}
