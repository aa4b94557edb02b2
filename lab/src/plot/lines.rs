//! The time line: superpages, resident memory and free contiguity, one line per design; `grid`'s panels
//! where there are too many of them.

use drawing::axis::{Axis, px};
use drawing::frame;
use drawing::markup::{Element, el};

use super::grid;
use super::legend::{self, Sign};
use super::place::{MARGIN, WIDTH};
use super::text;
use crate::{Moment, Report};

/// Room for the labels of the upright axes.
const GUTTER: f64 = 56.0;
const HEIGHT: f64 = 120.0;
/// Room above a panel for its title, and below for the axis.
const ABOVE: f64 = 30.0;
const BELOW: f64 = 26.0;
/// More points than this cannot be told apart at this width.
const POINTS: usize = 800;

/// How many colours there are. More lines than these hide each other, whatever their dashes.
const COLOURS: usize = 7;

/// A panel: its title, and what it shows.
type Panel = (&'static str, fn(&Moment) -> u64);

const PANELS: [Panel; 3] = [
    ("superpages mapped", |moment| moment.superpages),
    ("base pages resident", |moment| moment.resident_pages),
    ("free superpages (contiguity left in the machine)", |moment| moment.free_superpages),
];

/// Draws the panels from `y` on; returns them and their height. Nothing if no run has moments.
pub(super) fn draw(reports: &[Report], y: f64) -> (Vec<Element>, f64) {
    if reports.iter().all(|report| report.timeline.is_empty()) {
        return (Vec::new(), 0.0);
    }
    let longest = reports.iter().map(Report::seconds).fold(0.0, f64::max);
    if reports.len() > COLOURS {
        return grid::draw(reports, y, longest);
    }
    let items: Vec<(Sign, String)> = reports
        .iter()
        .enumerate()
        .map(|(index, report)| (Sign::Line(class(index)), report.cell.design.clone()))
        .collect();
    let (mut drawn, mut height) = legend::draw(&items, y);
    let time = Axis::elapsed(longest);
    for (title, of) in PANELS {
        drawn.extend(panel(reports, y + height, title, of, &time));
        height += ABOVE + HEIGHT + BELOW;
    }
    (drawn, height + 8.0)
}

fn panel(
    reports: &[Report],
    y: f64,
    title: &str,
    of: fn(&Moment) -> u64,
    time: &Axis,
) -> Vec<Element> {
    let moments = reports.iter().flat_map(|report| &report.timeline);
    let axis = Axis::amounts(moments.map(of).max().unwrap_or(0) as f64);
    let width = WIDTH - 2.0 * MARGIN - GUTTER;
    let mut plot = frame::plot(MARGIN + GUTTER, y + ABOVE, width, HEIGHT)
        .all(axis.up(HEIGHT))
        .all(time.across(HEIGHT, 8));
    for (index, report) in reports.iter().enumerate() {
        let path = path(report, of, time, &axis, (width, HEIGHT));
        plot = plot.add(el("path").with("d", path).class(class(index)));
    }
    vec![text(MARGIN, y + ABOVE - 10.0, "heading", title), plot]
}

/// Steps: what was seen holds until something else is.
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

fn class(index: usize) -> String {
    format!("line c{}", index % COLOURS)
}
