//! What all charts of the page share besides their axes: frames and marks.

use std::fmt::Display;

pub use report::axis::{Axis, block, line, note_at, px};
use report::markup::{Element, el};

/// The frame of a chart: `id` is unique on the page, `title` and `about` are for those who cannot
/// see it.
pub fn frame(id: &str, gutter: bool, height: f64, title: &str, about: &str) -> Element {
    let (title_id, about_id) = (format!("{id}-title"), format!("{id}-about"));
    el("svg")
        .class(if gutter { "plot gutter" } else { "plot" })
        .with("role", "img")
        .with("aria-labelledby", format!("{title_id} {about_id}"))
        .with("height", px(height))
        .add(el("title").with("id", title_id).text(title))
        .add(el("desc").with("id", about_id).text(about))
}

/// How many colours, and how many marks: no two of 56 arms share both.
pub const COLOURS: usize = 7;
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

/// The class that gives an arm its colour.
pub fn colour(arm: usize) -> String {
    // The reference alone is black or white; the others go round the colours.
    format!("a{}", if arm == 0 { 0 } else { 1 + (arm - 1) % (COLOURS - 1) })
}

/// An arm's mark.
pub fn mark(arm: usize, x: impl Display, y: impl Display) -> Element {
    el("use").with("href", format!("#m{}", arm % MARKS.len())).with("x", x).with("y", y)
}

/// An arm's mark among words.
pub fn key(arm: usize) -> Element {
    let mark = mark(arm, 7, 7).class(colour(arm));
    el("svg")
        .class("key")
        .with("width", 14)
        .with("height", 14)
        .with("aria-hidden", "true")
        .add(mark)
}

/// What the charts refer to: marks and hatches. Once on the page.
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
