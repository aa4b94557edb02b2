//! Compares one arm with the reference in one metric. Called once per arm and metric.

use super::describe::median;
use super::interval::{Interval, finite_exp, ranked, student, tick};
use super::pairs::{Pair, Sample, SampleError, complete_blocks};
use super::randomization::{Randomization, hodges_lehmann, sign_flip};
use super::student::Confidence;
use serde::{Deserialize, Serialize};

/// The better direction of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Lower values are better: seconds, faults, bytes.
    Lower,
    /// Higher values are better: rates.
    Higher,
}

/// Parameters of the estimate. The result records them all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// Two-sided confidence of each comparison. With several arms or metrics, the probabilities that *some* verdict is
    /// wrong add up; a caller may raise the confidence for this.
    pub confidence: Confidence,
    /// Level of the interval if the results decided when to stop. It is higher than `confidence`, so that `confidence`
    /// holds ([`stopping`](super::stopping)).
    pub level: Confidence,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Settings {
    /// Returns settings with 99 % confidence, for a fixed number of runs.
    pub fn new(seed: u64) -> Settings {
        Settings { confidence: Confidence::P99, level: Confidence::P99, seed }
    }
}

/// Speedup of an arm over the reference. Ratios have no unit; medians are in the metric's base unit; unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The reference arm.
    pub reference: u32,
    /// The compared arm.
    pub arm: u32,
    /// The better direction of the metric.
    pub better: Better,
    /// Number of complete blocks, with two runs per arm each. All figures below use only these blocks.
    pub blocks: u32,
    /// Number of incomplete blocks, in which one of the two arms lacks a run. They are left out.
    pub dropped_blocks: u32,
    /// Median of the reference's samples.
    pub reference_median: f64,
    /// Median of the arm's samples.
    pub arm_median: f64,
    /// Ratio of the medians; above 1 if the arm is better.
    pub speedup: f64,
    /// Interval of the true ratio: the intersection of `parts`, no wider than the spread of the runs, extended to
    /// contain `speedup`. Unknown with fewer than two blocks.
    pub interval: Option<Interval>,
    /// The intervals that were combined.
    pub parts: Option<Parts>,
    /// For each block, the logarithm of the speedup of the arm's runs over the reference's.
    #[serde(skip)]
    pub log_ratios: Vec<f64>,
    /// The settings, so that the result can be reproduced.
    pub settings: Settings,
}

impl Comparison {
    /// Returns a second estimate of the speedup, robust against single outlier blocks.
    pub fn hodges_lehmann(&self) -> f64 {
        hodges_lehmann(&self.log_ratios).map_or(self.speedup, finite_exp)
    }

    /// Tests "no difference" with the sign-flip test. The verdict does not use the result.
    pub fn randomization(&self) -> Randomization {
        sign_flip(&self.log_ratios, self.settings.seed)
    }

    /// Returns the half width of the interval, as a fraction.
    pub fn half_width(&self) -> Option<f64> {
        self.interval.map(|interval| ((interval.high / interval.low).ln() / 2.0).exp_m1())
    }
}

/// The intervals whose intersection is the answer; the module's head says why there are two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// Student's t on the geometric means.
    pub student: Interval,
    /// van Elteren's ranks inside blocks, if there are enough blocks.
    pub ranked: Option<Interval>,
}

/// Compares `arm` with `reference`. Ignores samples of other arms, so the caller may pass all.
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
    // From here on, a log ratio is positive if the arm is better.
    let turn = match better {
        Better::Lower => 1.0,
        Better::Higher => -1.0,
    };
    let log_speedup = turn * (reference_median.ln() - arm_median.ln());
    let log_ratios = pairs.iter().map(|pair| turn * pair.log_ratio_of_means()).collect();
    let parts = parts(&pairs, settings.level).map(|parts| match better {
        Better::Lower => parts,
        Better::Higher => {
            Parts { student: parts.student.negated(), ranked: parts.ranked.map(Interval::negated) }
        }
    });
    let interval = parts.map(|parts| {
        let agreed = parts.ranked.map_or(parts.student, |ranked| parts.student.and(ranked));
        let interval = agreed.and(farthest(&pairs, log_speedup)).with(log_speedup);
        let [low, high] = rounded(&pairs);
        let rounded = Interval { low: -high, high: -low };
        interval.over(if better == Better::Lower { rounded } else { rounded.negated() })
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
        interval: interval.map(Interval::exp),
        parts: parts
            .map(|p| Parts { student: p.student.exp(), ranked: p.ranked.map(Interval::exp) }),
        log_ratios,
        settings: *settings,
    })
}

fn parts(pairs: &[Pair], confidence: Confidence) -> Option<Parts> {
    let ranked = ranked(pairs, confidence.of_error(0.5));
    // The narrower end of each interval wins, and either interval may be wrong, so each gets half of the error.
    let share = if ranked.is_some() { 0.5 } else { 1.0 };
    Some(Parts { student: student(pairs, confidence.of_error(share))?, ranked })
}

/// Returns an interval whose half width is the range of the reference's runs plus that of the arm's. No run supports a
/// ratio farther from the estimate. This bounds the interval of few runs.
fn farthest(pairs: &[Pair], log_speedup: f64) -> Interval {
    let tick = tick(pairs);
    let range = |of: fn(&Pair) -> [f64; 2]| {
        let values = || pairs.iter().flat_map(of);
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        high.ln() - low.ln() + tick / low
    };
    Interval::around(log_speedup, range(|pair| pair.reference) + range(|pair| pair.arm))
}

/// Returns the log ratio's bounds before rounding, if all values of an arm lie on one tick or two adjacent ticks. More
/// runs do not help then, because each is rounded alike. Otherwise returns no bounds: the mean of spread values is more
/// precise than each value.
fn rounded(pairs: &[Pair]) -> [f64; 2] {
    let tick = tick(pairs);
    let range = |of: fn(&Pair) -> [f64; 2]| {
        let mut values: Vec<f64> = pairs.iter().flat_map(of).collect();
        let (low, high) =
            values.iter().fold((f64::MAX, 0.0f64), |(low, high), it| (low.min(*it), high.max(*it)));
        let middle = median(&mut values).unwrap_or(f64::NAN);
        let half = if high - low <= 1.5 * tick { tick / 2.0 } else { 0.0 };
        [(middle - half).max(middle / 1e3).ln(), (middle + half).ln()]
    };
    let ([reference_low, reference_high], [arm_low, arm_high]) =
        (range(|pair| pair.reference), range(|pair| pair.arm));
    [arm_low - reference_high, arm_high - reference_low]
}

fn median_of(pairs: &[Pair], of: fn(&Pair) -> [f64; 2]) -> f64 {
    let mut values: Vec<f64> = pairs.iter().flat_map(of).collect();
    // Not empty, because there is at least one complete block.
    median(&mut values).unwrap_or(f64::NAN)
}
