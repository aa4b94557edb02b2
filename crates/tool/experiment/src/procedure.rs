//! Runs an experiment: warm-ups, then ABBA blocks until the stopping rule is met.
//!
//! This module decides the order of runs and when to stop; an [`Executor`] makes the runs. The same seed and executor
//! results give the same experiment.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::execute::{Executor, Run, RunError};
use crate::sample::{Purpose, Sample};
use crate::schedule::{Schedule, Slot};
use crate::spread;
use crate::stats::random::{Random, Stream};
use crate::stats::stopping::{self, End, Looks, Next, Progress, Rule, Time};
use crate::stats::{self, Better};
use crate::verdict::{Effect, Margin, Verdict, verdict};

/// Stopping rule, limits and seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of the run order, of the environment padding, and of the samples of wasted memory.
    pub seed: u64,
    /// Warm-up runs per arm.
    pub warm_ups: u32,
    /// The stopping rule.
    pub rule: Rule,
    /// Time limit in seconds, from the first warm-up. If it is extended: for all measured blocks together.
    #[serde(deserialize_with = "units::seconds")]
    pub max_seconds: Option<f64>,
    /// Soft limit in seconds: the second block is always made. If this exceeds the time limit (when `--max-time` was not
    /// given), the time is extended up to it until each arm has a few runs.
    #[serde(default, deserialize_with = "units::seconds")]
    pub patience_seconds: Option<f64>,
}

impl Settings {
    /// Returns the time limit from the first warm-up until the answer; `None`: there is no limit, or it is extended.
    pub fn limit_with_warm_ups(&self) -> Option<Duration> {
        let limit = self.max_seconds.filter(|_| self.patience_seconds <= self.max_seconds);
        limit.map(Duration::from_secs_f64)
    }

    /// Returns the number of blocks that are made even if the time limit is too short.
    pub fn guaranteed_blocks(&self) -> u32 {
        1 + u32::from(self.patience_seconds.is_some())
    }
}

/// Parameters of the verdicts that the stopping rule needs.
#[derive(Clone, Debug)]
pub struct Question {
    /// Minimum difference that matters.
    pub margin: Margin,
    /// The better direction of each metric, in the order of [`Sample::metric_at`].
    pub metrics_better: Vec<Better>,
}

impl Default for Question {
    fn default() -> Self {
        Self { margin: Margin::default(), metrics_better: vec![Better::Higher] }
    }
}

/// Why the runs ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// Every ratio is known precisely enough.
    RuleMet,
    /// Every verdict is decided, after at least a minute.
    Decided,
    /// Equal runs differed more than the rule allows.
    Deviation,
    /// The maximum number of runs was made.
    MaxRuns,
    /// The time limit was reached.
    MaxTime,
    /// The user stopped the experiment.
    Interrupted,
}

impl Stopped {
    /// Classifies the reason by its effect on the error rate.
    pub fn end(self) -> End {
        match self {
            Self::Decided => End::Decided,
            Self::RuleMet => End::Enough,
            Self::Deviation | Self::MaxRuns | Self::MaxTime | Self::Interrupted => End::Other,
        }
    }
}

/// Progress events, for a progress bar.
#[derive(Debug)]
pub enum Event<'a> {
    /// The time limit is too short for an answer: two blocks. Told after the warm-ups, from whose durations it is known.
    Short {
        /// Estimated time until the end of the first block.
        one_block: Duration,
        /// Estimated time until an answer.
        needed: Duration,
        /// The limit.
        limit: Duration,
    },
    /// A run begins.
    Begins(Run),
    /// A run ended.
    Ended(&'a Sample),
    /// A block is complete. The number is the maximum number of runs per arm that limits and time allow.
    Block(&'a Progress, u32),
}

/// All runs, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The samples, warm-ups first.
    pub samples: Vec<Sample>,
    /// Why the experiment ended.
    pub stopped: Stopped,
    /// Interim looks at the verdicts.
    pub looks: Looks,
    /// Duration, including warm-ups.
    pub elapsed: Duration,
}

/// Runs the experiment with this number of arms. The stopping rule applies to wall time and to every metric.
///
/// If interrupted after a complete block, returns the samples of all completed runs.
pub fn run(
    executor: &mut dyn Executor,
    arms: u32,
    settings: &Settings,
    question: &Question,
    observe: &mut dyn FnMut(Event),
) -> Result<Ran, RunError> {
    let began = Instant::now();
    run_by(&|| began.elapsed(), executor, arms, settings, question, observe)
}

/// Like [`run`], with a custom clock.
pub fn run_by(
    clock: &dyn Fn() -> Duration,
    executor: &mut dyn Executor,
    arms: u32,
    settings: &Settings,
    question: &Question,
    observe: &mut dyn FnMut(Event),
) -> Result<Ran, RunError> {
    let mut looks = Looks::default();
    let mut samples = Vec::new();
    let made =
        run_blocks(clock, executor, arms, settings, question, &mut looks, &mut samples, observe);
    let stopped = match made {
        Err(RunError::Interrupted) if has_block(&samples, arms) => Stopped::Interrupted,
        made => made?,
    };
    Ok(Ran { samples, stopped, looks, elapsed: clock() })
}

