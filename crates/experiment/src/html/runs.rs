//! All runs as a table, the settings they were made with, and how to draw this page again.

use crate::document::Document;
use crate::sample::{Purpose, Sample};
use crate::stats::Better;
use report::format::{self, known};
use report::markup::{Element, el};
use report::tables::{count, pairs, table};

/// Settings, seed, judging.
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

/// Every run, in the order they were made.
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

/// Where this comes from, and how to draw it again.
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
