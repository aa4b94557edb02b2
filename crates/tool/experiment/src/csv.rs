//! Formats a comparison's runs as CSV, one line per run, and an evaluation's arms, one line per arm. Base units;
//! unknown is empty.

use std::fmt::Write;

use report::csv::{number, quoted};

use crate::document::Document;
use crate::evaluation::Row;
use crate::sample::Sample;

type Column = (&'static str, fn(&Sample) -> Option<f64>);

const COLUMNS: [Column; 18] = [
    ("block", |s| Some(f64::from(s.block))),
    ("slot", |s| Some(f64::from(s.slot))),
    ("wall_seconds", |s| Some(s.wall_seconds)),
    ("user_seconds", |s| Some(s.user_seconds)),
    ("system_seconds", |s| Some(s.system_seconds)),
    ("minor_faults", |s| Some(s.minor_faults as f64)),
    ("major_faults", |s| Some(s.major_faults as f64)),
    ("peak_bytes", |s| s.peak_bytes().map(|bytes| bytes as f64)),
    ("coverage", |s| s.memory.coverage.as_ref()?.ratio()),
    ("mean_coverage", |s| s.memory.over_time.mean_coverage),
    ("end_coverage", |s| s.memory.over_time.end_coverage()),
    ("eligible_coverage", |s| s.memory.coverage.as_ref()?.anon_ratio()),
    ("zero_filled_bytes", |s| s.memory.zero_filled_bytes.map(|bytes| bytes as f64)),
    ("thp_fault_fallbacks", |s| s.thp_fault_fallbacks.map(|count| count as f64)),
    ("compaction_stalls", |s| s.compaction_stalls.map(|count| count as f64)),
    ("free_superpage_bytes_before", |s| s.free_superpage_bytes_before.map(|bytes| bytes as f64)),
    ("metric", |s| s.metric),
    ("exit_code", |s| s.exit_code.map(f64::from)),
];

/// Formats all runs, warm-ups included.
pub fn samples(document: &Document) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let further = 1..=document.more_metrics.len();
    let more: String = further.clone().map(|index| format!(",metric_{}", index + 1)).collect();
    let mut text = format!("arm,purpose,{}{more}\n", names.join(","));
    for sample in &document.samples {
        let arm = quoted(&document.arms[sample.arm as usize].name);
        let purpose = match sample.purpose {
            crate::sample::Purpose::WarmUp => "warm-up",
            crate::sample::Purpose::Measured => "measured",
        };
        let _ = write!(text, "{arm},{purpose}");
        let further = further.clone().map(|index| sample.metric_at(index));
        numbers(&mut text, COLUMNS.iter().map(|(_, of)| of(sample)).chain(further));
    }
    text
}

/// Formats one line per arm except the reference.
pub fn rows(rows: &[Row]) -> String {
    let columns = "application,arm,quantity,verdict,ratio,ratio_low,ratio_high,p99_ratio,peak_bytes,more_bytes,coverage,runs,host";
    let mut text = format!("{columns}\n");
    for row in rows {
        let names = [row.application.as_str(), &row.arm, row.quantity.name()];
        let verdict = row.verdict.word();
        let names = names.map(quoted).join(",");
        let _ = write!(text, "{names},{verdict}");
        let ratio = row.verdict.ratio();
        let interval = ratio.and_then(|(_, interval)| interval);
        let p99 = row.p99.as_ref().and_then(|verdict| verdict.ratio());
        let figures = [
            ratio.map(|(ratio, _)| ratio),
            interval.map(|interval| interval.low),
            interval.map(|interval| interval.high),
            p99.map(|(ratio, _)| ratio),
            row.peak_bytes,
            row.more_bytes,
            row.coverage,
            Some(f64::from(row.runs)),
        ];
        numbers(&mut text, figures.into_iter());
        text.pop();
        let host = row.host.as_deref().map_or(String::new(), quoted);
        let _ = writeln!(text, ",{host}");
    }
    text
}

fn numbers(text: &mut String, values: impl Iterator<Item = Option<f64>>) {
    for value in values {
        let _ = write!(text, ",{}", number(value));
    }
    text.push('\n');
}
