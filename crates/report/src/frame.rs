//! What surrounds charts: a picture that stands alone, the area of a plot, words at a place. Whoever draws a
//! document of charts begins here.

use std::fmt::Display;

use crate::axis::block;
use crate::markup::{Element, el};

/// What all pictures have: letters, titles, grids, lines.
const SHEET: &str = include_str!("frame.css");

/// A picture of its own, with its ground, its style beyond what all have, and a title for who cannot see it.
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

/// A picture as a file.
pub fn file(picture: Element) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", picture.finish())
}

/// The area of a plot within a picture. What stands beside it (notes of axes) is not cut off.
pub fn plot(x: f64, y: f64, width: f64, height: f64) -> Element {
    el("svg")
        .with("x", x)
        .with("y", y)
        .with("width", width)
        .with("height", height)
        .with("overflow", "visible")
}

/// Words that begin at a place.
pub fn text(x: f64, y: f64, class: impl Display, words: impl Display) -> Element {
    el("text").with("x", x).with("y", y).class(class).text(words)
}
