//! Draws how many times better each arm is than the reference, with its interval.

use crate::analysis::{Analysis, Judgement};
use crate::document::{Document, Predicted};
use crate::measure::Measure;
use crate::stats::Interval;
use crate::verdict::{Verdict, is_meaningful};
use report::axis::{Axis, block, line, note_at, px};
use report::format;
use report::frame;
use report::marks::{colour, mark};
use report::markup::{Element, el};
use report::scale::{ends, percent};

/// Factor beyond the estimate at which an interval is cut off.
const REACH: f64 = 20.0;
/// Height of a row: a line of text and a lane below it.
const ROW: f64 = 54.0;
/// Height of the lane.
const LANE: f64 = 34.0;

/// Returns the ratio and interval to draw; `None` if the verdict withholds its number.
fn drawn(judgement: &Judgement) -> Option<(f64, Option<Interval>)> {
    let (ratio, interval) = match &judgement.verdict {
        Verdict::Faster(figures) | Verdict::Slower(figures) => {
            (figures.speedup, Some(figures.interval))
        }
        Verdict::Same { figures, .. } => (figures.speedup, Some(figures.interval)),
        Verdict::Undecided { speedup, interval, .. } => {
            (*speedup, interval.filter(|interval| is_meaningful(*interval)))
        }
        Verdict::DidNotTakeEffect { .. } | Verdict::NoData { .. } => return None,
    };
    let good = |value: f64| value.is_finite() && value > 0.0;
    let interval = interval.filter(|interval| good(interval.low) && good(interval.high));
    good(ratio).then_some((ratio, interval))
}

/// Returns the prediction for a judgement, if there is one and a ratio is drawn.
fn prediction_for<'a>(document: &'a Document, judgement: &Judgement) -> Option<&'a Predicted> {
    drawn(judgement).and_then(|_| document.predicted_for(&judgement.arm, &judgement.quantity))
}

/// Draws the section; `None` if nothing was compared.
pub fn section(document: &Document, analysis: &Analysis) -> Option<Element> {
    let mut judged: Vec<&Judgement> = analysis.judgements.iter().collect();
    judged.sort_by_key(|judgement| !judgement.is_primary);
    if judged.is_empty() {
        return None;
    }
    let narrow = document.judging.margin(analysis.noise_floor).surely_same();
    let wide = document.judging.same_at_most.max(narrow);
    let drawn_values = judged.iter().filter_map(|judgement| drawn(judgement));
    let all = drawn_values.flat_map(|(ratio, interval)| {
        let interval = interval.unwrap_or(Interval { low: ratio, high: ratio });
        [interval.low.max(ratio / REACH), interval.high.min(ratio * REACH)]
    });
    let band = [1.0 / (1.0 + wide.min(1.0)), 1.0 + wide.min(1.0)];
    let predicted = judged.iter().filter_map(|judgement| prediction_for(document, judgement));
    let all = all.chain(predicted.flat_map(Predicted::ratio));
    let (low, high) = ends(all.chain(band).map(|value| value.clamp(1e-290, 1e290)))?;
    let axis = Axis::ratios(low, high);

    let mut rows = Vec::new();
    let mut top = 16.0;
    let mut quantity = None;
    for judgement in &judged {
        if quantity != Some(&judgement.quantity) {
            let name = quantity_name(&judgement.quantity, judgement.is_primary);
            rows.push(note_at("0", top + 15.0, &format::clipped(&name, 48), "start"));
            quantity = Some(&judgement.quantity);
            top += 20.0;
        }
        if drawn(judgement).is_some() {
            rows.extend(lane(&axis, top + LANE, [(wide, "band-wide"), (narrow, "band-narrow")]));
        }
        rows.extend(row(document, judgement, &axis, top));
        top += if drawn(judgement).is_some() { ROW } else { ROW / 2.0 };
    }
    let mut back = axis.across(top, 7);
    if axis.place(1.0) > 0.2 {
        back.push(note_at("0", 8.0, "← worse", "start"));
    }
    if axis.place(1.0) < 0.8 {
        back.push(note_at("100%", 8.0, "better →", "end"));
    }
    let reference = &document.arms.first()?.name;
    let title = format!("How many times better than {reference}");
    let about = "One row per arm and quantity. The mark is the ratio of medians, whiskers are its \
            interval; the line at 1 means equal, the bands are differences called the same.";
    let chart = frame::chart("ratio", false, top + 24.0, &title, about).all(back).all(rows);
    let floor = match analysis.noise_floor {
        Some(floor) if floor >= narrow => " (the measured noise floor)",
        _ => "",
    };
    let outer = match wide > narrow {
        true => format!("; outer band: up to {} if the interval contains 1", format::percent(wide)),
        false => String::new(),
    };
    let told = format!(
        "Over 1 is better than {reference}, whether the quantity is a time or a rate: 2 is half the \
         time or twice the rate. The axis is logarithmic. Whiskers: {} interval. Band: differences \
         up to {}{floor} are called the same{outer}.",
        format::percent(document.judging.confidence.level()),
        format::percent(narrow),
    );
    let told = match judged.iter().any(|judgement| prediction_for(document, judgement).is_some()) {
        true => format!("{told} Dashed: the prediction and its bounds."),
        false => told,
    };
    let section = el("section").add(el("h2").text(title));
    let figure = el("figure").add(chart);
    Some(section.add(figure).add(el("p").class("small").text(told)))
}

