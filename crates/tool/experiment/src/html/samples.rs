//! Draws every run as a dot: in one row per arm, and again in run order.

use report::axis::{Axis, block, line, note_at, px};
use report::format::known;
use report::marks::{colour, key, mark};
use report::markup::{Element, el};
use report::scale::{ends, percent};
use report::swarm::swarm;
use report::tables::{count, pairs, table};
use report::{format, frame};

use crate::analysis::Analysis;
use crate::document::Document;
use crate::sample::{Purpose, Sample};
use crate::stats::{Better, describe};
use crate::verdict::Verdict;

/// One quantity of the runs.
pub struct Quantity<'a> {
    /// Identifier; unique on the page.
    pub id: &'a str,
    /// Display name.
    pub name: &'a str,
    /// Formats a value.
    pub words: &'a dyn Fn(f64) -> String,
    /// Unit of the values, if not seconds.
    pub unit: Option<&'a str>,
    /// Returns the value of a run.
    pub of: &'a dyn Fn(&Sample) -> Option<f64>,
}

/// A run that has a value.
pub struct Dot<'a> {
    /// The run.
    pub sample: &'a Sample,
    /// Value of the run.
    pub value: f64,
    /// Index in run order, from 0.
    pub turn: usize,
}

impl Dot<'_> {
    fn is_measured(&self) -> bool {
        self.sample.purpose == Purpose::Measured
    }
}

/// Data of both panels.
pub struct View<'a> {
    /// The document.
    pub document: &'a Document,
    /// Analysis of the document.
    pub analysis: &'a Analysis,
    /// The quantity.
    pub quantity: &'a Quantity<'a>,
    /// The runs that have a value.
    pub dots: Vec<Dot<'a>>,
    /// Axis of the values.
    pub axis: Axis,
}

/// Draws both panels.
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
    let panels = el("div").class("panels").add(strips(&view)).add(panel(&view));
    section.add(panels).add(notes(&view))
}

impl View<'_> {
    /// Returns the median of an arm's measured runs, and their number.
    pub fn median(&self, arm: usize) -> (Option<f64>, usize) {
        let own = self.dots.iter().filter(|dot| dot.sample.arm as usize == arm);
        let mut values: Vec<f64> =
            own.filter(|dot| dot.is_measured()).map(|dot| dot.value).collect();
        (describe::median(&mut values), values.len())
    }

    /// Draws a dot, with its numbers as a tooltip.
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

/// Returns an axis for the measured runs. It includes warm-ups that are not far away.
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

/// Returns whether the arm's verdict is that its design did not take effect.
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

/// Formats the key, and what the reader must know to read the dots.
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

// Every run in run order: a drift shows as a slope that all arms share. Blocks are stripes.

/// Draws the panel.
pub fn panel(view: &View) -> Element {
    let View { document, quantity, dots, axis, .. } = view;
    const HEIGHT: f64 = 230.0;
    let runs = document.samples.len().max(1) as f64;
    let x = |turn: f64| percent(turn / runs);
    let mut marks = Vec::new();
    let mut from = 0;
    let same = |a: &Sample, b: &Sample| a.block == b.block && a.purpose == b.purpose;
    let groups: Vec<&[Sample]> = document.samples.chunk_by(same).collect();
    let every = groups.len().div_ceil(9).max(1);
    for group in &groups {
        let width = percent(group.len() as f64 / runs);
        let warm = group[0].purpose == Purpose::WarmUp;
        if warm || group[0].block % 2 == 0 {
            let class = if warm { "ground-warm" } else { "ground-block" };
            marks.push(block(x(from as f64), 0, width, HEIGHT).class(class));
        }
        let middle = x(from as f64 + group.len() as f64 / 2.0);
        if warm && group[0].block == 0 {
            marks.push(note_at("0", HEIGHT + 31.0, "warm-up", "start"));
        } else if !warm && (group[0].block as usize).is_multiple_of(every) {
            let name = format!("{}", group[0].block + 1);
            marks.push(note_at(&middle, HEIGHT + 15.0, &name, "middle"));
        }
        from += group.len();
    }
    marks.extend(axis.up(HEIGHT));
    for arm in 0..document.arms.len() {
        if let (Some(median), _) = view.median(arm) {
            let y = px((1.0 - axis.place(median)) * HEIGHT);
            let class = format!("level {}", colour(arm));
            marks.push(line("0", &y, "100%", &y).class(class));
        }
    }
    for dot in dots {
        let y = (1.0 - axis.place(dot.value)) * HEIGHT;
        let name = &document.arms[dot.sample.arm as usize].name;
        marks.push(view.draw(dot, &x(dot.turn as f64 + 0.5), y, name));
    }
    marks.push(note_at("100%", HEIGHT + 31.0, "blocks, in the order they ran →", "end"));
    let title = format!("Every run in run order: {}", quantity.name);
    let about = "From left to right in the order the runs were made; stripes are blocks. A slope \
                 that all arms share is drift of the machine.";
    let chart = frame::chart(&format!("{}-order", quantity.id), true, HEIGHT + 36.0, &title, about);
    frame::figure(format!("In run order ({})", axis.note()), chart.all(marks))
}

// All runs as a table, their settings, and how to draw this page again.

