//! Series are distinguished by colour, mark and hatch, so that charts are readable without colours. The colours are in
//! `page.css`, for light and dark screens.

use std::fmt::Display;

use crate::axis::block;
use crate::markup::{Element, el};

/// Number of colours, and the marks. The combination of colour and mark is unique among 56 series.
const COLOURS: usize = 7;
const MARKS: [&str; 8] = [
    "M-4.5,0a4.5,4.5 0 1 0 9,0a4.5,4.5 0 1 0 -9,0z",
    "M-4,-4H4V4H-4z",
    "M0,-5L5,4H-5z",
    "M0,-5.6L5.6,0L0,5.6L-5.6,0z",
    "M0,5L5,-4H-5z",
    "M-1.8,-5H1.8V-1.8H5V1.8H1.8V5H-1.8V1.8H-5V-1.8H-1.8z",
    "M-5,-2.4L-2.4,-5L0,-2.6L2.4,-5L5,-2.4L2.6,0L5,2.4L2.4,5L0,2.6L-2.4,5L-5,2.4L-2.6,0z",
    "M-5,0L-2.5,-4.4H2.5L5,0L2.5,4.4H-2.5z",
];

/// The class for a series' colour.
pub fn colour(series: usize) -> String {
    // Only the reference, the first series, is black or white. The other series cycle through the colours.
    format!("a{}", if series == 0 { 0 } else { 1 + (series - 1) % (COLOURS - 1) })
}

/// The mark of a series.
pub fn mark(series: usize, x: impl Display, y: impl Display) -> Element {
    el("use").with("href", format!("#m{}", series % MARKS.len())).with("x", x).with("y", y)
}

/// The mark of a series, for use in text.
pub fn key(series: usize) -> Element {
    let mark = mark(series, 7, 7).class(colour(series));
    el("svg")
        .class("key")
        .with("width", 14)
        .with("height", 14)
        .with("aria-hidden", "true")
        .add(mark)
}

/// The mark of a series with its name, for tables and captions.
pub fn named(series: usize, name: &str) -> Element {
    el("span").class("item").add(key(series)).text(name)
}

/// A sample of a fill, for legends.
pub fn swatch(class: &str) -> Element {
    let patch = block(0, 0, 18, 14).class(class);
    let swatch = el("svg").class("swatch").with("width", 18).with("height", 14);
    swatch.with("aria-hidden", "true").add(patch)
}

/// Definitions of marks and hatches that charts refer to; once per page.
pub fn definitions() -> Element {
    let marks = MARKS.iter().enumerate();
    let marks =
        marks.map(|(index, path)| el("path").with("id", format!("m{index}")).with("d", path));
    let hatch = |id: &str, path: &str| {
        let pattern = el("pattern").with("id", id).with("width", 6).with("height", 6);
        let stripes = el("path").with("d", path).class("stripes");
        let ground = block(0, 0, 6, 6).class("ground");
        pattern.with("patternUnits", "userSpaceOnUse").add(ground).add(stripes)
    };
    let hatches = [
        hatch("h-anon", "M-1,1L1,-1M0,6L6,0M5,7L7,5"),
        hatch("h-file", "M0,1.5H6"),
        hatch("h-shmem", "M1,1h2v2h-2zM4,4h2v2h-2z"),
    ];
    let hidden = el("svg").class("hidden").with("width", 0).with("height", 0);
    hidden.with("aria-hidden", "true").add(el("defs").all(marks).all(hatches))
}
