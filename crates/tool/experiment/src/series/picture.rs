//! Draws the chart of a series: ratio against value with intervals, one panel per quantity, one line per arm. Pure.

use crate::measure::Measure;
use report::axis::{Axis, line, note_at, polyline, px};
use report::frame::{self, text};
use report::legend::{self, Sign};
use report::markup::{Element, el};
use report::place;
use report::scale::ends;

use super::Series;
use crate::analysis::{Analysis, analyse};
use crate::stats::Interval;
use crate::verdict::{Verdict, is_meaningful};

const STYLE: &str = include_str!("../bench/style.css");
const WIDTH: f64 = 900.0;
const MARGIN: f64 = 20.0;
const GUTTER: f64 = 64.0;
const HEIGHT: f64 = 180.0;
const ABOVE: f64 = 36.0;
const BELOW: f64 = 36.0;
const COLOURS: usize = 7;

struct Mark {
    /// Index of the value in the series.
    index: usize,
    x: f64,
    ratio: f64,
    interval: Option<Interval>,
}

pub(super) fn draw(series: &Series) -> Option<Element> {
    let analyses: Vec<Analysis> =
        series.points.iter().map(|point| analyse(&point.comparison)).collect();
    let first = series.points.first()?;
    let reference = &first.comparison.arms.first()?.name;
    let title = format!("speedup over {reference} by {}", series.varied);
    let arms: Vec<&str> = first.comparison.arms.iter().map(|arm| arm.name.as_str()).collect();
    let mut quantities: Vec<&Measure> = Vec::new();
    for judgement in analyses.iter().flat_map(|analysis| &analysis.judgements) {
        if !quantities.contains(&&judgement.quantity) {
            quantities.push(&judgement.quantity);
        }
    }
    let mut parts = vec![text(MARGIN, 28.0, "title", &title)];
    let items: Vec<(Sign, String)> = (1..arms.len())
        .map(|arm| (Sign::Line(format!("line c{}", arm % COLOURS)), arms[arm].to_string()))
        .collect();
    let (drawn, height) = legend::draw(&items, (MARGIN, 40.0), WIDTH - 2.0 * MARGIN);
    parts.extend(drawn);
    let mut y = 44.0 + height;
    let top = y;
    for quantity in quantities {
        let marks = |arm: &str| marks(series, &analyses, quantity, arm);
        let curves: Vec<(usize, Vec<Mark>)> =
            (1..arms.len()).map(|arm| (arm, marks(arms[arm]))).collect();
        if let Some(plot) = panel(series, &curves, y) {
            let name = quantity.heading();
            let heading = format!("{name}: times faster (logarithmic) against {}", series.varied);
            parts.push(text(MARGIN, y + ABOVE - 12.0, "heading", heading));
            parts.push(plot);
            y += ABOVE + HEIGHT + BELOW;
        }
    }
    (y > top).then(|| frame::picture(WIDTH, y, &title, STYLE, parts))
}

/// Returns an arm's ratios. Values at which the arm did not get the promised pages have none.
fn marks(series: &Series, analyses: &[Analysis], quantity: &Measure, arm: &str) -> Vec<Mark> {
    let marks = analyses.iter().enumerate().filter_map(|(index, analysis)| {
        let mut judged = analysis.judgements.iter();
        let one = judged.find(|one| one.quantity == *quantity && one.arm == arm)?;
        let (ratio, interval) = match &one.verdict {
            Verdict::Faster(f) | Verdict::Slower(f) | Verdict::Same { figures: f, .. } => {
                (f.speedup, Some(f.interval))
            }
            Verdict::Undecided { speedup, interval, .. } => {
                (*speedup, interval.filter(|interval| is_meaningful(*interval)))
            }
            Verdict::DidNotTakeEffect { .. } | Verdict::NoData { .. } => return None,
        };
        Some(Mark { index, x: along(series, index), ratio, interval })
    });
    marks.collect()
}

/// Returns the horizontal position of a value, from 0 to 1: logarithmic, or evenly spaced if a value is not positive.
fn along(series: &Series, index: usize) -> f64 {
    let numbers = series.points.iter().map(|point| point.number);
    match ends(numbers) {
        Some((low, high)) if low > 0.0 && high > low => {
            (series.points[index].number / low).ln() / (high / low).ln()
        }
        _ => (index as f64 + 0.5) / series.points.len() as f64,
    }
}

