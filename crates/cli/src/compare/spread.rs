//! Gorman's rule for STREAM: where the rates of equal runs differ by a standard deviation over 5 %, the arrays meet in
//! the caches, and are to be shifted by a further cache line. Pure.

use experiment::document::Document;
use experiment::sample::{Purpose, Sample};
use experiment::stats::describe;
use report::format::percent;
use units::ByteSize;

/// Over this share of the mean, equal runs differ too much.
const MAX_DEVIATION: f64 = 0.05;
/// A cache line.
const LINE: u64 = 64;
/// Offsets lie below it (`workload stream --help`).
const OFFSET_LIMIT: u64 = 1 << 20;

/// What is to be done about rates of STREAM that differ too much from run to run.
pub fn note(document: &Document) -> Option<String> {
    let words: Vec<&str> = document.command.iter().map(String::as_str).collect();
    if !matches!(words[..], ["superpage", "workload", "stream", ..]) {
        return None;
    }
    let (arm, metric, deviation) = widest(document)?;
    if deviation <= MAX_DEVIATION {
        return None;
    }
    let given = words.iter().position(|word| *word == "--offset").and_then(|at| words.get(at + 1));
    let offset = match given {
        Some(text) => text.parse::<ByteSize>().ok()?.bytes(),
        None => workload::stream::OFFSET,
    };
    let next = ByteSize((offset + LINE) % OFFSET_LIMIT).to_exact();
    Some(format!(
        "{arm}: {metric} has a standard deviation of {} (over {}): shift the arrays by a cache line with \
         --offset {next} and repeat",
        percent(deviation),
        percent(MAX_DEVIATION)
    ))
}

/// The arm and the figure whose measured runs differ most, by how much of their mean.
fn widest(document: &Document) -> Option<(&str, &str, f64)> {
    let arms = document.arms.iter().enumerate();
    let deviations = arms.flat_map(|(arm, of)| {
        document.metrics().enumerate().filter_map(move |(index, metric)| {
            let is_measured =
                |one: &&Sample| one.arm == arm as u32 && one.purpose == Purpose::Measured;
            let runs = document.samples.iter().filter(is_measured);
            let values: Vec<f64> = runs.filter_map(|one| one.metric_at(index)).collect();
            let deviation = describe::variance(&values).sqrt() / describe::mean(&values);
            let known = values.len() > 1 && deviation.is_finite();
            known.then_some((of.name.as_str(), metric.name.as_str(), deviation))
        })
    });
    deviations.max_by(|a, b| a.2.total_cmp(&b.2))
}
