//! Draws the time line: superpages, resident memory and free contiguity, with one named line per design. If there are
//! too many designs, `grid` draws the time line. Coinciding lines are dashed, so all of them stay visible.

use report::axis::{Axis, px};
use report::frame;
use report::markup::{Element, el};

use super::MARGIN;
use super::grid;
use super::{text, ticks};
use crate::Report;
use mm_sim::Moment;
use report::place::{clipped, spread};

/// Width of the labels of the vertical axes.
const GUTTER: f64 = 56.0;
const HEIGHT: f64 = 120.0;
/// Space above a panel for its title.
const ABOVE: f64 = 30.0;
/// Space below a panel for its axis.
const BELOW: f64 = 26.0;
/// Maximum width of the design names, in pixels.
const NAMES: f64 = 170.0;
/// Maximum width of the design names, as a share of the picture's width.
const NAMES_SHARE: f64 = 0.26;
/// Minimum distance between two names.
const NAME: f64 = 14.0;
/// Distance from a line's end to its name.
const LEADER: f64 = 14.0;
/// A name points to its line at this share of the run's time: at the end all memory is free again.
const NAMED_AT: f64 = 0.8;
/// Maximum number of points that can be distinguished at this width.
const POINTS: usize = 800;

/// Number of colours. More lines would hide each other, even if dashed.
const COLOURS: usize = 7;

/// A panel's title and the figure it shows.
type Panel = (&'static str, fn(&Moment) -> u64);

const PANELS: [Panel; 3] = [
    ("superpages mapped", |moment| moment.superpages),
    ("base pages resident", |moment| moment.resident_pages),
    ("free superpages", |moment| moment.free_superpages),
];

/// Draws the panels below `y`. Returns the panels and their height, or nothing if no run has samples.
pub(super) fn draw(reports: &[Report], y: f64, across: f64) -> (Vec<Element>, f64) {
    if reports.iter().all(|report| report.timeline.is_empty()) {
        return (Vec::new(), 0.0);
    }
    let longest = reports.iter().map(Report::seconds).fold(0.0, f64::max);
    if reports.len() > COLOURS {
        return grid::draw(reports, y, across, longest);
    }
    let (mut drawn, mut height) = (Vec::new(), 0.0);
    let time = Axis::elapsed(longest);
    for (title, of) in PANELS {
        drawn.extend(panel(reports, y + height, across, title, of, &time));
        height += ABOVE + HEIGHT + BELOW;
    }
    (drawn, height + 8.0)
}

fn panel(
    reports: &[Report],
    y: f64,
    across: f64,
    title: &str,
    of: fn(&Moment) -> u64,
    time: &Axis,
) -> Vec<Element> {
    let moments = reports.iter().flat_map(|report| &report.timeline);
    let axis = Axis::amounts(moments.map(of).max().unwrap_or(0) as f64);
    // With one run, the title names it.
    let names = if reports.len() > 1 { (across * NAMES_SHARE).min(NAMES) } else { 0.0 };
    let width = across - 2.0 * MARGIN - GUTTER - names;
    let mut plot = frame::plot(MARGIN + GUTTER, y + ABOVE, width, HEIGHT)
        .all(axis.up(HEIGHT))
        .all(time.across(HEIGHT, ticks(width)));
    let paths: Vec<String> =
        reports.iter().map(|report| path(report, of, time, &axis, (width, HEIGHT))).collect();
    // Draws dashes, whose gaps show the other lines, above a thin continuous line.
    for kind in ["thin", "line"] {
        for (index, path) in paths.iter().enumerate() {
            plot = plot.add(el("path").with("d", path).class(class(kind, index)));
        }
    }
    if names > 0.0 {
        plot = plot.all(labels(reports, of, time, &axis, (width, names)));
    }
    vec![text(MARGIN, y + ABOVE - 10.0, "heading", title), plot]
}

/// Writes the designs' names right of the plot, each with a thin line from the end of its curve.
fn labels(
    reports: &[Report],
    of: fn(&Moment) -> u64,
    time: &Axis,
    axis: &Axis,
    (width, names): (f64, f64),
) -> Vec<Element> {
    let drawn = || reports.iter().enumerate().filter(|(_, report)| !report.timeline.is_empty());
    let held = |report: &Report| {
        let until = report.seconds() * 1e6 * NAMED_AT;
        let before =
            report.timeline.iter().take_while(|moment| moment.microseconds as f64 <= until);
        before.last().or(report.timeline.first()).map_or(0, of)
    };
    let ends: Vec<f64> =
        drawn().map(|(_, report)| (1.0 - axis.place(held(report) as f64)) * HEIGHT).collect();
    let places = spread(&ends, NAME, HEIGHT);
    let mut labels = Vec::new();
    for (((index, report), end), place) in drawn().zip(ends).zip(places) {
        let (from, to) = (time.place(report.seconds()) * width, width + LEADER);
        let leader = format!("M{},{}L{},{}", px(from), px(end), px(to), px(place));
        labels.push(el("path").with("d", leader).class(format!("leader c{}", index % COLOURS)));
        let name = clipped(&report.cell.design, names - LEADER - 4.0, 12.0);
        labels.push(text(to + 4.0, place + 4.0, "label", name));
    }
    labels
}

/// Returns a step function: each value holds until the next sample.
pub(super) fn path(
    report: &Report,
    of: fn(&Moment) -> u64,
    time: &Axis,
    axis: &Axis,
    (width, height): (f64, f64),
) -> String {
    let place = |moment: &Moment| {
        let x = time.place(moment.microseconds as f64 / 1e6) * width;
        (x, (1.0 - axis.place(of(moment) as f64)) * height)
    };
    let mut path = String::new();
    let mut last = None;
    let every = report.timeline.len().div_ceil(POINTS).max(1);
    let end = report.timeline.len().saturating_sub(1);
    for (index, moment) in report.timeline.iter().enumerate() {
        if index % every != 0 && index != end {
            continue;
        }
        let (x, y) = place(moment);
        match last {
            None => path += &format!("M{},{}", px(x), px(y)),
            Some(above) if above == y && index != end => continue,
            Some(above) if above == y => path += &format!("H{}", px(x)),
            Some(_) => path += &format!("H{}V{}", px(x), px(y)),
        }
        last = Some(y);
    }
    if last.is_some() {
        path += &format!("H{}", px(time.place(report.seconds()) * width));
    }
    path
}

fn class(kind: &str, index: usize) -> String {
    format!("{kind} c{0} o{0}", index % COLOURS)
}
