//! Explains from two reports why one run was faster than the other.
//!
//! The sentences begin with the difference in time and the accounts that make it up. The causes follow: superpages (how
//! many, how made, when), faults, memory, stalls, daemons, requests. Equal aspects are reported as equal.

use report::sig3;
use serde::Serialize;

use super::account::{Made, figures, incomparable, speedup};
use super::account::{most_superpages, time_until};
use super::phrases::{self, count, cycles};
use crate::Report;
use mm_sim::Cause;

/// The version of [`Explanation`]'s layout.
pub const EXPLAIN_SCHEMA: &str = "superpage.lab.explain/1";

/// Runs whose times differ by less are "the same". Runs are deterministic, but costs are known to a few per cent at
/// best, so a smaller difference means nothing.
const SAME: f64 = 0.01;
/// Minimum share of the difference for a cause to be named.
const SMALL: f64 = 0.03;
/// Maximum number of causes named on each side.
const TOLD: usize = 4;

/// Why one run was faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// [`EXPLAIN_SCHEMA`].
    pub schema: &'static str,
    /// Names of the two runs in the sentences, the faster one first.
    pub runs: [String; 2],
    /// Speed-up of the first run over the second. `None` if their times are not comparable.
    pub speedup: Option<f64>,
    /// Differences in the program's cycles, largest first.
    pub differences: Vec<Difference>,
    /// The sentences, in order.
    pub sentences: Vec<String>,
}

/// The difference in one cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The cause.
    pub cause: Cause,
    /// Cycles of the first run.
    pub first: u64,
    /// Cycles of the second.
    pub second: u64,
    /// Share of the total difference: negative if it opposes the total, above 1 if other causes oppose it. `None` if
    /// the totals are equal.
    pub share: Option<f64>,
}

/// The two runs with their names, the faster one first.
type Pair<'a> = [(&'a str, &'a Report); 2];

/// Explains the difference between two runs.
pub fn explain(a: &Report, b: &Report) -> Explanation {
    let swap = speedup(a, b).is_some_and(|speedup| speedup < 1.0)
        || (phrases::end(&a.end).is_some() && phrases::end(&b.end).is_none());
    let (fast, slow) = if swap { (b, a) } else { (a, b) };
    let (name, other) = phrases::names(fast, slow);
    let differences = differences(fast, slow);
    let ratio = speedup(fast, slow);
    let pair: Pair = [(&name, fast), (&other, slow)];

    let mut sentences = caveats(fast, slow);
    sentences.push(verdict(pair, ratio));
    if ratio.is_some() {
        sentences.extend(ledger(pair, &differences, ratio));
    }
    sentences.extend(pair.map(|(name, report)| superpages(name, report)));
    sentences.extend(faults(pair));
    sentences.extend(memory(pair));
    sentences.extend(stalls(pair));
    sentences.extend(daemons(pair));
    sentences.extend(requests(pair));
    let schema = EXPLAIN_SCHEMA;
    Explanation { schema, runs: [name, other], speedup: ratio, differences, sentences }
}

fn differences(fast: &Report, slow: &Report) -> Vec<Difference> {
    let whole = slow.ledger.total() as f64 - fast.ledger.total() as f64;
    let difference = |cause: Cause| {
        let (first, second) = (fast.ledger[cause], slow.ledger[cause]);
        let share = (whole != 0.0).then(|| (second as f64 - first as f64) / whole);
        Difference { cause, first, second, share }
    };
    let mut all: Vec<Difference> = Cause::ALL.into_iter().map(difference).collect();
    all.retain(|one| one.first != one.second);
    all.sort_by_key(|one| std::cmp::Reverse(one.first.abs_diff(one.second)));
    all
}

fn caveats(fast: &Report, slow: &Report) -> Vec<String> {
    let differing = phrases::differing_cells(&fast.cell, &slow.cell);
    if differing.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "The two runs also differ in {}, so not every difference below is due to the design.",
        differing.join(" and ")
    )]
}

