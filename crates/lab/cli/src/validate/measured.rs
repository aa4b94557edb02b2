//! Extracts the figures of live runs: medians of the measured runs, and the time line of the warm-up, which is sampled
//! most often.

use experiment::analysis::{Analysis, analyse};
use experiment::document::Document;
use experiment::procedure::values;
use experiment::sample::{Purpose, Sample};
use experiment::stats::{self, Better, describe};
use experiment::verdict::Verdict;
use lab::validation::{Compared, Pair, Side, Step, Validation};

const SUPERPAGE: f64 = (2 << 20) as f64;

/// Returns the figures of each arm; the first is base pages.
pub fn sides(document: &Document) -> Vec<Side> {
    let analysis = analyse(document);
    (0..document.arms.len()).map(|arm| side(document, &analysis, arm)).collect()
}

/// Returns the ratios of all pairs of arms.
pub fn pairs(document: &Document) -> Vec<Pair> {
    let arms = document.arms.len();
    let settings = document.statistics();
    let times = values(&document.samples, |sample| seconds(document, sample));
    let pair = |than: usize, design: usize| {
        let compared =
            stats::compare(&times, than as u32, design as u32, Better::Lower, &settings).ok()?;
        let interval = compared.interval.map(|interval| [interval.low, interval.high]);
        Some(Pair { than, design, ratio: compared.speedup, interval })
    };
    let all = (0..arms).flat_map(|than| (than + 1..arms).map(move |design| (than, design)));
    all.filter_map(|(than, design)| pair(than, design)).collect()
}

/// Fails if a validation that was read back contradicts its live runs. Ignores intervals and superpages, which an
/// earlier version may have estimated differently. Without live runs there is nothing to check.
pub fn check(validation: &Validation, live: &[Document]) -> Result<(), String> {
    let of = validation.workloads.len();
    if !live.is_empty() && live.len() != of {
        return Err(format!("live: {} comparisons of {of} workloads", live.len()));
    }
    let mut both = validation.workloads.iter().zip(live).enumerate();
    both.try_for_each(|(place, (one, document))| {
        check_one(one, document)
            .map_err(|why| format!("workloads[{place}].{why}, by live[{place}]"))
    })
}

fn check_one(one: &Compared, document: &Document) -> Result<(), String> {
    if document.command.iter().ne(&one.command) {
        return Err("command: another one".to_string());
    }
    let (designs, arms) = (one.designs.len(), document.arms.len());
    if designs != arms {
        return Err(format!("designs: {designs}, not {arms}"));
    }
    if one.runs != runs(document) {
        return Err(format!("runs: {}, not {}", one.runs, runs(document)));
    }
    for (place, (row, side)) in one.designs.iter().zip(sides(document)).enumerate() {
        let figures = |side: &Side| {
            [
                ("seconds", Some(side.seconds)),
                ("timed_seconds", side.timed_seconds),
                ("faults", side.faults),
                ("kernel_seconds", side.kernel_seconds),
                ("beside_seconds", side.beside_seconds),
            ]
        };
        for ((name, said), (_, made)) in figures(&row.live).into_iter().zip(figures(&side)) {
            if !is_same(said, made) {
                let figure = |one: Option<f64>| one.map_or("null".to_string(), |it| it.to_string());
                let (said, made) = (figure(said), figure(made));
                return Err(format!("designs[{place}].live.{name}: {said}, not {made}"));
            }
        }
    }
    let made = pairs(document);
    if one.pairs.len() != made.len() {
        return Err(format!("pairs: {}, not {}", one.pairs.len(), made.len()));
    }
    for (place, (said, made)) in one.pairs.iter().zip(made).enumerate() {
        let is_other = (said.than, said.design) != (made.than, made.design);
        if is_other || !is_same(Some(said.ratio), Some(made.ratio)) {
            return Err(format!("pairs[{place}].ratio: {}, not {}", said.ratio, made.ratio));
        }
    }
    Ok(())
}

/// Returns whether two values are equal up to rounding from the order of summation.
fn is_same(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        (a, b) => a == b,
    }
}

/// Returns the minimum number of measured runs per arm.
pub fn runs(document: &Document) -> u32 {
    let runs = analyse(document).arms.into_iter().map(|arm| arm.runs);
    runs.min().unwrap_or(0)
}

