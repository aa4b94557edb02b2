//! Shared parts of charts: axes with units, lines, blocks, notes. Charts have no `viewBox`. Horizontal positions are
//! percentages and all other lengths are pixels, so text has the same size at every width.

use std::fmt::Display;

use crate::format::{self, PREFIXES};
use crate::markup::{Element, el};
use crate::scale::{Scale, Shape, percent};

/// An axis with its unit. Values are divided by `per` before they are scaled.
#[derive(Clone, Debug)]
pub struct Axis {
    scale: Scale,
    per: f64,
    unit: String,
}

impl Axis {
    /// An axis for times. `None` if no value is finite.
    pub fn seconds(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let high = values.clone().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
        let (per, unit) = *units.iter().find(|(per, _)| high >= *per).unwrap_or(&units[0]);
        Self::new(values, per, unit)
    }

    /// An axis for figures of merit.
    pub fn figures(values: impl Iterator<Item = f64> + Clone, unit: &str) -> Option<Self> {
        let high = values.clone().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let fits = |(per, _): &&(f64, &str)| high >= *per && high < 1e15;
        let (per, prefix) = *PREFIXES.iter().find(fits).unwrap_or(&(1.0, ""));
        Self::new(values, per, format!("{prefix} {unit}").trim())
    }

    /// An axis for bytes, from zero.
    pub fn bytes(high: u64) -> Self {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let (shift, unit) = *units.iter().find(|(s, _)| high >= 1 << s).unwrap_or(&(0, "B"));
        let per = (1u64 << shift) as f64;
        Self { scale: Scale::from_zero(high as f64 / per), per, unit: unit.to_string() }
    }

    /// An axis for amounts, from zero.
    pub fn amounts(high: f64) -> Self {
        let (per, prefix) = *PREFIXES.iter().find(|(per, _)| high >= *per).unwrap_or(&(1.0, ""));
        Self { scale: Scale::from_zero(high / per), per, unit: prefix.to_string() }
    }

    /// An axis for elapsed time, from zero.
    pub fn elapsed(high: f64) -> Self {
        let (per, unit) = if high < 1.0 { (1e-3, "ms") } else { (1.0, "s") };
        Self { scale: Scale::from_zero(high / per), per, unit: unit.to_string() }
    }

    /// A logarithmic axis for ratios.
    pub fn ratios(low: f64, high: f64) -> Self {
        Self { scale: Scale::from_ratios(low, high), per: 1.0, unit: String::new() }
    }

    fn new(values: impl Iterator<Item = f64> + Clone, per: f64, unit: &str) -> Option<Self> {
        let scale = Scale::from_values(values.map(move |value| value / per))?;
        Some(Self { scale, per, unit: unit.to_string() })
    }

    /// Position of a value, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        self.scale.place(value / self.per)
    }

    /// Position of a value on a horizontal axis, in percent.
    pub fn x(&self, value: f64) -> String {
        self.scale.percent(value / self.per)
    }

    /// Whether the value lies on the axis.
    pub fn holds(&self, value: f64) -> bool {
        self.scale.holds(value / self.per)
    }

    /// Describes the axis: a dot plot may start above zero, but must say so.
    pub fn note(&self) -> String {
        let how = match self.scale.shape {
            Shape::Log => "logarithmic",
            Shape::Linear if self.scale.low == 0.0 => "from zero",
            Shape::Linear => "not from zero",
        };
        if self.unit.is_empty() { how.to_string() } else { format!("{}, {how}", self.unit) }
    }

    /// Positions of round values, from 0 to 1, with labels; the last label has the unit.
    pub fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let ticks = self.scale.ticks(wanted);
        let last = ticks.len().saturating_sub(1);
        let label = |(index, tick): (usize, &f64)| {
            let digits = format::digits(*tick, 9);
            let number = match tick.abs() {
                0.0 => "0".to_string(),
                v if !(1e-4..1e7).contains(&v) => format!("{tick:e}"),
                _ => format::trimmed(&digits).to_string(),
            };
            let unit =
                if index == last && self.unit.chars().count() <= 4 { &self.unit } else { "" };
            (self.scale.place(*tick), format!("{number} {unit}").trim().to_string())
        };
        ticks.iter().enumerate().map(label).collect()
    }

    /// Vertical grid lines with labels below, for a plot of this height.
    pub fn across(&self, height: f64, wanted: usize) -> Vec<Element> {
        let mut lines = Vec::new();
        for (place, label) in self.ticks(wanted) {
            let x = percent(place);
            lines.push(line(&x, 0, &x, height).class("grid"));
            lines.push(note_at(&x, height + 15.0, &label, "middle"));
        }
        lines
    }

    /// Horizontal grid lines with labels to the left, for a plot of this height with a gutter.
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

/// Formats a number of pixels.
pub fn px(value: f64) -> String {
    format::trimmed(&format!("{value:.1}")).to_string()
}

/// A straight line.
pub fn line(x1: impl Display, y1: impl Display, x2: impl Display, y2: impl Display) -> Element {
    el("line").with("x1", x1).with("y1", y1).with("x2", x2).with("y2", y2)
}

/// A polyline as the `d` attribute of a path.
pub fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        path += &format!("{}{},{}", if path.is_empty() { "M" } else { "L" }, px(x), px(y));
    }
    path
}

/// A rectangle.
pub fn block(x: impl Display, y: impl Display, w: impl Display, h: impl Display) -> Element {
    el("rect").with("x", x).with("y", y).with("width", w).with("height", h)
}

/// Small text for axes.
pub fn note_at(x: &str, y: f64, text: &str, anchor: &str) -> Element {
    let place = el("text").with("x", x).with("y", px(y)).with("text-anchor", anchor);
    place.class("note").text(text)
}