fn verdict(pair: Pair, ratio: Option<f64>) -> String {
    let [(name, fast), (other, slow)] = pair;
    let ended =
        |(name, report): (&str, &Report)| Some(format!("{name} {}", phrases::end(&report.end)?));
    let bad: Vec<String> = pair.into_iter().filter_map(ended).collect();
    if !bad.is_empty() {
        return format!("Their times are not comparable: {}.", bad.join(", and "));
    }
    let times =
        format!("{} against {}", sig3::seconds(fast.seconds()), sig3::seconds(slow.seconds()));
    if let Some(what) = incomparable(&fast.cell, &slow.cell) {
        return format!("Their times are not comparable: the {what}s differ.");
    }
    match ratio {
        None => "One of the runs took no time, so their times are not comparable.".to_string(),
        Some(ratio) if ratio < 1.0 + SAME => {
            format!("{name} and {other} took the same time within 1 %: {times}.")
        }
        Some(ratio) => {
            format!("{name} was {} times as fast as {other}: {times}.", sig3::ratio(ratio))
        }
    }
}

/// Sentences about the accounts that make up the difference.
fn ledger(
    [(name, fast), (other, slow)]: Pair,
    differences: &[Difference],
    ratio: Option<f64>,
) -> Vec<String> {
    let (own, more) = (fast.ledger.total(), slow.ledger.total());
    let same_time = ratio.is_some_and(|ratio| ratio < 1.0 + SAME);
    let apart = own.abs_diff(more) as f64 / own.max(more).max(1) as f64;
    if differences.is_empty() {
        return vec!["They spent the same cycles on everything.".to_string()];
    }
    if apart < SAME {
        // The totals are similar, but their parts may still differ and cancel.
        let large = differences
            .iter()
            .filter(|one| one.first.abs_diff(one.second) as f64 > SAME * own.max(1) as f64);
        let parts: Vec<String> = large.take(TOLD).map(against).collect();
        let whole = format!("Both used {} CPU cycles", cycles(own));
        let rest = match (parts.is_empty(), same_time) {
            (true, true) => ", spent on the same work".to_string(),
            (true, false) => ", spent on the same work: their times differ by waiting".to_string(),
            (false, _) => format!(", but spent them differently: {}", parts.join("; ")),
        };
        return vec![format!("{whole}{rest}.")];
    }
    let told = |one: &&Difference| one.share.is_some_and(|share| share.abs() >= SMALL);
    // Shares are relative to all changes in the same direction: one change may be many times the total difference. The
    // first share says so.
    let side = |along: bool, of: &str| -> Vec<String> {
        let goes = |one: &&Difference| one.share.is_some_and(|share| (share > 0.0) == along);
        let change = |one: &Difference| one.first.abs_diff(one.second);
        let all: u64 = differences.iter().filter(goes).map(change).sum();
        let part = |(at, one): (usize, &Difference)| {
            let share = sig3::percent(change(one) as f64 / all as f64);
            let of = if at == 0 { format!(" of {of}") } else { String::new() };
            let (cause, [own, more]) = (one.cause.activity(), [one.first, one.second]);
            format!("{cause} ({share}{of}: {} against {})", cycles(own), cycles(more))
        };
        differences.iter().filter(goes).filter(told).take(TOLD).enumerate().map(part).collect()
    };
    let (saved, spent) = (("saved on", "all savings"), ("spent more on", "all that it spent more"));
    let (less, along, back) = match own <= more {
        true => ("fewer", saved, spent),
        false => ("more", spent, saved),
    };
    let mut sentences = vec![format!(
        "{name} used {} {less} CPU cycles than {other} ({} against {}): it {} {}.",
        cycles(own.abs_diff(more)),
        cycles(own),
        cycles(more),
        along.0,
        side(true, along.1).join(", ")
    )];
    let other_way = side(false, back.1);
    if !other_way.is_empty() {
        sentences.push(format!("It {} {}.", back.0, other_way.join(", ")));
    }
    if own > more {
        sentences.push(format!(
            "{name} was not slower all the same: these cycles were spent in parallel with other work."
        ));
    }
    sentences
}

fn against(one: &Difference) -> String {
    format!("{} {} against {}", one.cause.activity(), cycles(one.first), cycles(one.second))
}

