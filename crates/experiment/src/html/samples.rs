//! Every run as a dot: one row per arm, and again in run order.

use super::order;
use crate::analysis::Analysis;
use crate::document::Document;
use crate::sample::{Purpose, Sample};
use crate::stats::describe;
use crate::verdict::Verdict;
use report::axis::{Axis, line, px};
use report::format;
use report::frame;
use report::marks::{colour, key, mark};
use report::markup::{Element, el};
use report::scale::{ends, percent};
use report::swarm::swarm;

/// One quantity of the runs.
pub struct Quantity<'a> {
    /// Unique on the page.
    pub id: &'a str,
    /// For people.
    pub name: &'a str,
    /// A value in words.
    pub words: &'a dyn Fn(f64) -> String,
    /// Its unit, if it is not seconds.
    pub unit: Option<&'a str>,
    /// The value of a run.
    pub of: &'a dyn Fn(&Sample) -> Option<f64>,
}

/// A run that has a value.
pub struct Dot<'a> {
    /// The run.
    pub sample: &'a Sample,
    /// Its value.
    pub value: f64,
    /// Place in run order, from 0.
    pub turn: usize,
}

impl Dot<'_> {
    fn is_measured(&self) -> bool {
        self.sample.purpose == Purpose::Measured
    }
}

/// What both panels draw.
pub struct View<'a> {
    /// The document.
    pub document: &'a Document,
    /// Its analysis.
    pub analysis: &'a Analysis,
    /// The quantity.
    pub quantity: &'a Quantity<'a>,
    /// The runs that have a value.
    pub dots: Vec<Dot<'a>>,
    /// Where values lie.
    pub axis: Axis,
}

/// Both panels.
pub fn panels(document: &Document, analysis: &Analysis, quantity: &Quantity) -> Element {
    let runs = document.samples.iter().enumerate();
    let dots: Vec<Dot> = runs
        .filter_map(|(turn, sample)| {
            let value = (quantity.of)(sample).filter(|value| value.is_finite())?;
            Some(Dot { sample, value, turn })
        })
        .collect();
    let section = el("section").add(el("h2").text(format!("Every run: {}", quantity.name)));
    let Some(axis) = axis(&dots, quantity) else {
        return section.add(el("p").text("No run has a value."));
    };
    let view = View { document, analysis, quantity, dots, axis };
    let panels = el("div").class("panels").add(strips(&view)).add(order::panel(&view));
    section.add(panels).add(notes(&view))
}

impl View<'_> {
    /// The median of an arm's measured runs, and how many there are.
    pub fn median(&self, arm: usize) -> (Option<f64>, usize) {
        let own = self.dots.iter().filter(|dot| dot.sample.arm as usize == arm);
        let mut values: Vec<f64> =
            own.filter(|dot| dot.is_measured()).map(|dot| dot.value).collect();
        (describe::median(&mut values), values.len())
    }

    /// A dot, with its numbers for whoever points at it.
    pub fn draw(&self, dot: &Dot, x: &str, y: f64, arm: &str) -> Element {
        let (axis, quantity) = (&self.axis, self.quantity);
        let purpose = if dot.is_measured() { "block" } else { "warm-up" };
        let failed = if dot.sample.succeeded() { "" } else { ", failed" };
        let off = if axis.holds(dot.value) { "" } else { ", off the scale" };
        let told = format!(
            "{arm}, run {}, {purpose} {}: {}{failed}{off}",
            dot.turn + 1,
            dot.sample.block + 1,
            (quantity.words)(dot.value)
        );
        let mut class = format!("dot {}", colour(dot.sample.arm as usize));
        for (is, name) in [
            (!dot.is_measured(), " warm"),
            (!dot.sample.succeeded(), " failed"),
            (!axis.holds(dot.value), " off"),
        ] {
            class += if is { name } else { "" };
        }
        mark(dot.sample.arm as usize, x, px(y)).class(class).add(el("title").text(told))
    }
}

/// An axis for the measured runs; warm-ups join if they are not far away.
fn axis(dots: &[Dot], quantity: &Quantity) -> Option<Axis> {
    let measured = || dots.iter().filter(|dot| dot.is_measured()).map(|dot| dot.value);
    let (low, high) = ends(measured()).or_else(|| ends(dots.iter().map(|dot| dot.value)))?;
    let reach = 0.6 * (high - low).max(0.02 * high.abs());
    let near = move |value: &f64| low - reach <= *value && *value <= high + reach;
    let values: Vec<f64> = dots.iter().map(|dot| dot.value).filter(near).collect();
    match quantity.unit {
        None => Axis::seconds(values.iter().copied()),
        Some(unit) => Axis::figures(values.iter().copied(), unit),
    }
}

