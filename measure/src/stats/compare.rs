//! One arm against the reference, one metric: the whole estimate. Called once per arm and metric.

use super::bootstrap::log_ratio_of_medians;
use super::describe::median;
use super::interval::{Interval, between_blocks, block_log_ratios, finite_exp, within_blocks};
use super::pairs::{Pair, Sample, SampleError, complete_blocks};
use super::randomization::{Randomization, hodges_lehmann, sign_flip};
use super::student::Confidence;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Seconds, faults, bytes.
    Lower,
    /// Rates.
    Higher,
}

/// How to estimate. All of it is recorded in the result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Two-sided, per comparison: with several arms or metrics the chance that *some* verdict is wrong
    /// adds up, and a caller who minds raises this.
    pub confidence: Confidence,
    /// Bootstrap resamples.
    pub resamples: NonZeroU32,
    /// Seed of every draw.
    pub seed: u64,
}

impl Settings {
    /// 99 %, 2 000 resamples (ten beyond each end of the interval).
    pub fn new(seed: u64) -> Settings {
        let resamples = NonZeroU32::MIN.saturating_add(1_999);
        Settings { confidence: Confidence::P99, resamples, seed }
    }
}

/// How many times better an arm is than the reference. Ratios are without unit; medians are in the
/// metric's base unit; unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The arm compared with.
    pub reference: u32,
    /// The arm in question.
    pub arm: u32,
    /// Which way the metric is better.
    pub better: Better,
    /// Complete blocks, two runs per arm in each: all that the figures below rest on.
    pub blocks: u32,
    /// Blocks begun in which one of the two arms lacks a run. Left out.
    pub dropped_blocks: u32,
    /// Median of the reference's samples.
    pub reference_median: f64,
    /// Median of the arm's samples.
    pub arm_median: f64,
    /// Ratio of medians, over 1 when the arm is better.
    pub speedup: f64,
    /// Where the true ratio lies: the hull of `parts` and `speedup`. Unknown under two blocks.
    pub interval: Option<Interval>,
    /// What the interval was made of.
    pub parts: Option<Parts>,
    /// A second estimate that one wild block moves little.
    pub hodges_lehmann: f64,
    /// Sign-flip test of "no difference": a second opinion, not what the verdict rests on.
    pub randomization: Randomization,
    /// The settings, so that this can be computed again.
    pub settings: Settings,
}

/// The three intervals whose hull is the answer; see the module's head for why three.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// Block bootstrap of the ratio of medians.
    pub bootstrap: Interval,
    /// Between blocks, of the better run of each arm: Student's t, or signed rank from ten blocks.
    pub between: Interval,
    /// Student's t within blocks; only with so few blocks that they may agree by accident.
    pub within: Option<Interval>,
}

/// Compare `arm` with `reference`. Samples of other arms are ignored, so all may be passed.
pub fn compare(
    samples: &[Sample],
    reference: u32,
    arm: u32,
    better: Better,
    settings: &Settings,
) -> Result<Comparison, SampleError> {
    let (pairs, dropped_blocks) = complete_blocks(samples, reference, arm)?;
    let (reference_median, arm_median) =
        (median_of(&pairs, |p| p.reference), median_of(&pairs, |p| p.arm));
    // In what follows a log ratio is positive when the arm is better.
    let log_speedup = match better {
        Better::Lower => reference_median.ln() - arm_median.ln(),
        Better::Higher => arm_median.ln() - reference_median.ln(),
    };
    let oriented: Vec<Pair> = match better {
        Better::Lower => pairs.clone(),
        Better::Higher => {
            pairs.iter().map(|p| Pair { reference: p.arm, arm: p.reference }).collect()
        }
    };
    let log_ratios = block_log_ratios(&pairs, better);
    let few = pairs.len() < ACCIDENTS_UNDER;
    let confidence = if few { settings.confidence } else { stricter(settings.confidence) };
    let parts = between_blocks(&log_ratios, confidence).map(|between| Parts {
        bootstrap: log_ratio_of_medians(
            &oriented,
            settings.confidence,
            settings.resamples,
            settings.seed,
        ),
        between,
        within: few.then(|| within_blocks(&pairs, better, settings.confidence)),
    });
    let hull = parts.map(|p| {
        let point = Interval { low: log_speedup, high: log_speedup };
        p.bootstrap.hull(p.between).hull(p.within.unwrap_or(point)).hull(point)
    });
    Ok(Comparison {
        reference,
        arm,
        better,
        blocks: pairs.len() as u32,
        dropped_blocks,
        reference_median,
        arm_median,
        speedup: finite_exp(log_speedup),
        interval: hull.map(Interval::exp),
        parts: parts.map(|p| Parts {
            bootstrap: p.bootstrap.exp(),
            between: p.between.exp(),
            within: p.within.map(Interval::exp),
        }),
        hodges_lehmann: finite_exp(hodges_lehmann(&log_ratios).unwrap_or(log_speedup)),
        randomization: sign_flip(&log_ratios, settings.seed),
        settings: *settings,
    })
}

/// Under so many blocks, those may agree by accident, and only the runs inside them know better.
const ACCIDENTS_UNDER: usize = 6;

/// Half the error of `confidence`: the interval between blocks alone would just keep its promise,
/// and a promise that is to be *shown* kept by a few thousand experiments needs room.
fn stricter(confidence: Confidence) -> Confidence {
    Confidence::new(1.0 - confidence.tail()).unwrap_or(confidence)
}

fn median_of(pairs: &[Pair], of: fn(&Pair) -> [f64; 2]) -> f64 {
    let mut values: Vec<f64> = pairs.iter().flat_map(of).collect();
    // Never empty: there is at least one complete block.
    median(&mut values).unwrap_or(f64::NAN)
}
