//! Plots pages mapped per second against CPUs, on logarithmic axes: per wall-clock second and per second of CPU time.
//! Each set of patches is a line; published rows are points.

use report::axis::{Axis, line, note_at, polyline, px};
use report::frame;
use report::markup::{Element, el};

use super::{MARGIN, WIDTH};
use super::{STYLE, text, titled};
use fault_scaling::Row;
use report::legend::{self, Sign};

/// Width of the labels of the vertical axis.
const GUTTER: f64 = 64.0;
const HEIGHT: f64 = 320.0;
/// Distance between the tops of two panels.
const PANEL: f64 = HEIGHT + 60.0;
/// Number of colours; further lines are dashed.
const COLOURS: usize = 7;

/// Fault rates at a number of threads.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Number of threads, each on its own CPU.
    pub threads: u32,
    /// Pages per second of wall-clock time.
    pub per_wall_second: f64,
    /// Pages per second of CPU time.
    pub per_cpu_second: f64,
}

impl From<&Row> for Point {
    fn from(row: &Row) -> Self {
        Self {
            threads: row.threads,
            per_wall_second: row.pages_per_wall_second,
            per_cpu_second: row.pages_per_cpu_second,
        }
    }
}

/// A set of patches. Points are sorted by number of threads.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Simulated points, drawn as a line.
    pub simulated: Vec<Point>,
    /// Published points.
    pub published: Vec<Point>,
}

/// A panel's heading and the figure it shows.
type Panel = (&'static str, fn(&Point) -> f64);
const PANELS: [Panel; 2] = [
    ("base pages mapped per second of wall-clock time (thousands), by CPUs", |point| {
        point.per_wall_second / 1e3
    }),
    ("base pages mapped per second of CPU time (thousands), by CPUs", |point| {
        point.per_cpu_second / 1e3
    }),
];

/// Draws several sets of patches. Results for more than `measured` CPUs are marked as predictions.
pub fn faults(title: &str, measured: u32, curves: &[Curve]) -> String {
    let (mut parts, y) = titled(title, WIDTH);
    let mut items: Vec<(Sign, String)> = (0..)
        .zip(curves)
        .map(|(at, curve)| (Sign::Line(class("line", at)), curve.name.clone()))
        .collect();
    if curves.iter().any(|curve| !curve.published.is_empty()) {
        items.push((Sign::Dot("dot c0".into()), "published (2005)".into()));
    }
    let (drawn, height) = legend::draw(&items, (MARGIN, y), WIDTH - 2.0 * MARGIN);
    parts.extend(drawn);
    let mut top = y + height + 30.0;
    for (heading, of) in PANELS {
        parts.push(text(MARGIN, top - 10.0, "heading", heading));
        parts.push(panel(top, measured, curves, of));
        top += PANEL;
    }
    frame::file(frame::picture(WIDTH, top - 20.0, title, STYLE, parts))
}

fn class(kind: &str, index: usize) -> String {
    let dash = if index / COLOURS % 2 == 1 { " d2" } else { "" };
    format!("{kind} c{}{dash}", index % COLOURS)
}

fn panel(top: f64, measured: u32, curves: &[Curve], of: fn(&Point) -> f64) -> Element {
    let points = || curves.iter().flat_map(|curve| curve.simulated.iter().chain(&curve.published));
    let ends = |of: &dyn Fn(&Point) -> f64| {
        let low = points().map(of).fold(f64::INFINITY, f64::min);
        (low.min(1e300), points().map(of).fold(low, f64::max))
    };
    let (few, many) = ends(&|point| f64::from(point.threads));
    let (slow, fast) = ends(&of);
    let (across, up) = (Axis::ratios(few, many), Axis::ratios(slow, fast));
    let width = WIDTH - 2.0 * MARGIN - GUTTER;
    let place = |point: &Point| {
        (across.place(f64::from(point.threads)) * width, (1.0 - up.place(of(point))) * HEIGHT)
    };
    let mut plot = frame::plot(MARGIN + GUTTER, top, width, HEIGHT).all(up.up(HEIGHT));
    let mut threads: Vec<u32> = points().map(|point| point.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    for count in &threads {
        let x = px(across.place(f64::from(*count)) * width);
        plot = plot.add(line(&x, 0, &x, HEIGHT).class("grid"));
        plot = plot.add(note_at(&x, HEIGHT + 15.0, &count.to_string(), "middle"));
    }
    if threads.iter().any(|count| *count > measured) && f64::from(measured) >= few {
        let x = across.place(f64::from(measured)) * width;
        plot = plot.add(note_at(&px(x + 6.0), 12.0, "prediction →", "start"));
    }
    for (index, curve) in curves.iter().enumerate() {
        let drawn = polyline(curve.simulated.iter().map(place));
        plot = plot.add(el("path").with("d", drawn).class(class("line", index)));
        for point in &curve.published {
            let (x, y) = place(point);
            let dot = el("circle").with("cx", px(x)).with("cy", px(y)).with("r", 3.5);
            plot = plot.add(dot.class(class("dot", index)));
        }
    }
    plot
}