/// Whether the arm's verdict is that its design did not take effect.
fn has_no_number(analysis: &Analysis, arm: &str) -> bool {
    let mut own = analysis.judgements.iter().filter(|judgement| judgement.arm == arm);
    own.any(|judgement| matches!(judgement.verdict, Verdict::DidNotTakeEffect { .. }))
}

fn strips(view: &View) -> Element {
    let View { document, analysis, quantity, dots, axis } = view;
    let mut top = 0.0;
    let mut rows = Vec::new();
    for (index, arm) in document.arms.iter().enumerate() {
        let own: Vec<&Dot> = dots.iter().filter(|dot| dot.sample.arm as usize == index).collect();
        let places: Vec<f64> = own.iter().map(|dot| axis.place(dot.value)).collect();
        let heights = swarm(&places);
        let half = heights.iter().fold(0.0, |most: f64, y| most.max(y.abs())) + 9.0;
        let (median, runs) = view.median(index);
        let told = match median {
            Some(median) => format!("median {}, {runs} runs", (quantity.words)(median)),
            None => "no measured run".to_string(),
        };
        let told = if has_no_number(analysis, &arm.name) { format!("{told} ⚠") } else { told };
        let name = el("tspan").class("name").text(format::name(&arm.name, 16));
        let label = el("text").with("x", 18).with("y", px(top + 15.0));
        rows.push(mark(index, 7, px(top + 11.0)).class(colour(index)));
        let full = el("title").text(&arm.name);
        rows.push(label.add(full).add(name).add(el("tspan").with("dx", 8).text(told)));
        let middle = top + 23.0 + half;
        rows.push(line("0", px(middle), "100%", px(middle)).class("rail"));
        if let Some(median) = median {
            let (x, up, down) = (axis.x(median), px(middle - half), px(middle + half));
            rows.push(line(&x, up, &x, down).class(format!("median {}", colour(index))));
        }
        for ((dot, place), height) in own.iter().zip(&places).zip(&heights) {
            rows.push(view.draw(dot, &percent(*place), middle + height, &arm.name));
        }
        top = middle + half + 10.0;
    }
    let title = format!("Every run by arm: {}", quantity.name);
    let about =
        "One row per arm. Each dot is a run, a hollow one a warm-up; the line is the median.";
    let chart = frame::chart(&format!("{}-strips", quantity.id), false, top + 24.0, &title, about);
    frame::figure(format!("By arm ({})", axis.note()), chart.all(axis.across(top, 5)).all(rows))
}

/// The key, and what the reader must know to read the dots.
fn notes(view: &View) -> Element {
    let View { document, analysis, quantity, dots, axis } = view;
    let arms = document.arms.iter().enumerate();
    let keys = arms.map(|(arm, one)| el("span").class("item").add(key(arm)).text(&one.name));
    let mut told = "Lines are medians of measured runs.".to_string();
    if dots.iter().any(|dot| !dot.is_measured()) {
        told += " Hollow marks are warm-ups; they are not counted.";
    }
    if dots.iter().any(|dot| !dot.sample.succeeded()) {
        told += " Marks with a broken outline are runs that failed.";
    }
    if document.arms.iter().any(|arm| has_no_number(analysis, &arm.name)) {
        told += " ⚠ The design did not take effect: these runs measure something else.";
    }
    let off: Vec<String> = dots
        .iter()
        .filter(|dot| !axis.holds(dot.value))
        .map(|dot| {
            let arm = &document.arms[dot.sample.arm as usize].name;
            format!("{arm} {}", (quantity.words)(dot.value))
        })
        .collect();
    if !off.is_empty() {
        told += &format!(" Off the scale, drawn at its edge: warm-up of {}.", off.join(", "));
    }
    let without = document.samples.len() - dots.len();
    if without > 0 {
        told += &format!(" {without} runs have no value and no mark.");
    }
    let keys = el("p").class("keys").all(keys);
    el("div").add(keys).add(el("p").class("small").text(told))
}
