//! A comparison's runs as CSV: one line per run, base units, empty where unknown.

use std::fmt::Write;

use crate::document::Document;
use crate::sample::Sample;

type Column = (&'static str, fn(&Sample) -> Option<f64>);

const COLUMNS: [Column; 16] = [
    ("block", |s| Some(f64::from(s.block))),
    ("slot", |s| Some(f64::from(s.slot))),
    ("wall_seconds", |s| Some(s.wall_seconds)),
    ("user_seconds", |s| Some(s.user_seconds)),
    ("system_seconds", |s| Some(s.system_seconds)),
    ("minor_faults", |s| Some(s.minor_faults as f64)),
    ("major_faults", |s| Some(s.major_faults as f64)),
    ("peak_bytes", |s| s.peak_bytes().map(|bytes| bytes as f64)),
    ("coverage", |s| s.memory.coverage.as_ref()?.ratio()),
    ("eligible_coverage", |s| s.memory.coverage.as_ref()?.anon_ratio()),
    ("zero_filled_bytes", |s| s.memory.zero_filled_bytes.map(|bytes| bytes as f64)),
    ("thp_fault_fallbacks", |s| s.thp_fault_fallbacks.map(|count| count as f64)),
    ("compaction_stalls", |s| s.compaction_stalls.map(|count| count as f64)),
    ("free_superpage_bytes_before", |s| s.free_superpage_bytes_before.map(|bytes| bytes as f64)),
    ("metric", |s| s.metric),
    ("exit_code", |s| s.exit_code.map(f64::from)),
];

/// All runs, warm-ups included.
pub fn samples(document: &Document) -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let further = 1..=document.more_metrics.len();
    let more: String = further.clone().map(|index| format!(",metric_{}", index + 1)).collect();
    let mut text = format!("arm,purpose,{}{more}\n", names.join(","));
    for sample in &document.samples {
        let arm = document.arms[sample.arm as usize].name.replace('"', "\"\"");
        let purpose = match sample.purpose {
            crate::sample::Purpose::WarmUp => "warm-up",
            crate::sample::Purpose::Measured => "measured",
        };
        let _ = write!(text, "\"{arm}\",{purpose}");
        let further = further.clone().map(|index| sample.metric_at(index));
        for value in COLUMNS.iter().map(|(_, of)| of(sample)).chain(further) {
            match value {
                Some(value) => {
                    let _ = write!(text, ",{value}");
                }
                None => text.push(','),
            }
        }
        text.push('\n');
    }
    text
}