#[allow(clippy::too_many_arguments)] // output parameters, because they must survive a failure
fn run_blocks(
    clock: &dyn Fn() -> Duration,
    executor: &mut dyn Executor,
    arms: u32,
    settings: &Settings,
    question: &Question,
    looks: &mut Looks,
    samples: &mut Vec<Sample>,
    observe: &mut dyn FnMut(Event),
) -> Result<Stopped, RunError> {
    let mut random = Random::new(settings.seed, Stream::Padding);
    let mut run_slot =
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
            run_slot(Slot { block: round, slot: arm, arm }, Purpose::WarmUp, samples, observe)?;
        }
    }
    let rule = &settings.rule;
    let measured_from = clock();
    let [limit, patience] = [settings.max_seconds, settings.patience_seconds]
        .map(|seconds| seconds.map(Duration::from_secs_f64));
    let with_warm_ups = settings.limit_with_warm_ups();
    let left = with_warm_ups.map(|limit| limit.saturating_sub(measured_from)).or(limit);
    if let Some(limit) = with_warm_ups.filter(|_| settings.warm_ups > 0) {
        let block = 2 * (measured_from / settings.warm_ups);
        let needed = measured_from + MIN_BLOCKS * block;
        if needed > limit {
            observe(Event::Short { one_block: measured_from + block, needed, limit });
        }
    }
    let mut schedule = Schedule::new(arms, settings.seed);
    for begun in 1.. {
        for _ in 0..schedule.block_len() {
            let slot = schedule.next().expect("the schedule of at least one arm is endless");
            run_slot(slot, Purpose::Measured, samples, observe)?;
        }
        let progress = progress(samples, arms, settings, question, looks, End::Enough);
        let elapsed = clock().saturating_sub(measured_from);
        let time = Time { elapsed, limit: left, patience };
        let most = time.blocks(begun).unwrap_or(u32::MAX).min(stopping::max_blocks(rule));
        observe(Event::Block(&progress, 2 * most.max(begun)));
        if begun == stopping::min_blocks(rule) && time.is_half_left() {
            let figures = question.metrics_better.len();
            let deviation = spread::widest(samples, arms, figures).map(|widest| widest.deviation);
            if deviation.zip(rule.max_deviation).is_some_and(|(found, most)| found > most) {
                return Ok(Stopped::Deviation);
            }
        }
        let next = stopping::next(&progress, begun, rule, time);
        if next != Next::Enough && looks.is_due(begun, rule, time) {
            looks.record(begun);
            if self::progress(samples, arms, settings, question, looks, End::Decided).decided {
                return Ok(Stopped::Decided);
            }
        }
        match next {
            Next::Block => {}
            Next::Enough => return Ok(Stopped::RuleMet),
            Next::MaxRuns => return Ok(Stopped::MaxRuns),
            Next::MaxTime => return Ok(Stopped::MaxTime),
        }
    }
    unreachable!("an endless range ended")
}

/// The least number of blocks that give an interval.
const MIN_BLOCKS: u32 = 2;

fn has_block(samples: &[Sample], arms: u32) -> bool {
    let first = |sample: &&Sample| sample.purpose == Purpose::Measured && sample.block == 0;
    samples.iter().filter(first).count() as u32 == 2 * arms
}

/// Returns one metric's values of the measured runs. Failed runs are among `samples` only if they count.
pub fn values(samples: &[Sample], of: impl Fn(&Sample) -> Option<f64>) -> Vec<stats::Sample> {
    let measured = samples.iter().filter(|sample| sample.purpose == Purpose::Measured);
    measured
        .filter_map(|sample| {
            let at = Slot { block: sample.block, slot: sample.slot, arm: sample.arm };
            Some(stats::Sample { at, value: of(sample)? })
        })
        .collect()
}

/// "The same" ends an experiment only when the ratio is known within this many times the required precision. Arms that
/// may be equal within 5 % may really differ by 3 %, and then more runs help.
const SAME_ENOUGH: f64 = 1.5;

/// Returns the precision of the ratios if the runs end here.
fn progress(
    samples: &[Sample],
    arms: u32,
    settings: &Settings,
    question: &Question,
    looks: &Looks,
    end: End,
) -> Progress {
    let wall = values(samples, |sample| Some(sample.wall_seconds));
    let blocks = wall.len() as u32 / (2 * arms);
    let metrics = question
        .metrics_better
        .iter()
        .enumerate()
        .map(|(index, better)| (values(samples, |sample| sample.metric_at(index)), *better));
    let metrics = metrics.filter(|(values, _)| !values.is_empty());
    let quantities: Vec<_> = std::iter::once((wall, Better::Lower)).chain(metrics).collect();
    let (confidence, seed) = (settings.rule.confidence, settings.seed);
    let estimate = stats::Settings { confidence, level: looks.level(confidence, end), seed };
    let known = precision(&quantities, arms, &settings.rule, &estimate, &question.margin);
    Progress { blocks: known.blocks.min(blocks), ..known }
}

/// Returns how precisely the ratios of all arms to the first are known, in all quantities.
pub(crate) fn precision(
    quantities: &[(Vec<stats::Sample>, Better)],
    arms: u32,
    rule: &Rule,
    estimate: &stats::Settings,
    margin: &Margin,
) -> Progress {
    let mut all = Progress { blocks: u32::MAX, half_width: Some(0.0), decided: true };
    for (values, better) in quantities {
        for arm in 1..arms {
            // Incomparable values, such as a metric of a failed run, never stop an experiment early.
            let compared = stats::compare(values, 0, arm, *better, estimate);
            let half = compared.as_ref().ok().and_then(|compared| compared.half_width());
            all.half_width = all.half_width.zip(half).map(|(all, half)| all.max(half));
            all.blocks = all.blocks.min(compared.as_ref().map_or(0, |compared| compared.blocks));
            let word = verdict(&Effect::AsPromised, compared.as_ref(), margin);
            all.decided &= match word {
                Verdict::Same { within, .. } => within <= SAME_ENOUGH * rule.within,
                Verdict::Undecided { .. } | Verdict::NoData { .. } => false,
                _ => true,
            };
        }
    }
    all
}

#[cfg(test)]
mod tests;
