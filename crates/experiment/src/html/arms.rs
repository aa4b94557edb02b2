//! Tables of what the arms did: summaries, and the statistics behind each verdict.

use crate::analysis::{Analysis, Summary};
use crate::document::Document;
use crate::measure::Measure;
use crate::stats::Interval;
use report::format::{self, UNKNOWN, known};
use report::markup::{Element, el};
use report::tables::{count, table};

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

/// One column per arm.
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
    let rows = analysis.judgements.iter().filter_map(|judgement| {
        let c = judgement.comparison.as_ref()?;
        let randomization = c.randomization();
        let value =
            if judgement.quantity == Measure::Wall { format::seconds } else { format::figure };
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
