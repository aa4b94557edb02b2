//! The calibration's curves as an SVG: cycles per access against footprint, one panel per page size, with the levels
//! marked. Equal documents give equal bytes.

use report::axis::{Axis, line, note_at, polyline};
use report::frame::{self, text};
use report::markup::{Element, el};
use report::scale::percent;

use crate::document::{Calibration, SizeReport};

const STYLE: &str = include_str!("style.css");
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 20.0;
/// Width in pixels for the labels of the vertical axis.
const GUTTER: f64 = 44.0;
/// Height of a panel in pixels.
const HEIGHT: f64 = 220.0;
/// Height in pixels above a panel, for its title and the names of the levels.
const ABOVE: f64 = 52.0;
/// Height in pixels below a panel, for its axis.
const BELOW: f64 = 44.0;

impl Calibration {
    /// Draws the SVG.
    pub fn to_svg(&self) -> String {
        let model = self.processor.model.as_deref().unwrap_or("this machine");
        let title = format!("What address translation costs: {model}");
        let mut parts = vec![text(MARGIN, 28.0, "title", &title)];
        let key =
            "solid: one line in each page; dashed: as many lines in few pages (data caches alone)";
        parts.push(text(MARGIN, 48.0, "note", key));
        let mut y = 56.0;
        let loads = self.sizes.iter().map(|size| (size, "pages", "access"));
        let jumps = self.instructions.iter().map(|size| (size, "code in pages", "jump"));
        for (size, what, each) in loads.chain(jumps) {
            let title =
                format!("{what} of {} · cycles per {each} against pages touched", size.page);
            parts.extend(panel(size, &title, y));
            y += ABOVE + HEIGHT + BELOW;
        }
        frame::file(frame::picture(WIDTH, y, &title, STYLE, parts))
    }
}

fn panel(size: &SizeReport, title: &str, y: f64) -> Vec<Element> {
    let width = WIDTH - 2.0 * MARGIN - GUTTER;
    let heading = text(MARGIN, y + 20.0, "heading", title);
    let (Some(first), Some(last)) = (size.curve.first(), size.curve.last()) else {
        return vec![heading];
    };
    let low = first.pages.max(1) as f64;
    let pages = |count: f64| (count / low).ln() / (last.pages as f64 / low).ln().max(1e-9);
    let highest = size.curve.iter().map(|point| point.spread.max(point.packed)).fold(1.0, f64::max);
    let cycles = Axis::amounts(highest);
    let mut plot = frame::plot(MARGIN + GUTTER, y + ABOVE, width, HEIGHT).all(cycles.up(HEIGHT));
    // Label powers of four on the logarithmic axis.
    for power in (0..=40).step_by(2) {
        let count = (1u64 << power) as f64;
        if count >= low && count <= last.pages as f64 {
            let x = percent(pages(count));
            plot = plot.add(line(&x, 0, &x, HEIGHT).class("grid"));
            plot = plot.add(note_at(&x, HEIGHT + 15.0, &(1u64 << power).to_string(), "middle"));
        }
    }
    for (index, level) in size.levels.iter().enumerate() {
        let Some(entries) = level.entries else { continue };
        let x = percent(pages(entries as f64));
        plot = plot.add(line(&x, -4, &x, HEIGHT).class("level"));
        let words = format!("level {}: {entries} entries", index + 1);
        plot = plot.add(note_at(&x, -8.0, &words, "middle"));
    }
    for (class, of) in [("line packed", true), ("line spread", false)] {
        let path = polyline(size.curve.iter().map(|point| {
            let value = if of { point.packed } else { point.spread };
            (pages(point.pages as f64) * width, (1.0 - cycles.place(value)) * HEIGHT)
        }));
        plot = plot.add(el("path").with("d", path).class(class));
    }
    vec![heading, plot]
}
