//! The experiment: warm-ups, then ABBA blocks until the stopping rule is met.
//!
//! Owns the order of runs and the decision to go on; an [`Executor`] makes the runs. Deterministic
//! given its seed and what the executor returns.

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

/// How long to go on, and from which seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of the order, the padding and the waste samples.
    pub seed: u64,
    /// Warm-up runs per arm.
    pub warm_ups: u32,
    /// The stopping rule.
    pub rule: Rule,
    /// Limit for the measured blocks together.
    #[serde(deserialize_with = "units::seconds")]
    pub max_seconds: Option<f64>,
    /// Soft limit in seconds, used when `--max-time` was not given: the time is extended up to this for a few
    /// runs of each arm.
    #[serde(default, deserialize_with = "units::seconds")]
    pub patience_seconds: Option<f64>,
}

/// What is asked of the runs: a rule that looks at verdicts must know them.
#[derive(Clone, Debug)]
pub struct Question {
    /// How large a difference is worth a word.
    pub margin: Margin,
    /// Which way each metric is better, in the order of [`Sample::metric_at`].
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
    /// Every ratio is known well enough.
    RuleMet,
    /// After a minute: every verdict is decided.
    Decided,
    /// Equal runs differed by more than the rule allows.
    Deviation,
    /// The most runs allowed were made.
    MaxRuns,
    /// The time allowed was spent.
    MaxTime,
    /// Somebody stopped them.
    Interrupted,
}

impl Stopped {
    /// As it matters to the error.
    pub fn end(self) -> End {
        match self {
            Self::Decided => End::Decided,
            Self::RuleMet => End::Enough,
            Self::Deviation | Self::MaxRuns | Self::MaxTime | Self::Interrupted => End::Other,
        }
    }
}

/// What happens while it runs, for a progress bar.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run begins.
    Begins(Run),
    /// It ended.
    Ended(&'a Sample),
    /// A block is complete; most runs per arm that number and time allow.
    Block(&'a Progress, u32),
}

/// All runs, in the order they were made.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// Warm-ups first.
    pub samples: Vec<Sample>,
    /// Why it ended.
    pub stopped: Stopped,
    /// Looks at the verdicts meanwhile.
    pub looks: Looks,
    /// Warm-ups included.
    pub elapsed: Duration,
}

/// Runs `arms` arms. The stopping rule is asked of wall time and of every metric.
///
/// Interrupted after a complete block, it returns what there is.
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

/// The same by a clock of one's own.
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
    let made = make(clock, executor, arms, settings, question, &mut looks, &mut samples, observe);
    let stopped = match made {
        Err(RunError::Interrupted) if has_block(&samples, arms) => Stopped::Interrupted,
        made => made?,
    };
    Ok(Ran { samples, stopped, looks, elapsed: clock() })
}

#[allow(clippy::too_many_arguments)] // What it fills must outlive its failure.
fn make(
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
            make(Slot { block: round, slot: arm, arm }, Purpose::WarmUp, samples, observe)?;
        }
    }
    let rule = &settings.rule;
    let measured_from = clock();
    let mut schedule = Schedule::new(arms, settings.seed);
    for begun in 1.. {
        for _ in 0..schedule.block_len() {
            let slot = schedule.next().expect("the schedule of at least one arm is endless");
            make(slot, Purpose::Measured, samples, observe)?;
        }
        let progress = progress(samples, arms, settings, question, looks, End::Enough);
        let elapsed = clock().saturating_sub(measured_from);
        let [limit, patience] = [settings.max_seconds, settings.patience_seconds]
            .map(|seconds| seconds.map(Duration::from_secs_f64));
        let time = Time { elapsed, limit, patience };
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
            looks.make(begun);
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

/// Whether a whole block of all arms was measured.
fn has_block(samples: &[Sample], arms: u32) -> bool {
    let first = |sample: &&Sample| sample.purpose == Purpose::Measured && sample.block == 0;
    samples.iter().filter(first).count() as u32 == 2 * arms
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

/// "The same" ends an experiment once it is known within so many times what the rule wants of a ratio: two
/// arms that may be equal within 5 % may differ by 3 %, and then more runs tell.
const SAME_ENOUGH: f64 = 1.5;

/// How well the ratios are known if the runs end so.
fn progress(
    samples: &[Sample],
    arms: u32,
    settings: &Settings,
    question: &Question,
    looks: &Looks,
    end: End,
) -> Progress {
    let wall = values(samples, |sample| Some(sample.wall_seconds));
    let metrics = question
        .metrics_better
        .iter()
        .enumerate()
        .map(|(index, better)| (values(samples, |sample| sample.metric_at(index)), *better));
    let metrics = metrics.filter(|(values, _)| !values.is_empty());
    let rule = &settings.rule;
    let (confidence, seed) = (rule.confidence, settings.seed);
    let estimate = stats::Settings { confidence, level: looks.level(confidence, end), seed };
    let blocks = |samples: &[stats::Sample]| samples.len() as u32 / (2 * arms);
    let mut all = Progress { blocks: blocks(&wall), half_width: Some(0.0), decided: true };
    for (values, better) in std::iter::once((wall, Better::Lower)).chain(metrics) {
        for arm in 1..arms {
            // Values that cannot be compared (a metric of a failed run) never stop an experiment early.
            let compared = stats::compare(&values, 0, arm, better, &estimate);
            let half = compared.as_ref().ok().and_then(|compared| compared.half_width());
            all.half_width = all.half_width.zip(half).map(|(all, half)| all.max(half));
            all.blocks = all.blocks.min(compared.as_ref().map_or(0, |compared| compared.blocks));
            let word = verdict(&Effect::AsPromised, compared.as_ref(), &question.margin);
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
