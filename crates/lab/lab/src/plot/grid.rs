//! Draws the time line of many designs, in a small panel for each: many lines in one panel would hide each other. All
//! panels have the same axes, in superpages.

use report::axis::Axis;
use report::frame;
use report::markup::{Element, el};

use super::MARGIN;
use super::lines::path;
use super::text;
use crate::Report;
use crate::analysis::PAGES;
use mm_sim::Moment;
use report::legend::{self, Sign};
use report::place::clipped;

/// Minimum width of a column.
const COLUMN: f64 = 170.0;
/// Width of the labels of a vertical axis.
const GUTTER: f64 = 44.0;
/// Space between panels.
const SPACING: f64 = 14.0;
const HEIGHT: f64 = 64.0;
const ABOVE: f64 = 22.0;
const BELOW: f64 = 26.0;

/// A line of a panel: its name, its class, and the figure it shows.
type Line = (&'static str, &'static str, fn(&Moment) -> u64);

const LINES: [Line; 3] = [
    ("memory resident, in superpages", "line c0 d2", |moment| moment.resident_pages / PAGES),
    ("free superpages", "line c2", |moment| moment.free_superpages),
    ("superpages mapped", "line c1", |moment| moment.superpages),
];

/// Draws the panels below `y`. Returns the panels and their height.
pub(super) fn draw(reports: &[Report], y: f64, across: f64, longest: f64) -> (Vec<Element>, f64) {
    let items: Vec<(Sign, String)> = LINES
        .iter()
        .map(|(name, class, _)| (Sign::Line((*class).to_string()), (*name).to_string()))
        .collect();
    let (mut drawn, legend) = legend::draw(&items, (MARGIN, y), across - 2.0 * MARGIN);
    let time = Axis::elapsed(longest);
    let moments = || reports.iter().flat_map(|report| &report.timeline);
    let most = LINES.iter().filter_map(|(_, _, of)| moments().map(of).max()).max();
    let axis = Axis::amounts(most.unwrap_or(0) as f64);
    let columns = (((across - 2.0 * MARGIN) / COLUMN) as usize).clamp(1, 4);
    let cell = (across - 2.0 * MARGIN + SPACING) / columns as f64;
    let width = cell - GUTTER - SPACING;
    let row = ABOVE + HEIGHT + BELOW;
    for (index, report) in reports.iter().enumerate() {
        let x = MARGIN + (index % columns) as f64 * cell;
        let y = y + legend + (index / columns) as f64 * row;
        let name = clipped(&report.cell.design, width + GUTTER, 12.0);
        drawn.push(text(x + GUTTER, y + ABOVE - 7.0, "name", &name));
        let mut plot = frame::plot(x + GUTTER, y + ABOVE, width, HEIGHT)
            .all(axis.up(HEIGHT))
            .all(time.across(HEIGHT, 3));
        for (_, class, of) in LINES {
            let path = path(report, of, &time, &axis, (width, HEIGHT));
            plot = plot.add(el("path").with("d", path).class(class));
        }
        drawn.push(plot);
    }
    (drawn, legend + reports.len().div_ceil(columns) as f64 * row + 8.0)
}
