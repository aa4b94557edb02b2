//! Draws reports as pictures: superpages, resident memory and free contiguity over time, and cycles by cause. Equal
//! reports give equal bytes.
//!
//! [`svg`] returns one self-contained picture. [`page`] returns a page with the picture and an explanation, without
//! scripts or external resources.

mod bars;
mod faults;
mod grid;
mod lines;
mod validation;

pub use faults::{Curve, Point, faults};
pub use validation::{validation, validation_page};

use report::frame::{self, text};
use report::markup::{Element, el};
use units::ByteSize;

use crate::Report;
use crate::analysis::{end, explain};
use report::place::{clipped, wrapped};

const STYLE: &str = include_str!("style.css");
const WIDTH: f64 = 960.0;
/// Width of the picture on a telephone, in pixels. Letters have the same size as on a wide screen, and panels stand
/// below each other instead of side by side.
const NARROW: f64 = 400.0;
const MARGIN: f64 = 24.0;

/// Draws all reports in one picture: settings, time line, cycles by cause.
pub fn svg(reports: &[Report]) -> String {
    frame::file(picture(reports, WIDTH))
}

/// Returns a page with the picture in two widths, for wide and narrow windows, and explains why the first run was
/// faster or slower than each other run.
pub fn page(reports: &[Report]) -> String {
    let title = title(reports);
    let figure = |class, width| el("figure").class(class).add(picture(reports, width));
    let mut body = el("body").add(figure("wide", WIDTH)).add(figure("narrow", NARROW));
    if let Some((base, others)) = reports.split_first() {
        for other in others {
            let why = explain(base, other);
            let names = why.runs.join(" and ");
            let section = el("section").add(el("h2").text(names));
            body = body.add(section.all(why.sentences.iter().map(|one| el("p").text(one))));
        }
    }
    frame::page(format!("superpage lab: {title}"), &[STYLE], body)
}

fn picture(reports: &[Report], width: f64) -> Element {
    let title = title(reports);
    let (mut parts, mut y) = titled(&title, width);
    for line in ends(reports) {
        parts.push(text(MARGIN, y + 4.0, "end", clipped(&line, width - 2.0 * MARGIN, 12.0)));
        y += 18.0;
    }
    for part in [lines::draw, bars::draw] {
        let (drawn, height) = part(reports, y, width);
        parts.extend(drawn);
        y += height;
    }
    frame::picture(width, y, &title, STYLE, parts)
}

/// Wraps a title into lines. Returns the lines and the y coordinate below them.
fn titled(title: &str, width: f64) -> (Vec<Element>, f64) {
    let lines = wrapped(title, width - 2.0 * MARGIN, 16.0);
    let below = 22.0 + 22.0 * lines.len() as f64;
    let places = (0..).map(|line| 28.0 + 22.0 * f64::from(line));
    (lines.iter().zip(places).map(|(line, y)| text(MARGIN, y, "title", line)).collect(), below)
}

/// Returns the maximum number of ticks on an axis of this length.
fn ticks(space: f64) -> usize {
    ((space / 80.0) as usize).clamp(2, 8)
}

fn title(reports: &[Report]) -> String {
    let Some(first) = reports.first() else { return "no runs".to_string() };
    let cells = || reports.iter().map(|report| &report.cell);
    let cell = &first.cell;
    let mut words = Vec::new();
    if cells().all(|other| other.workload == cell.workload) {
        words.push(cell.workload.clone());
    }
    if cells().all(|other| other.machine == cell.machine) {
        words.push(format!("on {}", cell.machine));
    }
    if cells().all(|other| other.memory_bytes == cell.memory_bytes) {
        words.push(format!("with {}", ByteSize(cell.memory_bytes)));
    }
    if cells().all(|other| other.fragmentation == cell.fragmentation) {
        words.push(format!("· fragmentation {}", cell.fragmentation));
    }
    if cells().all(|other| other.seed == cell.seed) {
        words.push(format!("· seed {}", cell.seed));
    }
    if reports.len() == 1 {
        format!("{}: {}", cell.design, words.join(" "))
    } else {
        words.join(" ")
    }
}

/// Returns a line per run that did not end normally, so that its time is not mistaken for a result.
fn ends(reports: &[Report]) -> Vec<String> {
    let line =
        |report: &Report| end(&report.end).map(|end| format!("{} {end}", report.cell.design));
    reports.iter().filter_map(line).collect()
}
