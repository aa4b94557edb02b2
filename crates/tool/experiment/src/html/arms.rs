//! Tables of the arms' results: summaries, and the statistics behind each verdict.

use std::fmt::Write;

use host::coverage::Coverage;
use report::axis::{Axis, block, line, note_at, px};
use report::format::{UNKNOWN, known};
use report::marks::{colour, key, swatch};
use report::markup::{Element, el};
use report::scale::percent;
use report::tables::{count, table};
use report::{format, frame};

use crate::analysis::{Analysis, Summary};
use crate::document::Document;
use crate::measure::Measure;
use crate::sample::{Purpose, Sample};
use crate::stats::Interval;
use crate::watch::Moment;

type Field = (&'static str, fn(&Summary) -> String);

const FIELDS: [Field; 18] = [
    ("measured runs", |s| s.runs.to_string()),
    ("runs that failed", |s| s.failed_runs.to_string()),
    ("wall time", |s| known(s.wall_seconds, format::seconds)),
    ("time in user mode", |s| known(s.user_seconds, format::seconds)),
    ("time in the kernel", |s| known(s.system_seconds, format::seconds)),
    ("minor faults", |s| known(s.minor_faults, format::count)),
    ("major faults", |s| known(s.major_faults, format::count)),
    ("peak memory", |s| known(s.peak_bytes, format::bytes)),
    ("share of memory on superpages", |s| coverage(s, s.coverage)),
    ("the same over time", |s| known(s.mean_coverage, format::percent)),
    ("the same at the end", |s| known(s.end_coverage, format::percent)),
    ("share of eligible memory on superpages", |s| coverage(s, s.eligible_coverage)),
    ("zero-filled superpage memory", |s| known(s.zero_filled_bytes, format::bytes)),
    ("THP faults that fell back, whole machine, total", |s| count(s.thp_fault_fallbacks)),
    ("compaction stalls, whole machine, total", |s| count(s.compaction_stalls)),
    ("share of wall time spent observing", |s| known(s.watch_share, format::percent)),
    ("longest scan of its memory", |s| known(s.longest_look_seconds, format::seconds)),
    ("coverage observed in", |s| match (s.coverage, s.coverage_from_warm_up) {
        (None, _) => UNKNOWN.to_string(),
        (_, true) => "warm-up only".to_string(),
        (_, false) => "measured runs".to_string(),
    }),
];

fn coverage(summary: &Summary, share: Option<f64>) -> String {
    let mark = if summary.coverage_from_warm_up { " *" } else { "" };
    known(share, |share| format!("{}{mark}", format::percent(share)))
}

/// Formats the summaries, one column per arm.
pub fn summaries(document: &Document, analysis: &Analysis) -> Element {
    let mut head = vec!["median of measured runs".to_string()];
    head.extend(analysis.arms.iter().map(|arm| format::name(&arm.name, 28)));
    let row = |name: &str, of: &dyn Fn(&Summary) -> String| {
        let mut row = vec![name.to_string()];
        row.extend(analysis.arms.iter().map(of));
        row
    };
    let mut rows: Vec<Vec<String>> = FIELDS.iter().map(|(name, of)| row(name, of)).collect();
    for (index, metric) in document.metrics().enumerate() {
        let unit = metric.unit.as_ref().map_or(String::new(), |unit| format!(", {unit}"));
        let name = format!("{}{unit}", metric.name);
        let place = index + if document.metric_is_primary { 2 } else { 3 };
        rows.insert(place, row(&name, &|summary| known(summary.metric_at(index), format::figure)));
    }
    let section = el("section").add(el("h2").text("Summary of the arms"));
    let section = section.add(table("Medians of each arm", true, head, rows));
    let section = match analysis.arms.iter().any(|arm| arm.coverage_from_warm_up) {
        false => section,
        true => section.add(el("p").class("small").text(
            "* observed in the warm-up: reading it in a measured run would have stalled the \
             program.",
        )),
    };
    match statistics(analysis) {
        None => section,
        Some(table) => section.add(table),
    }
}

fn statistics(analysis: &Analysis) -> Option<Element> {
    let head = [
        "arm",
        "quantity",
        "blocks",
        "dropped",
        "reference",
        "arm's median",
        "ratio",
        "interval",
        "Student's t",
        "ranks in blocks",
        "Hodges–Lehmann",
        "sign-flip p",
    ];
    let span = |i: Interval| format!("{} – {}", format::ratio(i.low), format::ratio(i.high));
    let judged = analysis.judgements.iter().chain(&analysis.cpu_time);
    let rows = judged.filter_map(|judgement| {
        let c = judgement.comparison.as_ref()?;
        let randomization = c.randomization();
        let value = match judgement.quantity {
            Measure::Wall | Measure::Cpu => format::seconds,
            Measure::Metric(_) => format::figure,
        };
        Some(vec![
            format::name(&judgement.arm, 28),
            judgement.quantity.to_string(),
            c.blocks.to_string(),
            c.dropped_blocks.to_string(),
            value(c.reference_median),
            value(c.arm_median),
            format::ratio(c.speedup),
            known(c.interval, span),
            known(c.parts, |parts| span(parts.student)),
            known(c.parts.and_then(|parts| parts.ranked), span),
            format::ratio(c.hodges_lehmann()),
            format!(
                "{}{}",
                format::digits(randomization.p, 3),
                match randomization.exact {
                    true => "",
                    false => " (drawn)",
                }
            ),
        ])
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return None;
    }
    let told = "The interval is the intersection of the next two (the second needs a few blocks), within \
                the spread of the runs and widened to hold the ratio. An arm whose design did not take \
                effect has figures here, but they measure something else.";
    let head = head.map(String::from).to_vec();
    let details = el("details").add(el("summary").text("The statistics behind the verdicts"));
    let table = table("Each arm against the reference", true, head, rows);
    Some(details.add(table).add(el("p").class("small").text(told)))
}

// The page sizes of the memory at its peak: one bar per arm, stacked by kind.

/// A kind of memory: its class, its name, its bytes. Superpages come first and are solid; base pages are hatched, so
/// that they can be told apart without colour.
type Kind = (&'static str, &'static str, fn(&Coverage) -> u64);

const KINDS: [Kind; 7] = [
    ("hugetlb", "hugetlb", |c| c.hugetlb().bytes()),
    ("thp", "anonymous, THP", |c| c.anon_thp.bytes()),
    ("pmd", "shared memory, superpages", |c| c.shmem_pmd.bytes()),
    ("filepmd", "files, superpages", |c| c.file_pmd.bytes()),
    ("anon", "anonymous, base pages", |c| c.anon_base.bytes()),
    ("shmem", "shared memory, base pages", |c| c.shmem_base.bytes()),
    ("file", "files, base pages", |c| c.file_base.bytes()),
];

/// Draws the bars with their key.
pub fn figure(document: &Document) -> Element {
    let all: Vec<Option<&Coverage>> =
        (0..document.arms.len()).map(|arm| covered(document, arm)).collect();
    let most = all.iter().flatten().map(|coverage| coverage.resident().bytes()).max().unwrap_or(0);
    let axis = Axis::bytes(most);
    let mut parts = Vec::new();
    let mut top = 0.0;
    for (arm, coverage) in document.arms.iter().zip(&all) {
        let told = match coverage {
            None => "unknown: no scan near the peak".to_string(),
            Some(coverage) => told(coverage),
        };
        let name = el("tspan").class("name").text(format::name(&arm.name, 12));
        let label = el("text").with("x", 0).with("y", px(top + 14.0));
        let label = label.add(el("title").text(&arm.name)).add(name);
        parts.push(label.add(el("tspan").with("dx", 8).text(told)));
        let mut from = 0u64;
        for (class, name, bytes) in KINDS {
            let Some(bytes) = coverage.map(bytes).filter(|bytes| *bytes > 0) else { continue };
            let start = axis.place(from as f64);
            from = from.saturating_add(bytes);
            let width = percent((axis.place(from as f64) - start).max(0.0));
            let bar = block(percent(start), px(top + 21.0), width, 22);
            let told = format!("{}, {name}: {}", arm.name, format::bytes(bytes as f64));
            parts.push(bar.class(format!("kind {class}")).add(el("title").text(told)));
        }
        top += 54.0;
    }
    let present = |kind: &&Kind| all.iter().flatten().any(|coverage| kind.2(coverage) > 0);
    let keys = KINDS
        .iter()
        .filter(present)
        .map(|(class, name, _)| el("span").class("item").add(swatch(class)).text(name));
    let title = "On which pages the memory lay at its peak";
    let about = "One bar per arm; solid parts are superpages, hatched parts base pages.";
    let chart = frame::chart("coverage", false, top + 22.0, title, about);
    let chart = chart.all(axis.across(top, 5)).all(parts);
    let caption = el("figcaption").text(title);
    el("figure").add(caption).add(chart).add(el("p").class("keys").all(keys))
}

fn told(coverage: &Coverage) -> String {
    let resident = format::bytes(coverage.resident().bytes() as f64);
    let share = known(coverage.ratio(), format::percent);
    format!("{share} of {resident} on superpages")
}

// Memory over time, and its page sizes at its peak: one run per arm, watched closely.

/// Returns the run that represents an arm: the warm-up with the most looks, else the measured run with the most.
pub fn representative(document: &Document, arm: usize) -> Option<&Sample> {
    let seen = |sample: &&Sample| sample.arm as usize == arm && !sample.memory.timeline.is_empty();
    let most = |purpose| {
        let runs = document.samples.iter().filter(move |sample| sample.purpose == purpose);
        runs.filter(seen).max_by_key(|s| (s.memory.looks, s.memory.timeline.len()))
    };
    most(Purpose::WarmUp).or_else(|| most(Purpose::Measured))
}

/// Returns the coverage that represents an arm.
pub fn covered(document: &Document, arm: usize) -> Option<&Coverage> {
    let own = document.samples.iter().filter(|sample| sample.arm as usize == arm);
    let first = representative(document, arm).and_then(|sample| sample.memory.coverage.as_ref());
    first.or_else(|| own.filter_map(|sample| sample.memory.coverage.as_ref()).next())
}

/// Draws the section.
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
        .add(figure(document))
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

/// Returns the superpage bytes at every moment from the first look to the last: interpolated linearly between looks,
/// but never more than was resident.
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

/// Returns the SVG path of the area under a line, in thousandths of the plot.
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
