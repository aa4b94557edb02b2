//! Frames: a standalone picture, a page, a chart on a page, the area of a plot, and text at a position.

use std::fmt::Display;

use crate::axis::{block, px};
use crate::markup::{Element, el};

/// Style common to all pictures: fonts, titles, grids, lines.
const SHEET: &str = include_str!("frame.css");
/// Style of a page with text, [`chart`]s, `marks` and `tables`, for light screens, dark screens and print.
pub const PAGE: &str = include_str!("page.css");

/// A standalone picture with background, additional style, and a title for screen readers.
pub fn picture(
    width: f64,
    height: f64,
    title: &str,
    sheet: &'static str,
    parts: impl IntoIterator<Item = Element>,
) -> Element {
    el("svg")
        .with("xmlns", "http://www.w3.org/2000/svg")
        .with("viewBox", format!("0 0 {width} {height}"))
        .with("width", width)
        .with("height", height)
        .with("role", "img")
        .add(el("title").text(title))
        .add(el("style").sheet(SHEET).sheet(sheet))
        .add(block(0, 0, "100%", "100%").class("ground"))
        .all(parts)
}

/// A picture as an SVG file.
pub fn file(picture: Element) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", picture.finish())
}

/// A standalone page with these style sheets. The page loads no external resources.
pub fn page(title: impl Display, sheets: &[&'static str], body: Element) -> String {
    let meta = |name, value| el("meta").with(name, value);
    let viewport = meta("name", "viewport").with("content", "width=device-width, initial-scale=1");
    let style = sheets.iter().fold(el("style"), |style, sheet| style.sheet(sheet));
    let head = el("head").add(meta("charset", "utf-8")).add(viewport);
    let head = head.add(el("title").text(title)).add(style);
    format!("<!DOCTYPE html>\n{}", el("html").with("lang", "en").add(head).add(body).finish())
}

/// A chart in a page. A `gutter` leaves space for the labels of a vertical axis. `id` must be unique on the page;
/// `title` and `about` are for screen readers.
pub fn chart(id: &str, gutter: bool, height: f64, title: &str, about: &str) -> Element {
    let (title_id, about_id) = (format!("{id}-title"), format!("{id}-about"));
    el("svg")
        .class(if gutter { "plot gutter" } else { "plot" })
        .with("role", "img")
        .with("aria-labelledby", format!("{title_id} {about_id}"))
        .with("height", px(height))
        .add(el("title").with("id", title_id).text(title))
        .add(el("desc").with("id", about_id).text(about))
}

/// A chart with its caption.
pub fn figure(caption: impl Display, chart: Element) -> Element {
    el("figure").add(el("figcaption").text(caption)).add(chart)
}

/// The area of a plot in a picture. Axis labels outside it are not clipped.
pub fn plot(x: f64, y: f64, width: f64, height: f64) -> Element {
    el("svg")
        .with("x", x)
        .with("y", y)
        .with("width", width)
        .with("height", height)
        .with("overflow", "visible")
}

/// Text that starts at a position.
pub fn text(x: f64, y: f64, class: impl Display, text: impl Display) -> Element {
    el("text").with("x", x).with("y", y).class(class).text(text)
}
