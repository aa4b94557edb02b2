//! Cycles by cause: a stacked bar per design, and a thin one below it for the daemons.

use report::axis::{Axis, block, note_at, px};
use report::markup::{Element, el};
use report::sig3;

use super::MARGIN;
use super::{text, ticks};
use crate::Report;
use mm_sim::{Cause, CycleCounts};
use report::legend::{self, Sign};
use report::place::{clipped, width};

/// Maximum width of the design names, in pixels.
const NAMES: f64 = 170.0;
/// Maximum width of the design names, as a share of the picture's width.
const NAMES_SHARE: f64 = 0.3;
/// Width of the sums behind the bars, in pixels.
const SUMS: f64 = 70.0;
const BAR: f64 = 22.0;
const THIN: f64 = 5.0;
const ROW: f64 = 40.0;
/// Minimum width of a visible part.
const VISIBLE: f64 = 0.3;

/// Draws the bars below `y`. Returns the bars and their height, or nothing without cycles.
pub(super) fn draw(reports: &[Report], y: f64, across: f64) -> (Vec<Element>, f64) {
    let most = |of: fn(&Report) -> &CycleCounts| reports.iter().map(|one| of(one).total()).max();
    let most = most(|one| &one.ledger).max(most(|one| &one.background)).unwrap_or(0);
    if most == 0 {
        return (Vec::new(), 0.0);
    }
    let title = "CPU cycles by cause (thin bars: daemons)";
    let mut drawn = vec![text(MARGIN, y + 20.0, "heading", title)];
    let shown = |cause: &Cause| {
        let part = |ledger: &CycleCounts| ledger[*cause] as f64 > most as f64 * 0.0005;
        reports.iter().any(|report| part(&report.ledger) || part(&report.background))
    };
    let items: Vec<(Sign, String)> = Cause::ALL
        .into_iter()
        .filter(shown)
        .map(|cause| (Sign::Block(class(cause)), cause.name().to_string()))
        .collect();
    let (legend, legend_height) = legend::draw(&items, (MARGIN, y + 30.0), across - 2.0 * MARGIN);
    drawn.extend(legend);
    let top = y + 30.0 + legend_height + 10.0;
    let height = reports.len() as f64 * ROW;
    let axis = Axis::amounts(most as f64);
    let names = (across * NAMES_SHARE).min(NAMES);
    let space = across - 2.0 * MARGIN - names - SUMS;
    let mut plot = el("svg")
        .with("x", MARGIN + names)
        .with("y", top)
        .with("width", space)
        .with("height", height)
        .with("overflow", "visible")
        .all(axis.across(height, ticks(space)));
    for (index, report) in reports.iter().enumerate() {
        let y = index as f64 * ROW + 6.0;
        plot = plot.all(stack(&report.ledger, &axis, space, y, BAR));
        plot = plot.all(stack(&report.background, &axis, space, y + BAR + 1.0, THIN));
        let end = axis.place(report.ledger.total() as f64) * space;
        let sum = sig3::figure(report.ledger.total() as f64);
        plot = plot.add(note_at(&px(end + 6.0), y + BAR / 2.0 + 4.0, &sum, "start"));
        let name = clipped(&report.cell.design, names - 12.0, 12.0);
        let x = MARGIN + names - 10.0;
        let label = el("text").with("x", x).with("y", top + y + BAR / 2.0 + 4.0);
        drawn.push(label.with("text-anchor", "end").class("label").text(name));
    }
    drawn.push(plot);
    (drawn, top - y + height + 36.0)
}

fn stack(ledger: &CycleCounts, axis: &Axis, space: f64, y: f64, height: f64) -> Vec<Element> {
    let mut drawn = Vec::new();
    let (mut sum, total) = (0, ledger.total());
    for cause in Cause::ALL {
        let cycles = ledger[cause];
        let from = axis.place(sum as f64) * space;
        sum += cycles;
        let wide = axis.place(sum as f64) * space - from;
        if wide < VISIBLE {
            continue;
        }
        let share = sig3::percent(cycles as f64 / total as f64);
        let about = format!("{}: {}, {share}", cause.name(), sig3::figure(cycles as f64));
        let part = block(px(from), px(y), px(wide), px(height)).class(class(cause));
        drawn.push(part.add(el("title").text(about)));
        if height == BAR && width(&share, 11.0) + 8.0 < wide {
            let (x, y) = (from + wide / 2.0, y + height / 2.0 + 4.0);
            let inside = el("text").with("x", px(x)).with("y", px(y));
            drawn.push(inside.with("text-anchor", "middle").class("inside").text(share));
        }
    }
    drawn
}

fn class(cause: Cause) -> String {
    format!("k-{}", cause.name())
}
