//! What all charts share: frames, axes, marks. A chart has no `viewBox`: places along it are
//! percentages and everything else is pixels, so that text keeps its size at every width.

use std::fmt::Display;

use super::markup::{Element, el};
use super::scale::{Scale, Shape, percent};
use crate::words;

/// An axis with its unit: values are divided by `per` before they meet the scale.
#[derive(Clone, Debug)]
pub struct Axis {
    scale: Scale,
    per: f64,
    unit: String,
}

impl Axis {
    /// For times. `None` without a finite value.
    pub fn seconds(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let high = values.clone().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
        let (per, unit) = *units.iter().find(|(per, _)| high >= *per).unwrap_or(&units[0]);
        Self::of(values, per, unit)
    }

    /// For figures of merit.
    pub fn figures(values: impl Iterator<Item = f64> + Clone, unit: &str) -> Option<Self> {
        let high = values.clone().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
        let fits = |(per, _): &&(f64, &str)| high >= *per && high < 1e15;
        let (per, prefix) = *prefixes.iter().find(fits).unwrap_or(&(1.0, ""));
        Self::of(values, per, format!("{prefix} {unit}").trim())
    }

    /// For amounts of memory: begins at zero.
    pub fn bytes(high: u64) -> Self {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (shift, unit) = *units.iter().find(|(s, _)| high >= 1 << s).unwrap_or(&(0, "B"));
        let per = (1u64 << shift) as f64;
        Self { scale: Scale::from_zero(high as f64 / per), per, unit: unit.to_string() }
    }

    /// For time since the start.
    pub fn elapsed(high: f64) -> Self {
        let (per, unit) = if high < 1.0 { (1e-3, "ms") } else { (1.0, "s") };
        Self { scale: Scale::from_zero(high / per), per, unit: unit.to_string() }
    }

    /// For ratios: logarithmic.
    pub fn ratios(low: f64, high: f64) -> Self {
        Self { scale: Scale::of_ratios(low, high), per: 1.0, unit: String::new() }
    }

    fn of(values: impl Iterator<Item = f64> + Clone, per: f64, unit: &str) -> Option<Self> {
        let scale = Scale::of_values(values.map(move |value| value / per))?;
        Some(Self { scale, per, unit: unit.to_string() })
    }

    /// Where a value lies, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        self.scale.place(value / self.per)
    }

    /// Where it lies along a horizontal axis.
    pub fn x(&self, value: f64) -> String {
        self.scale.percent(value / self.per)
    }

    /// Whether the axis reaches it.
    pub fn holds(&self, value: f64) -> bool {
        self.scale.holds(value / self.per)
    }

    /// What the axis does, in words: a dot plot need not begin at zero, but must say so.
    pub fn note(&self) -> String {
        let how = match self.scale.shape {
            Shape::Log => "logarithmic",
            Shape::Linear if self.scale.low == 0.0 => "from zero",
            Shape::Linear => "not from zero",
        };
        if self.unit.is_empty() { how.to_string() } else { format!("{}, {how}", self.unit) }
    }

    /// The places of round values, from 0 to 1, with labels; the unit stands at the last one.
    pub fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let ticks = self.scale.ticks(wanted);
        let last = ticks.len().saturating_sub(1);
        let label = |(index, tick): (usize, &f64)| {
            let digits = words::digits(*tick, 9);
            let number = match tick.abs() {
                0.0 => "0".to_string(),
                v if !(1e-4..1e7).contains(&v) => format!("{tick:e}"),
                _ => words::trimmed(&digits).to_string(),
            };
            let unit =
                if index == last && self.unit.chars().count() <= 4 { &self.unit } else { "" };
            (self.scale.place(*tick), format!("{number} {unit}").trim().to_string())
        };
        ticks.iter().enumerate().map(label).collect()
    }

    /// Grid lines with labels under them, for a plot that is `height` high.
    pub fn across(&self, height: f64, wanted: usize) -> Vec<Element> {
        let mut lines = Vec::new();
        for (place, label) in self.ticks(wanted) {
            let x = percent(place);
            lines.push(line(&x, 0, &x, height).class("grid"));
            lines.push(note_at(&x, height + 15.0, &label, "middle"));
        }
        lines
    }

    /// Grid lines with labels to the left of them, for a plot `height` high whose frame has a
    /// gutter.
    pub fn up(&self, height: f64) -> Vec<Element> {
        let mut lines = Vec::new();
        for (place, label) in self.ticks(4) {
            let y = (1.0 - place) * height;
            lines.push(line("0", px(y), "100%", px(y)).class("grid"));
            lines.push(note_at("-6", y + 4.0, &label, "end"));
        }
        lines
    }
}

/// Pixels, short.
pub fn px(value: f64) -> String {
    words::trimmed(&format!("{value:.1}")).to_string()
}

/// A straight line.
pub fn line(x1: impl Display, y1: impl Display, x2: impl Display, y2: impl Display) -> Element {
    el("line").with("x1", x1).with("y1", y1).with("x2", x2).with("y2", y2)
}

/// A rectangle.
pub fn block(x: impl Display, y: impl Display, w: impl Display, h: impl Display) -> Element {
    el("rect").with("x", x).with("y", y).with("width", w).with("height", h)
}

/// Small text, as on axes.
pub fn note_at(x: &str, y: f64, text: &str, anchor: &str) -> Element {
    let place = el("text").with("x", x).with("y", px(y)).with("text-anchor", anchor);
    place.class("note").text(text)
}

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
