//! `Document` of `superpage bench touch` and `superpage bench requests`: how fast a process gets memory, and how
//! long single accesses wait for it, by arm and number of threads.
//!
//! The command makes the runs (over [`crate::procedure`] and [`crate::execute`]) and hands their outcomes to
//! [`Row::new`]; everything else here is computed from them. `picture` draws it.

mod picture;

use host::Snapshot;
use launch::{Pages, Plan, Promise, Recipe, Word};
use serde::Serialize;
use units::PageSize;
use workload::tail::{Distribution, Latency};
use workload::{Details, Outcome};

use crate::analysis::asks_for_some;
use crate::document::LeftOut;
use crate::library::{LibraryFault, PreloadReport};
use crate::stats::describe::median;

/// Name and version of the format.
pub const SCHEMA: &str = "superpage.bench/1";

/// One run of the benchmark: all its arms. Base units; unknown is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `touch` or `requests`.
    pub bench: &'static str,
    /// Version of superpage that made it.
    pub superpage_version: &'static str,
    /// When it began, in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
    /// The workload's command in common notation, without threads and the arms' additions.
    pub command: Vec<Word>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Measured runs of each row.
    pub runs: u32,
    /// The machine before the first run.
    pub machine: Snapshot,
    /// Settings that were changed for the runs and restored, in words.
    pub lent: Vec<String>,
    /// Settings that another process changed meanwhile.
    pub changed_meanwhile: Vec<String>,
    /// Arms that could not run here.
    pub left_out: Vec<LeftOut>,
    /// Seconds that all runs took.
    pub elapsed_seconds: f64,
    /// By arm and threads.
    pub rows: Vec<Row>,
}

/// One arm with one number of threads, before it is run.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The arm's name.
    pub arm: String,
    /// The requested recipe.
    pub recipe: Recipe,
    /// The plan on this machine.
    pub plan: Plan,
    /// Number of threads that touch, or serve.
    pub threads: usize,
    /// Whether the kernel is asked to fault pages in ahead.
    pub populates: bool,
    /// For an arm on smaller superpages (mTHP): of which size. All others are off while it runs, if
    /// settings were allowed to be changed.
    pub folio: Option<PageSize>,
}

impl Document {
    /// The document as JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data serializes") + "\n"
    }

    /// The picture: how long the share of accesses took that took longest, or rates where none were timed.
    pub fn to_svg(&self) -> String {
        picture::draw(self)
    }
}

// `Row`: the outcomes of one arm with one number of threads, and what they come to. Pure.

/// The least share on superpages for an arm that promised them, as in comparisons.
const MIN_SHARE: f64 = 0.8;
/// The most for one that promised base pages.
const MAX_SHARE_OF_BASE: f64 = 0.01;

/// An arm with a number of threads, run.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// What its memory was on.
    pub got: ReadBack,
    /// Its figures; `null` if it did not get the pages it promised.
    pub summary: Option<Summary>,
    /// The measured runs, in order.
    pub outcomes: Vec<Outcome>,
}

/// What the memory was on, read back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadBack {
    /// The median share on superpages (of the arm's size, for one of smaller ones: those are told by the
    /// number of faults); `null` if the kernel does not tell.
    pub share: Option<f64>,
    /// Whether that is what the arm promised; `null` if it promised nothing, or nobody knows. An arm that asks for
    /// superpages of some of its memory only does not get what it asked for if it got none.
    pub as_promised: Option<bool>,
    /// What is wrong with libsuperpage.so, if it was to hand out the memory, or prepare it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library_fault: Option<LibraryFault>,
}

/// Medians over the runs; unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The figure of merit: base pages touched, or requests served, per second.
    pub rate: Spread,
    /// CPU seconds in user mode, all threads.
    pub user_seconds: Option<f64>,
    /// CPU seconds in the kernel, all threads.
    pub system_seconds: Option<f64>,
    /// Seconds.
    pub wall_seconds: f64,
    /// Faults that the kernel counted.
    pub faults: Option<f64>,
    /// Of these per CPU second.
    pub faults_per_cpu_second: Option<f64>,
    /// Of these per second.
    pub faults_per_wall_second: Option<f64>,
    /// How long single accesses or requests took, over all runs.
    pub latencies: Vec<Percentiles>,
}

/// A median, and the least and greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

/// How long the slowest took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// `page`, `superpage` (the first page touched of each 2 MiB) or `request`.
    pub of: &'static str,
    /// How many.
    pub count: u64,
    /// What timing one took, in every figure here.
    pub timer_seconds: f64,
    /// Half of them took at most this.
    pub p50_seconds: f64,
    /// Nine of ten.
    pub p90_seconds: f64,
    /// 99 of 100.
    pub p99_seconds: f64,
    /// 999 of 1000.
    pub p999_seconds: f64,
    /// All of them.
    pub max_seconds: f64,
}

