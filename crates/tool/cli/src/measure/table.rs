//! Formats a measurement as text. Pure.

use std::fmt::Write;

use report::format::{self as words, known, percent};
use walk_cost::{
    Attribution, Estimate, Evidence, Figure, Hits, Interval, Method, Missing, Recount, Scope, Share,
};

use super::Measured;
use crate::pool::show::table;

/// Formats the head line, shares, evidence, misses by mapping and function, and notes.
pub fn text(measured: &Measured, top: usize) -> String {
    let estimate = &measured.estimate;
    let mut text = head(measured);
    text += &shares(estimate);
    if !estimate.evidence.is_empty() {
        text.push('\n');
        text += &evidence(&estimate.evidence);
    }
    for attribution in &measured.attributions {
        text.push('\n');
        text += &whose(attribution, top);
    }
    for note in &estimate.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text + &missing(estimate)
}

/// Formats which events were not counted, by the figure that needs them, and the commands that count them. The events of
/// an unknown processor stand in the commands alone.
fn missing(estimate: &Estimate) -> String {
    let is_one = estimate.recount.len() < 2;
    let mut text = String::new();
    let missing: Vec<&Missing> =
        estimate.missing.iter().filter(|one| !one.events.is_empty()).collect();
    for Missing { figure, processor, events } in &missing {
        let of = match figure {
            Figure::Share => "the share",
            Figure::Data => "data",
            Figure::Code => "code",
            Figure::Bound => "the largest speedup",
        };
        if is_one {
            let _ = writeln!(text, "missing for {of}: {}", events.join(", "));
        } else if estimate.recount.first().is_some_and(|first| first.processor == *processor) {
            let _ = writeln!(text, "missing for {of}: events of the processor, which is unknown");
        }
    }
    for Recount { processor, command } in estimate.recount.iter().filter(|_| !missing.is_empty()) {
        let on = if is_one { String::new() } else { format!(" on {processor}") };
        let _ = writeln!(text, "count all{on}: {command} -- PROGRAM");
    }
    text
}

fn head(measured: &Measured) -> String {
    let format = measured.format.map(|format| format!(" ({})", format.in_words()));
    let seconds = measured.seconds.map(|seconds| format!(", {}", words::seconds(seconds)));
    let what = measured.what.escape_debug();
    format!("{what}{}{}\n", format.unwrap_or_default(), seconds.unwrap_or_default())
}

fn shares(estimate: &Estimate) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: &str| {
        let _ = writeln!(text, "  {name:<14}{what}");
    };
    match estimate.reason() {
        Some(reason) => line("translating", &format!("unknown: {reason}")),
        None => {
            let left_out = match estimate.hits {
                Some(Hits::Unpriced) => ", without second-level TLB hits, which have no price",
                Some(Hits::NotCounted) => ", without second-level TLB hits that were not counted",
                Some(Hits::Priced) | None => "",
            };
            let of_time = format!("{} of the time{left_out}", known(estimate.share, interval));
            line("translating", &of_time);
            if estimate.dtlb.is_some() || estimate.itlb.is_some() {
                line("  data", &known(estimate.dtlb, interval));
                line("  code", &known(estimate.itlb, interval));
            }
        }
    }
    if let Some(gain) = estimate.gain {
        // The bound covers data accesses alone if only their misses were counted.
        let is_data = estimate.dtlb.is_some() && estimate.itlb.is_none();
        let of = match &estimate.method {
            Method::GivenMissesTimesCost => "these misses alone",
            _ if is_data => "translation of data alone",
            _ => "translation alone",
        };
        let most = gain.speedup_at_most;
        let most = most.map_or("no bound".to_string(), |most| {
            format!("by {of} at most {}x as fast", words::ratio(most))
        });
        let likely = interval(gain.saved);
        let by_what = match estimate.hits {
            Some(Hits::Unpriced | Hits::NotCounted) => " by what is priced",
            Some(Hits::Priced) | None => "",
        };
        line(
            "superpages",
            &format!("{most}; likely {likely} less time{by_what}; saved page faults come on top"),
        );
    }
    line("method", &format!("{}: {}", estimate.method.name(), method(estimate)));
    if let Some(scope) = estimate.scope {
        line(
            "counted",
            match scope {
                Scope::User => "user mode only",
                Scope::UserAndKernel => "user and kernel mode",
            },
        );
    }
    text
}

fn method(estimate: &Estimate) -> &str {
    if estimate.reason().is_some() { "no number" } else { estimate.method.in_words() }
}

/// Formats `17.8 %`, or with bounds `12.1 % (8 % to 15 %)`.
fn interval(share: Interval) -> String {
    if share.mid() == 0.0 && share.high() > 0.0 {
        return format!("at most {}", percent(share.high()));
    }
    if share.low() == share.high() {
        return percent(share.mid());
    }
    format!("{} ({} to {})", percent(share.mid()), percent(share.low()), percent(share.high()))
}

fn evidence(evidence: &[Evidence]) -> String {
    let rows = evidence.iter().map(|one| {
        let counted = one.counted.map_or(String::new(), percent);
        let name = words::name(&one.name.escape_debug().to_string(), 48);
        vec![name, words::count(one.value), counted, one.source.escape_debug().to_string()]
    });
    table(&["event", "count", "counted for", "from"], rows.collect(), &[0, 3])
}

fn whose(attribution: &Attribution, top: usize) -> String {
    let event = attribution.event.escape_debug();
    let mut text = format!(
        "{event}: {} samples, {} with an address\n",
        attribution.samples, attribution.with_address
    );
    for (name, shares) in [("mapping", &attribution.mappings), ("function", &attribution.symbols)] {
        if !shares.is_empty() {
            text += &table(&[name, "events", "share"], rows(shares, top), &[0]);
        }
    }
    text
}

/// Returns a row for each of the `top` largest shares, and one row for the sum of all other shares.
fn rows(shares: &[Share], top: usize) -> Vec<Vec<String>> {
    let row = |name: &str, events: f64, share: f64| {
        let name = words::name(&name.escape_debug().to_string(), 60);
        vec![name, words::count(events), percent(share)]
    };
    let (shown, rest) = shares.split_at(shares.len().min(top));
    let mut rows: Vec<Vec<String>> =
        shown.iter().map(|one| row(&one.name, one.events, one.share)).collect();
    if !rest.is_empty() {
        let sum = |part: fn(&Share) -> f64| rest.iter().map(part).sum();
        rows.push(row(&format!("({} more)", rest.len()), sum(|s| s.events), sum(|s| s.share)));
    }
    rows
}
