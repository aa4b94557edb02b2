//! Memory over time, and on which pages it lay at its peak: one run of each arm, watched closely.

use std::fmt::Write;

use host::coverage::Coverage;

use super::coverage;
use crate::document::Document;
use crate::sample::{Purpose, Sample};
use crate::watch::Moment;
use report::axis::{Axis, line, note_at, px};
use report::format;
use report::frame;
use report::marks::{colour, key};
use report::markup::{Element, el};

/// The run that stands for an arm: the warm-up that was looked at most, else the measured run that
/// was.
pub fn representative(document: &Document, arm: usize) -> Option<&Sample> {
    let seen = |sample: &&Sample| sample.arm as usize == arm && !sample.memory.timeline.is_empty();
    let most = |purpose| {
        let runs = document.samples.iter().filter(move |sample| sample.purpose == purpose);
        runs.filter(seen).max_by_key(|s| (s.memory.looks, s.memory.timeline.len()))
    };
    most(Purpose::WarmUp).or_else(|| most(Purpose::Measured))
}

/// The run whose coverage stands for an arm.
pub fn covered(document: &Document, arm: usize) -> Option<&Coverage> {
    let own = document.samples.iter().filter(|sample| sample.arm as usize == arm);
    let first = representative(document, arm).and_then(|sample| sample.memory.coverage.as_ref());
    first.or_else(|| own.filter_map(|sample| sample.memory.coverage.as_ref()).next())
}

/// The section.
pub fn section(document: &Document) -> Element {
    let section = el("section").add(el("h2").text("Memory over time"));
    let runs: Vec<Option<&Sample>> =
        (0..document.arms.len()).map(|arm| representative(document, arm)).collect();
    let moments = || runs.iter().flatten().flat_map(|run| &run.memory.timeline);
    let most = moments().map(|moment| moment.resident_bytes).max().unwrap_or(0);
    let longest = runs.iter().flatten().fold(0.0, |most: f64, run| most.max(length(run)));
    let (bytes, time) = (Axis::bytes(most), Axis::elapsed(longest));
    let panels =
        runs.iter().enumerate().map(|(arm, run)| panel(document, arm, *run, &bytes, &time));
    let told = "One run of each arm: the warm-up if there was one, because it is scanned more \
            often. Light: resident memory. Dark: the part on superpages, known at the dots only. \
            All panels have the same axes. The dashed line is the end of the run.";
    section
        .add(el("div").class("thirds").all(panels))
        .add(el("p").class("small").text(told))
        .add(coverage::figure(document))
}

fn length(run: &Sample) -> f64 {
    let watched = run.watched_seconds();
    let wall = if watched.is_finite() { watched } else { 0.0 };
    run.memory.timeline.iter().map(|m| m.seconds).filter(|s| s.is_finite()).fold(wall, f64::max)
}

fn panel(
    document: &Document,
    arm: usize,
    run: Option<&Sample>,
    bytes: &Axis,
    time: &Axis,
) -> Element {
    const HEIGHT: f64 = 130.0;
    let name = &document.arms[arm].name;
    let caption = el("figcaption").add(key(arm)).text(name);
    let small = |text: String| el("span").class("small").text(text);
    let Some(run) = run else {
        let why = document.samples.iter().filter(|sample| sample.arm as usize == arm);
        let why = why.filter_map(|sample| sample.memory.unknown.clone()).next();
        let why = why.unwrap_or("no run lasted long enough to be observed".to_string());
        return el("figure").add(caption.add(small(format!("unknown: {why}"))));
    };
    let timeline: Vec<Moment> =
        run.memory.timeline.iter().copied().filter(|moment| moment.seconds.is_finite()).collect();
    let looks: Vec<(f64, u64)> = timeline
        .iter()
        .filter_map(|moment| Some((moment.seconds, moment.superpage_bytes?)))
        .collect();
    let purpose = match run.purpose {
        Purpose::WarmUp => "warm-up",
        Purpose::Measured => "measured run, block",
    };
    let peak = format::known(run.memory.peak_resident_bytes, |peak| format::bytes(peak as f64));
    let told = format!("{purpose} {}; peak {peak}, {} scans", run.block + 1, run.memory.looks);
    let resident = timeline.iter().map(|moment| (moment.seconds, moment.resident_bytes));
    let resident = area(resident, bytes, time);
    let huge = area(between_looks(&timeline, &looks).into_iter(), bytes, time);
    let path =
        |d: String, class: &str| el("path").with("d", d).class(format!("{class} {}", colour(arm)));
    let stretched = el("svg").class("inner").with("width", "100%").with("height", HEIGHT);
    let stretched = stretched.with("viewBox", "0 0 1000 1000").with("preserveAspectRatio", "none");
    let stretched = stretched.add(path(resident, "resident")).add(path(huge, "huge"));
    let dots = looks.iter().map(|(seconds, huge)| {
        let y = (1.0 - bytes.place(*huge as f64)) * HEIGHT;
        let dot = el("circle").with("cx", time.x(*seconds)).with("cy", px(y)).with("r", 2.2);
        let told = format!("{}: {}", format::seconds(*seconds), format::bytes(*huge as f64));
        dot.class(format!("look {}", colour(arm))).add(el("title").text(told))
    });
    let end = time.x(run.watched_seconds());
    let title = format!("Memory of {name} over time");
    let about = format!("{told}. Light area: resident memory. Dark area: memory on superpages.");
    let chart = frame::chart(&format!("memory-{arm}"), true, HEIGHT + 22.0, &title, &about)
        .all(bytes.up(HEIGHT))
        .all(time.across(HEIGHT, 4))
        .add(stretched)
        .add(line(&end, 0, &end, HEIGHT).class("end"))
        .all(dots);
    let chart = if looks.is_empty() {
        chart.add(note_at("50%", 14.0, "superpages: not scanned", "middle"))
    } else {
        chart
    };
    el("figure").add(caption.add(small(told))).add(chart)
}

/// Superpage bytes at every moment from the first look to the last: on the straight line between
/// looks, but never more than was resident.
fn between_looks(timeline: &[Moment], looks: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let at = |moment: &Moment| {
        let after = looks.iter().position(|(seconds, _)| *seconds >= moment.seconds)?;
        let (end, to) = looks[after];
        let (begin, from) =
            if end == moment.seconds { (end, to) } else { looks[after.checked_sub(1)?] };
        let share = if end > begin { (moment.seconds - begin) / (end - begin) } else { 1.0 };
        let line = from as f64 + (to as f64 - from as f64) * share;
        Some((moment.seconds, (line as u64).min(moment.resident_bytes)))
    };
    timeline.iter().filter_map(at).collect()
}

/// The area under a line, in thousandths of the plot.
fn area(points: impl Iterator<Item = (f64, u64)>, bytes: &Axis, time: &Axis) -> String {
    let mut path = String::new();
    let mut last = None;
    for (seconds, amount) in points {
        let (x, y) = (time.place(seconds) * 1000.0, (1.0 - bytes.place(amount as f64)) * 1000.0);
        let begin = if last.is_none() { format!("M{} 1000", px(x)) } else { String::new() };
        let _ = write!(path, "{begin}L{} {}", px(x), px(y));
        last = Some(x);
    }
    if let Some(x) = last {
        let _ = write!(path, "L{} 1000z", px(x));
    }
    path
}
