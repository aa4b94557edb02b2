//! The experiment: warm-ups, then ABBA blocks until the stopping rule is met.
//!
//! Owns the order of runs and the decision to go on; an [`Executor`] makes the runs. Deterministic
//! given its seed and what the executor returns.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::execute::{Executor, Run, RunError};
use crate::sample::{Purpose, Sample};
use crate::schedule::{Schedule, Slot};
use crate::stats::random::{Random, Stream};
use crate::stats::stopping::{self, Next, Progress, Rule, Time};
use crate::stats::{self, SampleError};

/// How long to go on, and from which seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of the order, the padding, the bootstrap and the waste samples.
    pub seed: u64,
    /// Warm-up runs per arm.
    pub warm_ups: u32,
    /// The stopping rule.
    pub rule: Rule,
    /// Limit for the measured blocks together.
    pub max_seconds: Option<f64>,
}

/// Why the runs ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// Every arm's mean is known well enough.
    RuleMet,
    /// The most runs allowed were made.
    MaxRuns,
    /// The time allowed was spent.
    MaxTime,
}

/// What happens while it runs, for a progress bar.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run begins.
    Begins(Run),
    /// It ended.
    Ended(&'a Sample),
    /// A block is complete.
    Block(&'a Progress),
}

/// All runs, in the order they were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Warm-ups first.
    pub samples: Vec<Sample>,
    /// Why it ended.
    pub stopped: Stopped,
    /// Warm-ups included.
    pub elapsed: Duration,
}

/// Runs `arms` arms. The stopping rule is asked of wall time, and of the metric if there is one.
pub fn run(
    executor: &mut dyn Executor,
    arms: u32,
    settings: &Settings,
    observe: &mut dyn FnMut(Event),
) -> Result<Ran, RunError> {
    let began = Instant::now();
    let mut random = Random::new(settings.seed, Stream::Padding);
    let mut samples = Vec::new();
    let mut make =
        |at: Slot, purpose, samples: &mut Vec<Sample>, observe: &mut dyn FnMut(Event)| {
            let environment_padding = random.below(4096);
            let run = Run { at, purpose, environment_padding, seed: random.bits() };
            observe(Event::Begins(run));
            let sample = executor.execute(run)?;
            observe(Event::Ended(&sample));
            samples.push(sample);
            Ok::<(), RunError>(())
        };
    for round in 0..settings.warm_ups {
        for arm in 0..arms {
            make(Slot { block: round, slot: arm, arm }, Purpose::WarmUp, &mut samples, observe)?;
        }
    }
    let measured_from = Instant::now();
    let mut schedule = Schedule::new(arms, settings.seed);
    let mut blocks = 0;
    let stopped = loop {
        for _ in 0..schedule.block_len() {
            let slot = schedule.next().expect("the schedule of at least one arm is endless");
            make(slot, Purpose::Measured, &mut samples, observe)?;
        }
        blocks += 1;
        let progress = progress(&samples, arms, &settings.rule);
        observe(Event::Block(&progress));
        let limit = settings.max_seconds.map(Duration::from_secs_f64);
        let time = Time { elapsed: measured_from.elapsed(), limit };
        match stopping::next(&progress, blocks, &settings.rule, time) {
            Next::Block => {}
            Next::Enough => break Stopped::RuleMet,
            Next::MaxRuns => break Stopped::MaxRuns,
            Next::MaxTime => break Stopped::MaxTime,
        }
    };
    Ok(Ran { samples, stopped, elapsed: began.elapsed() })
}

/// One metric's samples as the statistics want them: measured runs that succeeded, or all.
pub fn values(samples: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Vec<stats::Sample> {
    let measured = samples.iter().filter(|sample| sample.purpose == Purpose::Measured);
    measured
        .filter_map(|sample| {
            let at = Slot { block: sample.block, slot: sample.slot, arm: sample.arm };
            Some(stats::Sample { at, value: of(sample)? })
        })
        .collect()
}

/// The least advanced of wall time and metric.
fn progress(samples: &[Sample], arms: u32, rule: &Rule) -> Progress {
    let of = |values: &[stats::Sample]| stopping::progress(values, arms, rule);
    let wall = of(&values(samples, |sample| Some(sample.wall_seconds)));
    let metric = values(samples, |sample| sample.metric);
    let judged: Vec<Progress> = [Some(wall), (!metric.is_empty()).then(|| of(&metric))]
        .into_iter()
        .flatten()
        .map(|judged: Result<Progress, SampleError>| judged.unwrap_or_else(|_| unknown(arms)))
        .collect();
    let least = judged.into_iter().min_by_key(|progress| {
        (progress.enough, std::cmp::Reverse(progress.estimated_runs_needed))
    });
    least.expect("wall time is always judged")
}

/// Samples that cannot be judged (a metric of a failed run) never stop an experiment early.
fn unknown(arms: u32) -> Progress {
    Progress {
        runs: 0,
        relative_half_width: vec![None; arms as usize],
        enough: false,
        estimated_runs_needed: None,
    }
}

#[cfg(test)]
mod tests;
