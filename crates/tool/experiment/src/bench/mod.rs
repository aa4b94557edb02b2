//! `Document` of `superpage bench touch` and `superpage bench requests`: rates and latencies of memory allocation, by
//! arm and number of threads.
//!
//! The command makes the runs (over [`crate::procedure`] and [`crate::execute`]) and passes their outcomes to
//! [`Row::new`], which computes all figures. `picture` draws the chart.

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

/// A benchmark with all its arms. Base units; unknown is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `touch` or `requests`.
    pub bench: &'static str,
    /// Version of superpage that wrote it.
    pub superpage_version: &'static str,
    /// Start time in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
    /// The workload's command in common notation, without threads and the arms' additional arguments.
    pub command: Vec<Word>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Number of measured runs of each row.
    pub runs: u32,
    /// The machine before the first run.
    pub machine: Snapshot,
    /// Settings that were changed for the runs and restored, as text.
    pub lent: Vec<String>,
    /// Settings that another process changed meanwhile.
    pub changed_meanwhile: Vec<String>,
    /// Arms that could not run here.
    pub left_out: Vec<LeftOut>,
    /// Seconds of all runs.
    pub elapsed_seconds: f64,
    /// What else the machine did during the runs.
    pub neighbours: host::Neighbours,
    /// Rows by arm and threads.
    pub rows: Vec<Row>,
}

/// One arm with one number of threads, as planned.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The arm's name.
    pub arm: String,
    /// The requested recipe.
    pub recipe: Recipe,
    /// The plan on this machine.
    pub plan: Plan,
    /// Number of threads that touch memory or serve requests.
    pub threads: usize,
    /// Whether the workload asks the kernel to prefault pages.
    pub populates: bool,
    /// mTHP size of an arm on smaller superpages. If settings may be changed, all other sizes are disabled during the
    /// arm's runs.
    pub folio: Option<PageSize>,
}

impl Document {
    /// Formats the document as JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data serializes") + "\n"
    }

    /// Draws the chart as SVG: latency percentiles, or rates if no latencies were measured.
    pub fn to_svg(&self) -> String {
        picture::draw(self)
    }
}

// `Row`: the outcomes of one arm with one number of threads, and its figures. Pure.

/// Minimum share (0 to 1) on superpages for an arm that promised them, as in comparisons.
const MIN_SHARE: f64 = 0.8;
/// Maximum share (0 to 1) on superpages for an arm that promised base pages.
const MAX_SHARE_OF_BASE: f64 = 0.01;

/// Results of an arm with one number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The arm and number of threads.
    #[serde(flatten)]
    pub cell: Cell,
    /// The kinds of pages that the memory was on.
    pub got: ReadBack,
    /// Figures; `null` if the arm did not get the pages it promised.
    pub summary: Option<Summary>,
    /// The measured runs, in order.
    pub outcomes: Vec<Outcome>,
}

/// The kinds of pages that the memory was on, read back from the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadBack {
    /// Median share on superpages, for mTHP on the arm's size (computed from the number of faults); `null` if the
    /// kernel does not report it.
    pub share: Option<f64>,
    /// Whether the arm got the pages it promised; `null` if it promised none, or if it is unknown. An arm that requests
    /// superpages for a part of its memory fails only if it got none.
    pub as_promised: Option<bool>,
    /// What went wrong with libsuperpage.so, if the library was to hand out or prepare the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library_fault: Option<LibraryFault>,
}

/// Medians over the runs; unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Base pages touched, or requests served, per second.
    pub rate: Spread,
    /// CPU seconds in user mode, all threads.
    pub user_seconds: Option<f64>,
    /// CPU seconds in the kernel, all threads.
    pub system_seconds: Option<f64>,
    /// Wall-clock time in seconds.
    pub wall_seconds: f64,
    /// Number of page faults that the kernel counted.
    pub faults: Option<f64>,
    /// Page faults per CPU second.
    pub faults_per_cpu_second: Option<f64>,
    /// Page faults per second of wall-clock time.
    pub faults_per_wall_second: Option<f64>,
    /// Latencies of single accesses or requests, over all runs.
    pub latencies: Vec<Percentiles>,
}

/// A median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

/// Latency percentiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// `page`, `superpage` (the first page touched of each 2 MiB) or `request`.
    pub of: &'static str,
    /// Number of measured accesses or requests.
    pub count: u64,
    /// Overhead of the timing itself in seconds, included in every figure.
    pub timer_seconds: f64,
    /// Median.
    pub p50_seconds: f64,
    /// 90th percentile.
    pub p90_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
    /// 99.9th percentile.
    pub p999_seconds: f64,
    /// Maximum.
    pub max_seconds: f64,
}

impl Row {
    /// Creates the row of the measured runs' outcomes, each with the report of libsuperpage.so.
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

    /// Returns the distribution of each kind of latency, over all runs.
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
        // `touch` touches mappings, so an arm that backs only other memory has no effect.
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

/// Returns the share (0 to 1) of `pages` that came in blocks of `each` pages. Assumes that `faults` brought all pages,
/// one block or one page each.
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

/// Returns the median over all outcomes; `None` if an outcome lacks the value.
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

    /// Returns the outcome of a `touch` of 4 MiB with this number of bytes on superpages.
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
        // 1024 pages: all came singly, all in blocks of sixteen, or half each.
        for (faults, share) in [(1024.0, 0.0), (64.0, 1.0), (544.0, 0.5), (2000.0, 0.0), (1.0, 1.0)]
        {
            assert_eq!(by_faults(1024.0, faults, 16.0), share);
        }
    }
}