/// Formats the settings, the seed and the thresholds of the verdicts.
pub fn settings(document: &Document) -> Element {
    let (settings, judging) = (&document.settings, &document.judging);
    let rule = &settings.rule;
    let rows = vec![
        ("seed", settings.seed.to_string()),
        ("warm-up runs of each arm", settings.warm_ups.to_string()),
        ("minimum runs of each arm", rule.min_runs.to_string()),
        ("maximum runs of each arm", rule.max_runs.to_string()),
        ("stop when every ratio is known to within", format::percent(rule.within)),
        ("at a confidence of", format::percent(rule.confidence.level())),
        (
            "time limit for measured runs",
            settings.max_seconds.map_or("no limit".to_string(), format::seconds),
        ),
        ("called the same within", format::percent(judging.same_within)),
        ("called the same at most within", format::percent(judging.same_at_most)),
        ("confidence of intervals", format::percent(judging.confidence.level())),
        ("interim analyses of the verdicts", format::count(f64::from(document.looks.made))),
        ("minimum share on superpages where promised", format::percent(judging.least_coverage)),
    ];
    let tables = el("div").class("tables").add(pairs("Order, stopping, judging", rows));
    let metrics = document.metrics().map(|metric| {
        let better = match metric.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        };
        let asked = if document.metric_is_primary { "yes" } else { "no, wall time is" };
        let unit = metric.unit.clone().unwrap_or("not given".to_string());
        pairs(
            "The program's own metric",
            vec![
                ("name", metric.name.clone()),
                ("unit", unit),
                ("found by", metric.regex.clone()),
                ("better is", better.to_string()),
                ("the primary metric", asked.to_string()),
            ],
        )
    });
    let tables = tables.all(metrics);
    el("section").add(el("h2").text("Settings")).add(tables)
}

type Column = (&'static str, fn(&Sample) -> String);

const COLUMNS: [Column; 25] = [
    ("block", |s| (u64::from(s.block) + 1).to_string()),
    ("slot", |s| (u64::from(s.slot) + 1).to_string()),
    ("wall", |s| format::seconds(s.wall_seconds)),
    ("user", |s| format::seconds(s.user_seconds)),
    ("kernel", |s| format::seconds(s.system_seconds)),
    ("figure", |s| known(s.metric, format::figure)),
    ("minor faults", |s| format::count(s.minor_faults as f64)),
    ("major faults", |s| format::count(s.major_faults as f64)),
    ("peak", |s| known(s.peak_bytes(), |bytes| format::bytes(bytes as f64))),
    ("on superpages", |s| {
        known(s.memory.coverage.as_ref().and_then(|c| c.ratio()), format::percent)
    }),
    ("over time", |s| known(s.memory.over_time.mean_coverage, format::percent)),
    ("at the end", |s| known(s.memory.over_time.end_coverage(), format::percent)),
    ("of eligible", |s| {
        known(s.memory.coverage.as_ref().and_then(|c| c.anon_ratio()), format::percent)
    }),
    ("all zero", |s| known(s.memory.zero_filled_bytes, |bytes| format::bytes(bytes as f64))),
    ("looks", |s| s.memory.looks.to_string()),
    ("watching", |s| format::seconds(s.memory.watch_seconds)),
    ("THP fallbacks", |s| count(s.thp_fault_fallbacks)),
    ("compaction stalls", |s| count(s.compaction_stalls)),
    ("reclaim stalls", |s| count(s.reclaim_stalls)),
    ("free superpages before", |s| {
        known(s.free_superpage_bytes_before, |bytes| format::bytes(bytes as f64))
    }),
    ("after", |s| known(s.free_superpage_bytes_after, |bytes| format::bytes(bytes as f64))),
    ("warmed before", |s| format::bytes(s.warmed_bytes as f64)),
    ("padding", |s| format!("{} B", s.environment_padding)),
    ("left behind", |s| s.stragglers.to_string()),
    ("ended", |s| match (s.exit_code, s.signal) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format::UNKNOWN.to_string(),
    }),
];

/// Formats every run, in the order of execution.
pub fn all(document: &Document) -> Element {
    let mut head = ["run", "arm", "purpose"].map(String::from).to_vec();
    head.extend(COLUMNS.iter().map(|(name, _)| name.to_string()));
    let further = document.more_metrics.iter().map(|metric| format::name(&metric.name, 40));
    head.extend(further);
    head.push("unknown because".to_string());
    let rows = document.samples.iter().enumerate().map(|(index, sample)| {
        let purpose = match sample.purpose {
            Purpose::WarmUp => "warm-up",
            Purpose::Measured => "measured",
        };
        let arm = &document.arms[sample.arm as usize].name;
        let mut row = vec![(index + 1).to_string(), format::name(arm, 40), purpose.to_string()];
        row.extend(COLUMNS.iter().map(|(_, of)| of(sample)));
        let further = 1..=document.more_metrics.len();
        row.extend(further.map(|index| known(sample.metric_at(index), format::figure)));
        row.push(sample.memory.unknown.clone().unwrap_or_default());
        row
    });
    let told = format!("All {} runs, warm-ups included", document.samples.len());
    let table = table("Every run, in the order they were made", true, head, rows.collect());
    let details = el("details").add(el("summary").text(&told)).add(table);
    el("section").add(el("h2").text("All runs in numbers")).add(details)
}

/// Says where the page comes from, and how to draw it again.
pub fn footer(document: &Document) -> Element {
    let how = "superpage compare --from FILE.json --html PAGE.html";
    let told = format!(
        "Drawn from a document of schema {} by superpage {}; began {}. Keep the document (--json -o \
         FILE.json): it holds every run, and this command draws the same page from it:",
        document.schema,
        document.superpage_version,
        format::utc(document.began_unix_seconds)
    );
    el("footer").add(el("p").text(told)).add(el("pre").text(how))
}