/// How many superpages, how they were made, and when.
fn superpages(name: &str, report: &Report) -> String {
    let made = Made::from_report(report);
    let most = most_superpages(report);
    if made.total() == 0 && most == 0 && report.counters.superpages == 0 {
        return format!("{name} made no superpages.");
    }
    let mut sentence = format!("{name} {}", phrases::made(made));
    let seconds = |microseconds: u64| sig3::seconds(microseconds as f64 / 1e6);
    if let (Some(half), Some(nine)) = (time_until(report, 0.5), time_until(report, 0.9)) {
        let of = sig3::seconds(report.seconds());
        sentence += &if half == nine {
            format!("; 90 % of the peak ({most}) existed after {}", seconds(half))
        } else {
            format!(
                "; half of the peak ({most}) existed after {}, 90 % after {}",
                seconds(half),
                seconds(nine)
            )
        };
        sentence += &format!(" of {of}");
    }
    if let Some(coverage) = figures(report, None).coverage {
        sentence +=
            &format!(". Over the whole run they covered {} of its memory", sig3::percent(coverage));
    }
    sentence + "."
}

fn faults([(name, fast), (other, slow)]: Pair) -> Option<String> {
    let (own, more) = (&fast.counters, &slow.counters);
    if own.faults == more.faults && own.fallbacks == more.fallbacks {
        return None;
    }
    let fallbacks = |name: &str, fallbacks: u64| {
        (fallbacks > 0)
            .then(|| format!("; {fallbacks} faults of {name} requested a superpage and fell back"))
    };
    let parts = [fallbacks(name, own.fallbacks), fallbacks(other, more.fallbacks)];
    let parts: String = parts.into_iter().flatten().collect();
    let faults = format!("Faults: {} against {}", own.faults, more.faults);
    Some(format!("{faults}{parts}."))
}

fn memory([(name, fast), (other, slow)]: Pair) -> Option<String> {
    let bloat = |report: &Report| figures(report, None).bloat;
    let (own, more) = (bloat(fast)?, bloat(slow)?);
    if (own - more).abs() < 0.005 {
        return (own > 1.005)
            .then(|| format!("Both kept {} pages resident per touched page.", sig3::ratio(own)));
    }
    let part = |name: &str, bloat: f64, report: &Report| {
        if bloat < 1.0005 {
            return format!("{name} kept only touched pages resident");
        }
        format!(
            "{name} kept {} pages resident per touched page ({} for {}, {} of them in use)",
            sig3::ratio(bloat),
            report.counters.resident_pages,
            (report.counters.resident_pages as f64 / bloat).round(),
            sig3::percent(1.0 / bloat)
        )
    };
    Some(format!("{}, {}.", part(name, own, fast), part(other, more, slow)))
}

fn stalls([(name, fast), (other, slow)]: Pair) -> Option<String> {
    let waited = |report: &Report| {
        let causes = [Cause::Compact, Cause::Reclaim, Cause::Lock];
        causes.map(|cause| report.ledger[cause]).iter().sum::<u64>()
    };
    let share = |report: &Report| waited(report) as f64 / report.ledger.total().max(1) as f64;
    let told: Vec<String> = [(name, fast), (other, slow)]
        .iter()
        .filter(|(_, report)| share(report) > 0.001)
        .map(|(name, report)| {
            let direct = report.counters.compactions;
            let compactions = if direct == 0 {
                String::new()
            } else {
                format!(", with {}", count(direct, "direct compaction"))
            };
            format!(
                "{name} stalled for {} of its cycles in compaction, reclaim and locks{compactions}",
                sig3::percent(share(report))
            )
        })
        .collect();
    (!told.is_empty()).then(|| format!("{}.", told.join("; ")))
}

fn daemons([(name, fast), (other, slow)]: Pair) -> Option<String> {
    let share = |report: &Report| figures(report, None).daemons.unwrap_or(0.0);
    let (own, more) = (share(fast), share(slow));
    ((own - more).abs() > 0.005).then(|| {
        format!(
            "In the background, {name}'s daemons kept a CPU busy for {} of the time, {other}'s for {}.",
            sig3::percent(own),
            sig3::percent(more)
        )
    })
}

fn requests([(name, fast), (other, slow)]: Pair) -> Option<String> {
    let (own, more) = (fast.requests.as_ref()?, slow.requests.as_ref()?);
    let time = |microseconds: f64| sig3::seconds(microseconds / 1e6);
    Some(format!(
        "Requests took {} on average under {name} and {} under {other}; their 99th percentiles were {} and {}.",
        time(own.mean),
        time(more.mean),
        time(own.p99),
        time(more.p99)
    ))
}