fn panel(series: &Series, curves: &[(usize, Vec<Mark>)], y: f64) -> Option<Element> {
    let marks = || curves.iter().flat_map(|(_, marks)| marks);
    let values = marks().flat_map(|mark| {
        let [low, high] = mark.interval.map_or([mark.ratio; 2], |i| [i.low, i.high]);
        [mark.ratio, low, high]
    });
    let (low, high) = ends(values)?;
    let axis = Axis::ratios(low.min(0.98), high.max(1.02));
    let width = WIDTH - 2.0 * MARGIN - GUTTER;
    let inner = width - 40.0;
    let x = |place: f64| 20.0 + place * inner;
    let up = |ratio: f64| (1.0 - axis.place(ratio)) * HEIGHT;
    let mut plot = frame::plot(MARGIN + GUTTER, y + ABOVE, width, HEIGHT).all(axis.up(HEIGHT));
    plot = plot.add(line("0", px(up(1.0)), "100%", px(up(1.0))).class("line c0 dashed"));
    let mut free_from = f64::NEG_INFINITY;
    for (index, point) in series.points.iter().enumerate() {
        let at = x(along(series, index));
        let half = place::width(&point.value, 12.0) / 2.0 + 4.0;
        if at - half >= free_from {
            plot = plot.add(note_at(&px(at), HEIGHT + 15.0, &point.value, "middle"));
            free_from = at + half;
        }
    }
    for (arm, marks) in curves {
        let class = format!("c{}", arm % COLOURS);
        for part in unbroken(marks) {
            let points = polyline(part.iter().map(|mark| (x(mark.x), up(mark.ratio))));
            let curve = el("path").with("d", points).with("fill", "none");
            plot = plot.add(curve.class(format!("line {class}")));
        }
        for mark in marks {
            let at = px(x(mark.x));
            if let Some(interval) = mark.interval {
                let (from, to) = (px(up(interval.low)), px(up(interval.high)));
                plot = plot.add(line(&at, from, &at, to).class(format!("line {class}")));
            }
            let dot = el("circle").with("cx", &at).with("cy", px(up(mark.ratio))).with("r", 3);
            plot = plot.add(dot.class(format!("dot {class}")));
        }
    }
    Some(plot)
}

/// Groups marks of consecutive values, so that no line crosses a value without a ratio.
fn unbroken(marks: &[Mark]) -> impl Iterator<Item = &[Mark]> {
    marks.chunk_by(|a, b| a.index + 1 == b.index)
}

pub(super) fn page(series: &Series) -> String {
    let title = format!("superpage compare --vary {}", series.varied);
    let mut body = el("body").add(el("header").add(el("h1").text(&title)));
    if let Some(picture) = draw(series) {
        body = body.add(el("section").add(picture));
    }
    let rows = series.points.iter().flat_map(|point| {
        let judgements = analyse(&point.comparison).judgements.into_iter();
        let row = |one: crate::analysis::Judgement| {
            vec![point.value.clone(), one.arm, one.quantity.to_string(), one.verdict.to_string()]
        };
        judgements.map(row).collect::<Vec<_>>()
    });
    let head = [series.varied.as_str(), "arm", "quantity", "verdict"].map(String::from).to_vec();
    let table = report::tables::table("Every verdict", false, head, rows.collect());
    let body = body.add(el("section").add(table));
    frame::page(title, &[frame::PAGE], body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_crosses_a_value_without_a_ratio() {
        let mark = |index: usize| Mark { index, x: 0.0, ratio: 1.0, interval: None };
        let lengths = |indices: &[usize]| -> Vec<usize> {
            let marks: Vec<Mark> = indices.iter().map(|index| mark(*index)).collect();
            unbroken(&marks).map(<[Mark]>::len).collect()
        };
        assert_eq!(lengths(&[0, 1, 2]), [3]);
        assert_eq!(lengths(&[0, 1, 3, 4, 6]), [2, 2, 1]);
        assert!(lengths(&[]).is_empty());
    }
}
