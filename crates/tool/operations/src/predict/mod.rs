//! Predicts the effect of superpages on a program, for `compare --predict`, `measure` and `verify-cost`.
//!
//! The demand comes from a built-in workload's generated stream, or from a recording of a program. Prices are measured
//! on this machine. A run on base pages gives the time.

mod replayed;
mod subject;

pub use replayed::{BaseRuns, Replayed};
pub use subject::{Followed, Subject, SubjectDemand, cache, record};

use std::sync::Arc;
use std::time::{Duration, Instant};

use experiment::analysis::analyse;
use experiment::document::Judging;
use experiment::metric::MetricSpec;
use experiment::prices::{PricesError, Samples};
use experiment::procedure::Settings;
use experiment::sample::{Purpose, Sample};
use experiment::stats::Better;
use experiment::stats::stopping::Rule;
use host::{Root, Snapshot};
use launch::{Pages, Recipe};
use prediction::{Demand, Native, Prediction, Prices};
use units::ByteSize;

use crate::Failure;
use crate::facts;
use crate::jobs::{Job, JobOutcome, WarmMemory};
use crate::pool_guard::PoolPolicy;
use crate::reporter::Progress;
use crate::signals;

/// Maximum footprint for which prices are measured, if the program's footprint is as large. Prices of larger
/// footprints are assumed equal.
const MAX_FOOTPRINT: ByteSize = ByteSize::gib(2);

/// Minimum number of price measurements. Each takes up to 5 seconds and twice [`MAX_FOOTPRINT`] of memory. The cost of
/// a walk depends on which frames the memory has, and each measurement gets new frames.
const MIN_VISITS: u32 = 4;
/// Pause between price measurements, in multiples of the last measurement's duration. Prices are then from the same
/// minutes as the runs, and measuring takes a third of the time.
const PAUSE_FACTOR: u32 = 2;

/// Measures this machine's prices before, between and after a program's runs. On a shared host prices change within a
/// minute, and runs change which frames are free.
pub struct Pricing {
    samples: Samples,
    quiet: bool,
    visits: u32,
    /// Duration and end of the last measurement.
    last: (Duration, Instant),
    /// The failure after which no more prices are measured between runs.
    failed: Option<Failure>,
}

impl Pricing {
    /// Measures prices before the runs, up to the footprint of the accesses.
    pub fn begin(demand: &SubjectDemand, quiet: bool) -> Result<Self, Failure> {
        let machine = Snapshot::read(&Root::real());
        let most = facts::measurement_memory(MAX_FOOTPRINT);
        let reached = sys::param::page_size().bytes() << demand.demand.reach();
        let most = most.min(ByteSize(reached));
        Self::visited(Samples::new(most, facts::superpage(&machine)), quiet)
    }

    /// Measures the prices of first touches alone, before the runs.
    pub fn of_first_touches(quiet: bool) -> Result<Self, Failure> {
        let superpage = facts::superpage(&Snapshot::read(&Root::real()));
        Self::visited(Samples::of_first_touches(superpage), quiet)
    }

    fn visited(samples: Result<Samples, PricesError>, quiet: bool) -> Result<Self, Failure> {
        let samples = samples.map_err(unpriced)?;
        let last = (Duration::ZERO, Instant::now());
        let mut pricing = Self { samples, quiet, visits: 0, last, failed: None };
        pricing.visit(&|| true)?;
        Ok(pricing)
    }

    /// Measures prices again if the pause is over; call it between runs. [`Self::finish`] returns a failure.
    pub fn between(&mut self) {
        let (took, ended) = self.last;
        if self.failed.is_none() && ended.elapsed() >= PAUSE_FACTOR * took {
            self.failed = self.visit(&|| true).err();
        }
    }

    /// Measures prices after the runs. Returns the prices of all measurements. A signal makes this return an error, and
    /// does not end the process, so that the runs are not lost.
    pub fn finish(mut self) -> Result<Priced, Failure> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        let visited = self.last_visits(&|| interrupting.received().is_none());
        if let Some(signal) = interrupting.received() {
            return Err(Failure::interrupted(signal, "the prediction"));
        }
        visited?;
        Ok(Priced { all: self.samples.prices(), visits: self.samples.by_visit() })
    }

    fn last_visits(&mut self, goes_on: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.visit(goes_on)?;
        while self.visits < MIN_VISITS {
            self.visit(goes_on)?;
        }
        Ok(())
    }

    fn visit(&mut self, goes_on: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.visits += 1;
        let begun = Instant::now();
        let what = "measuring what accesses cost on this machine";
        let mut progress = Progress::new(self.quiet, what);
        let visited = self.samples.visit(|done, of| {
            progress.tell(done as u64, Some(of as u64), || what.to_string());
            goes_on()
        });
        progress.clear();
        self.last = (begun.elapsed(), Instant::now());
        visited.map_err(unpriced)
    }
}