/// Returns the name of a quantity in headings.
pub fn quantity_name(quantity: &Measure, is_primary: bool) -> String {
    let name = quantity.heading();
    if is_primary { name.to_string() } else { format!("{name} (secondary)") }
}

/// Draws the line at 1 and the bands for one row, so that they do not run behind text.
fn lane(axis: &Axis, y: f64, bands: [(f64, &str); 2]) -> Vec<Element> {
    let band = |(within, class): (f64, &str)| {
        let from = axis.place(1.0 / (1.0 + within));
        let width = percent(axis.place(1.0 + within) - from);
        block(percent(from), px(y - 13.0), width, 26).class(class)
    };
    let one = axis.x(1.0);
    let one = line(&one, px(y - 15.0), &one, px(y + 15.0)).class("one");
    bands.into_iter().map(band).chain([one]).collect()
}

fn row(document: &Document, judgement: &Judgement, axis: &Axis, top: f64) -> Vec<Element> {
    let arm = document.arms.iter().position(|arm| arm.name == judgement.arm).unwrap_or(0);
    let y = top + LANE;
    let numbers = match (&judgement.verdict, drawn(judgement)) {
        (Verdict::DidNotTakeEffect { .. }, _) => "⚠ did not take effect: no ratio".to_string(),
        (_, None) => "no data".to_string(),
        (_, Some((ratio, None))) => format!("{} (no useful interval yet)", format::ratio(ratio)),
        (_, Some((ratio, Some(i)))) => {
            format!(
                "{} ({} – {})",
                format::ratio(ratio),
                format::ratio(i.low),
                format::ratio(i.high)
            )
        }
    };
    let name = el("tspan").class("name").text(format::name(&judgement.arm, 20));
    let label = el("text").with("x", 0).with("y", px(top + 15.0));
    let label = label.add(el("title").text(&judgement.arm)).add(name);
    let mut label = label.add(el("tspan").with("dx", 10).text(&numbers));
    let predicted = prediction_for(document, judgement);
    if let Some(told) = predicted {
        label = label.add(el("tspan").with("dx", 10).class("soft").text(told.ratio_text()));
    }
    let mut parts = vec![label];
    let Some((ratio, interval)) = drawn(judgement) else { return parts };
    let class = colour(arm);
    if let Some(told) = predicted {
        let [low, mid, high] = told.ratio().map(|value| axis.x(value));
        let y = y + 10.0;
        parts.push(line(&low, px(y), &high, px(y)).class("predicted"));
        parts.push(line(&mid, px(y - 4.0), &mid, px(y + 4.0)).class("predicted"));
    }
    if let Some(interval) = interval {
        let (low, high) = (axis.x(interval.low), axis.x(interval.high));
        parts.push(line(&low, px(y), &high, px(y)).class(format!("whisker {class}")));
        for (value, x, arrow) in [(interval.low, &low, "◂"), (interval.high, &high, "▸")] {
            parts.push(if axis.holds(value) {
                line(x, px(y - 6.0), x, px(y + 6.0)).class(format!("whisker {class}"))
            } else {
                let beyond = el("text").with("x", x).with("y", px(y + 5.0)).text(arrow);
                beyond.with("text-anchor", "middle").class(format!("beyond {class}"))
            });
        }
    }
    let told = format!("{}: {numbers}", judgement.arm);
    parts.push(mark(arm, axis.x(ratio), px(y)).class(class).add(el("title").text(told)));
    parts
}
