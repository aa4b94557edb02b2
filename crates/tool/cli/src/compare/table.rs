//! Formats a comparison as text. Pure: the same document gives the same bytes.

use experiment::measure::Measure;
use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use experiment::analysis::{Analysis, Judgement, Summary};
use experiment::arrays;
use experiment::document::Document;
use experiment::procedure::Stopped;
use experiment::sample::{Purpose, Sample};
use experiment::service::words as service;
use experiment::supply::Supplied;
use experiment::verdict::{Terms, Verdict, floor_text};
use launch::{Note, Rest};
use report::format::{self as words, percent};

use super::open::{self, Ended, Made, Open};
use crate::pool::show::table;
use crate::run::peak_in_words;

/// Formats the head line, the table of arms, the verdicts and the notes.
pub fn text(document: &Document, analysis: &Analysis) -> String {
    let mut text = head(document);
    text.push('\n');
    text += &arms(document, analysis);
    text.push('\n');
    text += &verdicts(document, analysis);
    for note in notes(document, analysis) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

pub fn head(document: &Document) -> String {
    let command = words::command(&document.command);
    let machine = document.machine_line();
    let stopped = match document.stopped {
        _ if document.arms.len() < 2 => "no arm to compare with the first".to_string(),
        Stopped::RuleMet => format!(
            "every ratio known within {} at {}",
            percent(document.settings.rule.within),
            percent(document.judging.confidence.level())
        ),
        Stopped::Deviation => "until equal runs differed too much".to_string(),
        Stopped::MaxRuns => "stopped by --max-runs".to_string(),
        Stopped::Decided => "until every verdict was decided".to_string(),
        Stopped::MaxTime => "stopped by --max-time".to_string(),
        Stopped::Interrupted => "interrupted; the verdicts are of the runs made so far".to_string(),
    };
    let service: String = service::head(document).iter().map(|line| format!("{line}\n")).collect();
    let over = over_time(document);
    format!("{command}\n{machine}; {:.0} s, {stopped}{over}\n{service}", document.total_seconds())
}

/// Why the comparison took longer than the --max-time that was given; empty if it did not.
fn over_time(document: &Document) -> String {
    let settings = &document.settings;
    // A soft limit: none was given.
    let given = settings.max_seconds.filter(|_| settings.patience_seconds.is_none());
    match given {
        Some(most) if document.elapsed_seconds > 1.02 * most => format!(
            " ({most:.0} s, and {:.0} s more: one block of two runs per arm is always made, and completed)",
            document.elapsed_seconds - most
        ),
        _ => String::new(),
    }
}

fn arms(document: &Document, analysis: &Analysis) -> String {
    let figures = document.metrics().map(|metric| match &metric.unit {
        Some(unit) => format!("{} ({unit})", metric.name),
        None => metric.name.clone(),
    });
    let figures: Vec<String> = figures.collect();
    let mut header = vec![
        "arm",
        "runs",
        Measure::Wall.column(document.service.is_some()),
        "user",
        "system",
        "minor faults",
        "peak",
        "on superpages",
        "zero-filled",
    ];
    header.extend(figures.iter().map(String::as_str));
    let cells = |summary: &Summary| {
        let figure = |index| words::known(summary.metric_at(index), words::figure);
        row(summary).into_iter().chain((0..figures.len()).map(figure)).collect()
    };
    table(&header, analysis.arms.iter().map(cells).collect(), &[0])
}

fn row(arm: &Summary) -> Vec<String> {
    let seconds = |value: Option<f64>| words::known(value, words::seconds);
    let bytes = |value: Option<f64>| words::known(value, words::bytes);
    let mark = if arm.coverage_from_warm_up { "*" } else { "" };
    let coverage = words::known(arm.coverage, |share| percent(share) + mark);
    vec![
        arm.name.clone(),
        arm.runs.to_string(),
        seconds(arm.wall_seconds),
        seconds(arm.user_seconds),
        seconds(arm.system_seconds),
        words::known(arm.minor_faults, |faults| format!("{faults:.0}")),
        bytes(arm.peak_bytes),
        coverage,
        bytes(arm.zero_filled_bytes),
    ]
}

fn verdicts(document: &Document, analysis: &Analysis) -> String {
    let reference = &document.arms[0].name;
    let widest = analysis.judgements.iter().map(|one| one.arm.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for arm in document.arms.iter().skip(1) {
        let mut judged: Vec<&Judgement> =
            analysis.judgements.iter().filter(|one| one.arm == arm.name).collect();
        judged.sort_by_key(|one| !one.is_primary);
        let effect = |one: &Judgement| matches!(one.verdict, Verdict::DidNotTakeEffect { .. });
        if judged.iter().all(|one| effect(one)) {
            judged.truncate(1); // the effect is the same for every quantity: print it once
        }
        for (index, one) in judged.iter().enumerate() {
            let label = if index == 0 {
                format!("{:<widest$} vs {reference}", one.arm)
            } else {
                " ".repeat(widest + 4 + reference.chars().count())
            };
            let style = style(&one.verdict);
            let line = one.verdict.line(Terms::Speed);
            let quantity = if effect(one) {
                String::new()
            } else {
                format!("{}: ", one.quantity.column(document.service.is_some()))
            };
            let told = document.predicted_for(&arm.name, &one.quantity).filter(|_| !effect(one));
            let told = told.map_or(String::new(), |told| format!("; {}", told.ratio_text()));
            let _ = writeln!(text, "{label}  {quantity}{style}{line}{style:#}{told}");
        }
        for one in analysis.cpu_time.iter().filter(|one| one.arm == arm.name) {
            let label = " ".repeat(widest + 4 + reference.chars().count());
            let (style, line) = (style(&one.verdict), one.verdict.line(Terms::Amount));
            let _ = writeln!(text, "{label}  {}: {style}{line}{style:#}", one.quantity);
        }
    }
    for arm in &document.left_out {
        let _ = writeln!(text, "{} left out: {}", arm.name, arm.why);
    }
    text
}

/// The colour of a verdict.
pub fn style(verdict: &Verdict) -> Style {
    let colour = match verdict {
        Verdict::Faster(_) => AnsiColor::Green,
        Verdict::Slower(_) | Verdict::DidNotTakeEffect { .. } => AnsiColor::Red,
        Verdict::Same { .. } => return Style::new().bold(),
        Verdict::Undecided { .. } | Verdict::NoData { .. } => AnsiColor::Yellow,
    };
    Style::new().fg_color(Some(colour.into())).bold()
}

/// Differences in peak memory below this many bytes are noise.
const MIN_MORE_BYTES: f64 = (2 << 20) as f64;

/// Formats each arm's peak memory beyond the first arm's.
fn more_memory(analysis: &Analysis) -> impl Iterator<Item = String> {
    let first = &analysis.arms[0];
    analysis.arms.iter().skip(1).filter_map(|arm| {
        let (base, peak) = (first.peak_bytes?, arm.peak_bytes?);
        let is_more = peak > 1.02 * base && peak - base > MIN_MORE_BYTES;
        let more = words::bytes(peak - base);
        is_more.then(|| format!("{}: {more} more than {} at the peak", arm.name, first.name))
    })
}

/// What would decide the open verdicts, of every quantity.
fn to_decide(document: &Document, analysis: &Analysis) -> Vec<String> {
    let is_service = document.service.is_some();
    let open = analysis.judgements.iter().filter_map(|one| {
        let (more_runs, seconds) = one.to_decide(analysis)?;
        let of = format!("{} {}", one.arm, one.quantity.column(is_service));
        Some(Open { of, more_runs, seconds })
    });
    let made = Made {
        runs: analysis.arms.iter().map(|arm| arm.runs).max().unwrap_or(0),
        seconds: document.elapsed_seconds,
        rule: document.settings.rule,
        max_seconds: document.settings.max_seconds,
        ended: match document.stopped {
            Stopped::RuleMet | Stopped::Decided | Stopped::Deviation => Ended::ByValues,
            Stopped::MaxRuns | Stopped::MaxTime | Stopped::Interrupted => Ended::ByLimit,
        },
    };
    open::notes(open.collect(), &made)
}

/// What is known of the peaks that the table lacks, of the last run of each arm.
fn unknown_peaks(document: &Document, analysis: &Analysis) -> Vec<String> {
    let arms = analysis.arms.iter().enumerate().filter(|(_, arm)| arm.peak_bytes.is_none());
    let told = arms.filter_map(|(index, arm)| {
        let is_own = |it: &&Sample| it.arm == index as u32 && it.purpose == Purpose::Measured;
        let seen = &document.samples.iter().rfind(is_own)?.memory;
        seen.peak_at_least_bytes?;
        Some(format!("{}: of the last run: {}", arm.name, peak_in_words(seen)))
    });
    told.collect()
}

/// What was made free, and what was turned on, in the measured runs of an arm.
fn supplied(document: &Document, arm: u32) -> String {
    let is_own = |it: &&Sample| it.arm == arm && it.purpose == Purpose::Measured;
    let runs: Vec<_> = document.samples.iter().filter(is_own).map(|it| &it.supplied).collect();
    let made: Vec<&Supplied> = runs.iter().filter_map(|it| it.as_ref()).collect();
    if made.is_empty() {
        return "; in these runs it asked for none, and no smaller size was turned on".to_string();
    }
    let sum = |of: fn(&Supplied) -> u64| made.iter().map(|it| of(it)).sum::<u64>();
    let (got, wanted) = (sum(|it| it.got), sum(|it| it.wanted));
    let on = made.iter().filter(|it| !it.sizes.is_empty()).count();
    format!(
        "; in these runs {got} of {wanted} superpages were made free, and smaller sizes turned on in {on} of {} runs",
        runs.len()
    )
}

fn notes(document: &Document, analysis: &Analysis) -> Vec<String> {
    let mut notes = document.lent.clone();
    notes.extend(service::notes(document));
    notes.extend(document.neighbours.as_ref().and_then(host::Neighbours::line));
    notes.extend(more_memory(analysis));
    notes.extend(unknown_peaks(document, analysis));
    notes.extend(arrays::note(document));
    notes.extend(to_decide(document, analysis));
    for change in &document.changed_meanwhile {
        notes.push(format!("{change} during the runs; repeat them"));
    }
    if let Some(told) = &document.predicted {
        let translating = told.prediction.translating;
        let [low, mid, high] = [translating.low, translating.mid, translating.high].map(percent);
        notes.push(format!(
            "predicted from {} and what accesses cost here: translation takes {mid} ({low} to {high}) \
             of its time on base pages",
            told.source
        ));
        notes.extend(told.notes.iter().cloned());
    }
    if let Some(floor) = analysis.noise_floor {
        notes.push(floor_text(floor));
    }
    if analysis.arms.iter().any(|arm| arm.coverage_from_warm_up) {
        notes.push(
            "* read in the warm-up: reading it in a measured run would have slowed the program down"
                .to_string(),
        );
    }
    for arm in &analysis.arms {
        if arm.failed_runs > 0 {
            notes.push(format!("{}: {} of {} runs failed", arm.name, arm.failed_runs, arm.runs));
        }
        for (count, what) in [
            (arm.thp_fault_fallbacks, "superpage faults fell back to base pages"),
            (arm.compaction_stalls, "compaction stalls"),
        ] {
            if let Some(count) = count.filter(|count| *count > 0) {
                notes.push(format!("{}: {count} {what} on this machine during its runs", arm.name));
            }
        }
    }
    for (index, arm) in document.arms.iter().enumerate() {
        notes.extend(arm.plan.notes.iter().map(|note| {
            let supply = matches!(note, Note::Fragmented { rest: Rest::Supplied(_) })
                .then(|| supplied(document, index as u32));
            format!("{}: {note}{}", arm.name, supply.unwrap_or_default())
        }));
    }
    let stragglers: u32 = document.samples.iter().map(|sample| sample.stragglers).sum();
    if stragglers > 0 {
        notes.push(format!("{stragglers} processes outlived their run and were killed"));
    }
    notes
}
