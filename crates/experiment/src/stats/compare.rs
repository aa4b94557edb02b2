//! One arm against the reference, one metric: the whole estimate. Called once per arm and metric.

use super::describe::median;
use super::interval::{Interval, finite_exp, ranked, student, tick};
use super::pairs::{Pair, Sample, SampleError, complete_blocks};
use super::randomization::{Randomization, hodges_lehmann, sign_flip};
use super::student::Confidence;
use serde::{Deserialize, Serialize};

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
    /// What the interval is computed at, where runs were ended by what they showed: higher, so that
    /// `confidence` is kept ([`stopping`](super::stopping)).
    pub level: Confidence,
    /// Seed of every draw.
    pub seed: u64,
}

impl Settings {
    /// 99 %, of runs whose number was fixed.
    pub fn new(seed: u64) -> Settings {
        Settings { confidence: Confidence::P99, level: Confidence::P99, seed }
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
    /// Where the true ratio lies: what `parts` agree on, no farther than the runs themselves lie
    /// apart, and `speedup`. Unknown under two blocks.
    pub interval: Option<Interval>,
    /// What the interval was made of.
    pub parts: Option<Parts>,
    /// Per block, logarithm of how many times better the arm's runs were than the reference's.
    #[serde(skip)]
    pub log_ratios: Vec<f64>,
    /// The settings, so that this can be computed again.
    pub settings: Settings,
}

impl Comparison {
    /// A second estimate that one wild block moves little.
    pub fn hodges_lehmann(&self) -> f64 {
        hodges_lehmann(&self.log_ratios).map_or(self.speedup, finite_exp)
    }

    /// Sign-flip test of "no difference": a second opinion, not what the verdict rests on.
    pub fn randomization(&self) -> Randomization {
        sign_flip(&self.log_ratios, self.settings.seed)
    }

    /// How far the interval reaches to either side of its middle, as a fraction.
    pub fn half_width(&self) -> Option<f64> {
        self.interval.map(|interval| ((interval.high / interval.low).ln() / 2.0).exp_m1())
    }
}

/// The intervals of which the answer is the narrower at both ends; see the module's head for why two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// Student's t, of the geometric means.
    pub student: Interval,
    /// Ranks of runs inside blocks; where there are blocks enough.
    pub ranked: Option<Interval>,
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
    // Whichever is narrower is taken, and either may be wrong: each has half of the error.
    let share = if ranked.is_some() { 0.5 } else { 1.0 };
    Some(Parts { student: student(pairs, confidence.of_error(share))?, ranked })
}

/// No run says anything of ratios farther from the estimate than runs lie apart: the range of the
/// reference's and the range of the arm's, together. It bounds what few runs leave open.
fn farthest(pairs: &[Pair], log_speedup: f64) -> Interval {
    let tick = tick(pairs);
    let range = |of: fn(&Pair) -> [f64; 2]| {
        let values = || pairs.iter().flat_map(of);
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        high.ln() - low.ln() + tick / low
    };
    Interval::around(log_speedup, range(|pair| pair.reference) + range(|pair| pair.arm))
}

/// The log ratios of the arm to the reference that may have been rounded to these values, where all values of either lie on
/// one tick or two beside each other: however many runs there are, each was rounded alike. Values that lie farther apart
/// are not counted on either side: their mean says more than each of them.
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
    // Never empty: there is at least one complete block.
    median(&mut values).unwrap_or(f64::NAN)
}
