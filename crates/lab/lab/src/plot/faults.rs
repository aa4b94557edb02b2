//! Pages mapped a second against CPUs, both logarithmic: one line for each set of patches.

use report::axis::{Axis, line, note_at, polyline, px};
use report::frame;
use report::markup::el;

use super::{MARGIN, WIDTH};
use super::{STYLE, text, titled};
use fault_scaling::Row;
use report::legend::{self, Sign};

/// Space for the labels of the upright axis.
const GUTTER: f64 = 64.0;
const HEIGHT: f64 = 420.0;
/// Colours; more lines than these are dashed.
const COLOURS: usize = 7;

/// The picture of several sets of patches. A line's rows are in the order of their threads; what lies
/// beyond `measured` CPUs is a prediction.
pub fn faults(title: &str, measured: u32, sets: &[(String, Vec<Row>)]) -> String {
    let rows = || sets.iter().flat_map(|(_, rows)| rows);
    let rate = |row: &Row| row.pages_per_wall_second / 1e3;
    let ends = |of: &dyn Fn(&Row) -> f64| {
        let low = rows().map(of).fold(f64::INFINITY, f64::min);
        (low.min(1e300), rows().map(of).fold(low, f64::max))
    };
    let (few, many) = ends(&|row| f64::from(row.threads));
    let (slow, fast) = ends(&rate);
    let (across, up) = (Axis::ratios(few, many), Axis::ratios(slow, fast));
    let width = WIDTH - 2.0 * MARGIN - GUTTER;
    let place = |row: &Row| {
        (across.place(f64::from(row.threads)) * width, (1.0 - up.place(rate(row))) * HEIGHT)
    };

    let (mut parts, y) = titled(title, WIDTH);
    let class = |index: usize| {
        let dash = if index / COLOURS % 2 == 1 { " d2" } else { "" };
        format!("line c{}{dash}", index % COLOURS)
    };
    let items: Vec<(Sign, String)> = sets
        .iter()
        .enumerate()
        .map(|(index, (name, _))| (Sign::Line(class(index)), name.clone()))
        .collect();
    let (drawn, height) = legend::draw(&items, (MARGIN, y), WIDTH - 2.0 * MARGIN);
    parts.extend(drawn);
    let top = y + height + 30.0;
    let heading = "base pages mapped per second of wall-clock time (thousands), by CPUs";
    parts.push(text(MARGIN, top - 10.0, "heading", heading));

    let mut plot = frame::plot(MARGIN + GUTTER, top, width, HEIGHT).all(up.up(HEIGHT));
    let mut threads: Vec<u32> = rows().map(|row| row.threads).collect();
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
    for (index, (_, rows)) in sets.iter().enumerate() {
        plot = plot.add(el("path").with("d", polyline(rows.iter().map(place))).class(class(index)));
    }
    parts.push(plot);
    frame::file(frame::picture(WIDTH, top + HEIGHT + 40.0, title, STYLE, parts))
}
