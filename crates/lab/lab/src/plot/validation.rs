//! Plots superpages over a program's time, live and simulated, in a small panel for each design.

use report::axis::{Axis, px};
use report::frame;
use report::legend::{self, Sign};
use report::markup::{Element, el};
use report::place::clipped;

use super::{MARGIN, NARROW, STYLE, WIDTH, text, titled};
use crate::validation::{Compared, Row, Step, Validation};

/// Minimum width of a column.
const COLUMN: f64 = 280.0;
/// Space for the labels of a vertical axis.
const GUTTER: f64 = 48.0;
/// Space between two panels.
const SPACING: f64 = 16.0;
/// Space above a panel.
const ABOVE: f64 = 24.0;
/// Space below a panel.
const BELOW: f64 = 28.0;
const HEIGHT: f64 = 110.0;

/// A line: its class, its name, and its steps.
type Line = (&'static str, &'static str, fn(&Row) -> &[Step]);

const LINES: [Line; 3] = [
    ("line c2", "laboratory, the design as written", |row| &row.lab.steps),
    ("line c1 d2", "laboratory, as carried out live", |row| {
        row.as_live.as_ref().map_or(&[], |as_live| &as_live.lab.steps)
    }),
    ("line c0", "live, as seen", |row| &row.live.steps),
];

/// Draws the picture of a validation.
pub fn validation(of: &Validation) -> String {
    frame::file(picture(of, WIDTH))
}

/// Returns a page with the picture in two widths, for wide and narrow windows, and a text.
pub fn validation_page(of: &Validation, text: &str) -> String {
    let figure = |class, width| el("figure").class(class).add(picture(of, width));
    let words = el("pre").with("style", "overflow-x: auto").text(text);
    let body = el("body").add(figure("wide", WIDTH)).add(figure("narrow", NARROW)).add(words);
    frame::page(format!("superpage lab validate: {}", title(of)), &[STYLE], body)
}

fn title(of: &Validation) -> String {
    let mut workloads: Vec<&str> = Vec::new();
    for one in &of.workloads {
        if !workloads.contains(&one.workload.as_str()) {
            workloads.push(&one.workload);
        }
    }
    format!(
        "{} live and on {} · fragmentation {}",
        workloads.join(" and "),
        of.machine,
        of.fragmentation
    )
}

fn picture(of: &Validation, across: f64) -> Element {
    let title = title(of);
    let (mut parts, mut y) = titled(&title, across);
    let space = across - 2.0 * MARGIN;
    let items = LINES.map(|(class, name, _)| (Sign::Line(class.to_string()), name.to_string()));
    let (drawn, height) = legend::draw(&items, (MARGIN, y), space);
    parts.extend(drawn);
    y += height + 26.0;
    for one in &of.workloads {
        let heading = format!(
            "{}, {}: superpages mapped, by the share of its time (%)",
            one.workload,
            of.fragmentation_of(one)
        );
        parts.push(text(MARGIN, y, "heading", clipped(&heading, space, 12.0)));
        let (drawn, height) = panels(one, y + 8.0, across);
        parts.extend(drawn);
        y += height + 30.0;
    }
    frame::picture(across, y, &title, STYLE, parts)
}

/// Draws a panel for each design except base pages, all with the same axes.
fn panels(of: &Compared, y: f64, across: f64) -> (Vec<Element>, f64) {
    let rows = of.designs.get(1..).unwrap_or_default();
    let all = || rows.iter().flat_map(|row| LINES.iter().flat_map(|(_, _, steps)| steps(row)));
    let most = all().map(|step| step.superpages).fold(1.0, f64::max);
    let (shares, axis) = (Axis::amounts(100.0), Axis::amounts(most));
    let columns = (((across - 2.0 * MARGIN) / COLUMN) as usize).clamp(1, 3);
    let cell = (across - 2.0 * MARGIN + SPACING) / columns as f64;
    let width = cell - GUTTER - SPACING;
    let row_height = ABOVE + HEIGHT + BELOW;
    let mut drawn = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let x = MARGIN + GUTTER + (index % columns) as f64 * cell;
        let top = y + (index / columns) as f64 * row_height + ABOVE;
        drawn.push(text(x, top - 7.0, "name", clipped(&row.design, width, 12.0)));
        let mut plot =
            frame::plot(x, top, width, HEIGHT).all(axis.up(HEIGHT)).all(shares.across(HEIGHT, 4));
        for (class, _, steps) in LINES {
            if !steps(row).is_empty() {
                let drawn = path(steps(row), &shares, &axis, width);
                plot = plot.add(el("path").with("d", drawn).class(class));
            }
        }
        drawn.push(plot);
    }
    (drawn, rows.len().div_ceil(columns) as f64 * row_height)
}

/// Returns a step function: each value holds until the next step, the last one to the end.
fn path(steps: &[Step], shares: &Axis, axis: &Axis, width: f64) -> String {
    let mut path = String::new();
    for step in steps {
        let x = shares.place(100.0 * step.at) * width;
        let y = (1.0 - axis.place(step.superpages)) * HEIGHT;
        path += &match path.is_empty() {
            true => format!("M{},{}", px(x), px(y)),
            false => format!("H{}V{}", px(x), px(y)),
        };
    }
    path + &format!("H{}", px(shares.place(100.0) * width))
}