impl Row {
    /// From the outcomes of the measured runs, each with what libsuperpage.so told of it.
    pub fn new(cell: Cell, runs: Vec<(Outcome, PreloadReport)>) -> Self {
        let (outcomes, told): (Vec<Outcome>, Vec<PreloadReport>) = runs.into_iter().unzip();
        let mut got = ReadBack::new(&cell, &outcomes);
        got.library_fault = LibraryFault::from_reports(&cell.recipe, told);
        if got.library_fault.is_some() {
            got.as_promised = Some(false);
        }
        let summary = Summary::new(&outcomes).filter(|_| got.as_promised != Some(false));
        Self { cell, got, summary, outcomes }
    }

    /// Each kind of latency over all runs.
    pub fn distributions(&self) -> Vec<(&'static str, Distribution)> {
        let kinds: Vec<&'static str> =
            self.outcomes.first().map_or(Vec::new(), |one| latencies(one).map(|l| l.0).collect());
        let joined = |kind: &&'static str| {
            let all = self.outcomes.iter().flat_map(latencies).filter(|(of, _)| of == kind);
            (*kind, Distribution::joined(all.map(|(_, latency)| &latency.distribution)))
        };
        kinds.iter().map(joined).collect()
    }
}

impl ReadBack {
    fn new(cell: &Cell, outcomes: &[Outcome]) -> Self {
        let of = |one: &Outcome| match (cell.folio, &one.details) {
            (Some(size), Details::Touch { page_bytes, pages_touched, .. }) => {
                let each = size.bytes() as f64 / *page_bytes as f64;
                Some(by_faults(*pages_touched as f64, one.minor_faults? as f64, each))
            }
            (None, Details::Touch { page_bytes, pages_touched, superpage_bytes, .. }) => {
                Some((*superpage_bytes)? as f64 / (pages_touched * page_bytes) as f64)
            }
            (None, Details::Requests { superpage_bytes, held_bytes, .. }) => {
                Some((*superpage_bytes)? as f64 / (*held_bytes).max(1) as f64)
            }
            _ => None,
        };
        let share = middle(outcomes, of);
        // What is touched are mappings: arms that serve other memory can do nothing here.
        let may_serve = |outcomes: &[Outcome]| match outcomes.first().map(|one| &one.details) {
            Some(Details::Touch { .. }) => cell.recipe.memory.mmap,
            _ => true,
        };
        let mut known = outcomes.iter().filter_map(of).peekable();
        let has_none = known.peek().is_some() && known.all(|share| share == 0.0);
        let promised = match (cell.plan.promise, cell.plan.pages) {
            (Promise::BasePages, _) => share.map(|share| share <= MAX_SHARE_OF_BASE),
            (Promise::Superpages, _) | (_, Pages::ThpOf(_)) => {
                share.map(|share| share >= MIN_SHARE)
            }
            (Promise::Nothing, _)
                if has_none && asks_for_some(&cell.recipe, &cell.plan) && may_serve(outcomes) =>
            {
                Some(false)
            }
            (Promise::Nothing | Promise::SmallerSuperpages, _) => None,
        };
        Self { share, as_promised: promised, library_fault: None }
    }
}

/// The share of `pages` that came `each` at a fault, if `faults` brought all of them and the rest came singly.
fn by_faults(pages: f64, faults: f64, each: f64) -> f64 {
    ((pages - faults) / (each - 1.0) * each / pages).clamp(0.0, 1.0)
}

impl Summary {
    fn new(outcomes: &[Outcome]) -> Option<Self> {
        let rates = || outcomes.iter().map(|one| one.figure.value);
        let cpu = |one: &Outcome| match one.details {
            Details::Touch { user_seconds, system_seconds, .. } => user_seconds.zip(system_seconds),
            _ => None,
        };
        let rate = |one: &Outcome, cpu_time: bool| match one.details {
            Details::Touch { faults_per_cpu_second, .. } if cpu_time => faults_per_cpu_second,
            _ if cpu_time => None,
            _ => Some(one.minor_faults? as f64 / one.seconds),
        };
        Some(Self {
            rate: Spread {
                median: median(&mut rates().collect::<Vec<_>>())?,
                least: rates().fold(f64::INFINITY, f64::min),
                greatest: rates().fold(0.0, f64::max),
            },
            user_seconds: middle(outcomes, |one| Some(cpu(one)?.0)),
            system_seconds: middle(outcomes, |one| Some(cpu(one)?.1)),
            wall_seconds: middle(outcomes, |one| Some(one.seconds))?,
            faults: middle(outcomes, |one| Some(one.minor_faults? as f64)),
            faults_per_cpu_second: middle(outcomes, |one| rate(one, true)),
            faults_per_wall_second: middle(outcomes, |one| rate(one, false)),
            latencies: percentiles(outcomes),
        })
    }
}