/// Returns notes on an arm's runs.
pub fn notes(document: &Document, arm: usize) -> Vec<String> {
    let mut notes: Vec<String> = made(document, arm).into_iter().collect();
    let analysis = analyse(document);
    let name = &document.arms[arm].name;
    let judged = analysis.judgements.iter().find(|one| one.arm == *name && one.is_primary);
    if let Some(Verdict::DidNotTakeEffect { why }) = judged.map(|one| &one.verdict) {
        notes.push(format!("not all of it had superpages: {why}"));
    }
    notes
}

/// Says how many superpages `superpage` itself made, how, and with what delay.
fn made(document: &Document, arm: usize) -> Option<String> {
    let reports = || measured(document, arm).filter_map(|sample| sample.design.as_ref());
    let of = |value: fn(&live::Report) -> Option<f64>| median(reports().filter_map(value));
    let made = of(|report| Some(report.made as f64))?;
    let milliseconds = |seconds: f64| format!("{:.0} ms", seconds * 1e3);
    let late = of(|report| Some(report.delay?.median_seconds))
        .zip(of(|report| Some(report.delay?.p95_seconds)))
        .map_or(String::new(), |(median, p95)| {
            let (median, p95) = (milliseconds(median), milliseconds(p95));
            format!(", half of them within {median} after they qualified, 95 % within {p95}")
        });
    let how = match of(|report| Some(report.in_place as f64)) {
        Some(in_place) if in_place > 0.0 => format!("made, {in_place:.0} of them in place"),
        _ => "made by copying".to_string(),
    };
    Some(format!("live: {made:.0} superpages {how}{late}"))
}

/// Returns the seconds from the first allocation to the end of the timed phase; of a program, the CPU time of the run.
fn seconds(document: &Document, sample: &Sample) -> Option<f64> {
    if document.metric.is_none() {
        return Some(sample.user_seconds + sample.system_seconds);
    }
    let set_up = sample.metric_at(1).unwrap_or(0.0);
    Some(sample.metric_at(0)? + set_up)
}

fn side(document: &Document, analysis: &Analysis, arm: usize) -> Side {
    let summary = &analysis.arms[arm];
    let of = |value: fn(&Sample) -> Option<f64>| median(measured(document, arm).filter_map(value));
    let runs = || document.samples.iter().filter(|sample| sample.arm as usize == arm);
    let seen = of(most).or_else(|| median(runs().filter_map(most)));
    Side {
        seconds: median(measured(document, arm).filter_map(|sample| seconds(document, sample)))
            .unwrap_or(0.0),
        timed_seconds: of(|sample| sample.metric_at(0)),
        faults: summary.minor_faults,
        kernel_seconds: summary.system_seconds,
        beside_seconds: of(|sample| Some(sample.design.as_ref()?.making_seconds)),
        superpages: seen,
        steps: runs()
            .find(|sample| sample.purpose == Purpose::WarmUp)
            .map_or(Vec::new(), |sample| steps(sample, seconds(document, sample))),
    }
}

fn measured(document: &Document, arm: usize) -> impl Iterator<Item = &Sample> {
    let is =
        move |sample: &&Sample| sample.purpose == Purpose::Measured && sample.arm as usize == arm;
    document.samples.iter().filter(is)
}

/// Returns the maximum number of superpages that were observed; `None` without samples.
fn most(sample: &Sample) -> Option<f64> {
    let looked = sample.memory.timeline.iter().filter_map(|moment| moment.superpage_bytes).max();
    let at_peak = sample.memory.coverage.as_ref().map(|found| found.superpage_bytes().bytes());
    let seen = looked.max(at_peak).map(|bytes| bytes as f64 / SUPERPAGE);
    // `superpage` has counted the superpages that it made itself.
    let made = sample.design.as_ref().map(|report| report.made as f64);
    seen.into_iter().chain(made).reduce(f64::max)
}

/// Returns the number of superpages over time, until the end of the timed phase.
fn steps(sample: &Sample, whole: Option<f64>) -> Vec<Step> {
    let Some(whole) = whole.filter(|seconds| *seconds > 0.0) else { return Vec::new() };
    let looked = sample.memory.timeline.iter().filter_map(|moment| {
        let superpages = moment.superpage_bytes? as f64 / SUPERPAGE;
        Some(Step { at: moment.seconds / whole, superpages })
    });
    looked.filter(|step| step.at <= 1.0).collect()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    describe::median(&mut values.collect::<Vec<_>>())
}