fn unpriced(error: PricesError) -> Failure {
    match error {
        PricesError::NoSuperpages | PricesError::NotGot { .. } => Failure::cannot(error),
        PricesError::Sys(_) | PricesError::Interrupted => Failure::usage(error),
    }
}

/// Prices of accesses.
pub struct Priced {
    /// The median of all measurements.
    pub all: Prices,
    visits: Vec<Prices>,
}

/// Seconds of one thread in user mode, and in the kernel.
pub type Seconds = (f64, f64);

/// Predicts for runs on base pages with these median times. The interval covers the predictions from the prices of each
/// measurement, and from each of `runs`.
pub fn predict(
    demand: &SubjectDemand,
    prices: &Priced,
    median: Seconds,
    runs: &[Seconds],
) -> Prediction {
    // The clock is measured, because a guest may be told 2.6 GHz where the core runs at 3.7.
    let mhz = tlb_probe::clock().core_mhz;
    let predicted = |prices: &Prices, (user_seconds, system_seconds): Seconds| {
        let instructions = demand.instructions;
        let native = Native { user_seconds, system_seconds, instructions, mhz };
        prediction::predict(&demand.demand, prices, &native)
    };
    let by_visit = prices.visits.iter().map(|visit| predicted(visit, median));
    let by_run = runs.iter().map(|run| predicted(&prices.all, *run));
    predicted(&prices.all, median).widened(by_visit.chain(by_run))
}

/// Returns the times of each measured run on base pages; if `timed`, those of a workload's timed phase.
pub fn base_runs(samples: &[Sample], timed: bool) -> Vec<Seconds> {
    let runs = samples.iter().filter(|it| it.arm == 0 && it.purpose == Purpose::Measured);
    let seconds = |sample: &Sample| match timed {
        true => sample.metric.map(|seconds| (seconds, 0.0)),
        false => Some((sample.user_seconds, sample.system_seconds)),
    };
    runs.filter_map(seconds).filter(|(user, system)| user + system > 0.0).collect()
}

/// Creates a job of two runs of a subject on base pages.
pub fn on_base_pages(subject: &Subject, quiet: bool) -> Result<Job, Failure> {
    let twice = Rule { min_runs: 2, max_runs: 2, ..Rule::default() };
    timed_job(subject, vec![Recipe::new(Pages::Base)], twice, None, quiet)
}

/// Runs a built-in workload twice on base pages. Returns the CPU seconds of its timed phase.
pub fn timed_on_base_pages(subject: &Subject, quiet: bool) -> Result<f64, Failure> {
    match on_base_pages(subject, quiet)?.run()? {
        JobOutcome::Document(document) => analyse(&document).arms[0]
            .metric
            .ok_or_else(|| Failure::usage(format!("{}: reported no time", subject.name()))),
        JobOutcome::Signal(signal, _) => {
            let what = format!("timing {} on base pages", subject.name());
            Err(Failure::interrupted(signal, what))
        }
    }
}

/// Creates an experiment with a subject, by a stopping rule and within `max_seconds`. Built-in workloads are judged by
/// the CPU time of their timed phase: prices are CPU time too, and other load affects it less.
pub fn timed_job(
    subject: &Subject,
    recipes: Vec<Recipe>,
    rule: Rule,
    max_seconds: Option<f64>,
    quiet: bool,
) -> Result<Job, Failure> {
    let command = subject.command()?;
    let metric = matches!(subject, Subject::Workload(..)).then(|| MetricSpec {
        name: "timed".to_string(),
        unit: Some("s".to_string()),
        regex: r#","cpu_seconds":([-+0-9.eE]+)"#.to_string(),
        better: Better::Lower,
    });
    Ok(Job {
        service: None,
        shown: command.clone(),
        command,
        recipes,
        is_choice: false,
        aa: false,
        pool: PoolPolicy::Keep,
        metric_is_primary: metric.is_some(),
        metrics: metric.into_iter().collect(),
        settings: Settings { seed: 1, warm_ups: 1, rule, max_seconds, patience_seconds: None },
        judging: Judging::default(),
        warm_memory: WarmMemory::Auto,
        ignore_failure: false,
        quiet,
    })
}

/// Returns the sum of all phases.
pub fn whole(phases: Vec<(String, Demand)>) -> Demand {
    phases.into_iter().fold(Demand::default(), |mut sum, (_, demand)| {
        sum.merge(&demand);
        sum
    })
}