/// The median over all outcomes, if it is known of each.
fn middle(outcomes: &[Outcome], of: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
    median(&mut outcomes.iter().map(of).collect::<Option<Vec<f64>>>()?)
}

fn latencies(outcome: &Outcome) -> impl Iterator<Item = (&'static str, &Latency)> {
    let found = match &outcome.details {
        Details::Touch { latency: Some(latency), .. } => {
            [Some(("page", &latency.pages)), Some(("superpage", &latency.first_of_superpages))]
        }
        Details::Requests { latency, .. } => [Some(("request", latency)), None],
        _ => [None, None],
    };
    found.into_iter().flatten()
}

fn percentiles(outcomes: &[Outcome]) -> Vec<Percentiles> {
    let all = || outcomes.iter().flat_map(latencies);
    let of_kind = |of: &'static str| {
        let timers = all().filter(|(kind, _)| *kind == of).map(|(_, one)| one.timer_seconds);
        let timer_seconds = median(&mut timers.collect::<Vec<_>>())?;
        let these = all().filter(|(kind, _)| *kind == of).map(|(_, one)| &one.distribution);
        let joined = Distribution::joined(these);
        Some(Percentiles {
            of,
            count: joined.count(),
            timer_seconds,
            p50_seconds: joined.quantile(0.5)?,
            p90_seconds: joined.quantile(0.9)?,
            p99_seconds: joined.quantile(0.99)?,
            p999_seconds: joined.quantile(0.999)?,
            max_seconds: joined.longest()?,
        })
    };
    ["page", "superpage", "request"].into_iter().filter_map(of_kind).collect()
}

#[cfg(test)]
mod row_tests {
    use serde_json::json;

    use super::*;
    use crate::analysis::tests::planned;

    /// A run of `touch` of 4 MiB with this number of bytes on superpages.
    fn touched(superpage_bytes: Option<u64>) -> Outcome {
        let outcome = json!({
            "schema": "superpage.workload/1", "workload": "touch", "size_bytes": 4 << 20,
            "footprint_bytes": 4 << 20, "seed": 1, "threads": 1, "setup_seconds": 0.0, "seconds": 1.0,
            "cpu_seconds": 1.0, "verify_seconds": 0.0, "minor_faults": 1024, "verified": true,
            "figure": { "name": "pages", "value": 1024.0, "unit": "1/s", "better": "higher" },
            "details": {
                "gib": 0.004, "repeat": 1, "lines": 1, "user_seconds": 0.5, "system_seconds": 0.5,
                "wall_seconds": 1.0, "faults_per_cpu_second": 1024.0, "faults_per_wall_second": 1024.0,
                "page_bytes": 4096, "pages_touched": 1024, "superpage_bytes": superpage_bytes,
            },
        });
        serde_json::from_value(outcome).expect("an outcome")
    }

    #[test]
    fn an_arm_that_asked_for_some_superpages_and_got_none_has_no_figures() {
        for (recipe, runs, kept) in [
            ("x: pages=hugetlb memory=mmap fallback=base", &[Some(0), Some(0)][..], Some(false)),
            ("x: pages=hugetlb memory=mmap fallback=base", &[Some(0), Some(2 << 20)], None),
            ("x: pages=hugetlb memory=mmap fallback=base", &[None], None),
            ("system", &[Some(0)], None),
            ("x: pages=thp memory=heap,mmap", &[Some(4 << 20)], Some(true)),
        ] {
            let (recipe, plan) = planned(recipe, 0.9, Vec::new());
            let arm = recipe.name.clone();
            let cell = Cell { arm, recipe, plan, threads: 1, populates: false, folio: None };
            let runs = runs.iter().map(|bytes| (touched(*bytes), PreloadReport::default()));
            let row = Row::new(cell, runs.collect());
            assert_eq!(row.got.as_promised, kept, "{:?}", row.cell.recipe);
            assert_eq!(row.summary.is_none(), kept == Some(false));
        }
    }

    #[test]
    fn faults_tell_how_much_came_at_once() {
        // 1024 pages: all singly; all sixteen at a fault; half and half.
        for (faults, share) in [(1024.0, 0.0), (64.0, 1.0), (544.0, 0.5), (2000.0, 0.0), (1.0, 1.0)]
        {
            assert_eq!(by_faults(1024.0, faults, 16.0), share);
        }
    }
}
