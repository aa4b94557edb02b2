//! The intervals between blocks and within them. In logarithms of ratios.

use super::compare::Better;
use super::describe::{mean, variance};
use super::pairs::Pair;
use super::signed_rank::signed_rank;
use super::student::{Confidence, t_quantile};
use serde::Serialize;

/// Two ends, `low <= high`. Finite and above zero when it holds ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` lies in it, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The smallest interval that holds both.
    pub(crate) fn hull(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// From logarithms to ratios, kept inside the finite positive numbers.
    pub(crate) fn exp(self) -> Interval {
        Interval { low: finite_exp(self.low), high: finite_exp(self.high) }
    }

    pub(crate) fn around(centre: f64, half: f64) -> Interval {
        Interval { low: centre - half, high: centre + half }
    }
}

/// `exp`, kept inside the finite positive numbers: an interval end is never 0 or infinite.
pub(crate) fn finite_exp(log: f64) -> f64 {
    log.exp().clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// Logarithm of how many times better the arm was, per block: of the better of its two runs against
/// the better of the reference's two. Drift shared by the block is gone from it, and so is a burst
/// of disturbance that left each arm one run. Both arms are treated alike, so the truth is where it
/// was: a common factor of all an arm's runs is one of their minima (and maxima) too.
pub(crate) fn block_log_ratios(pairs: &[Pair], better: Better) -> Vec<f64> {
    let best = |[a, b]: [f64; 2]| match better {
        Better::Lower => a.min(b).ln(),
        Better::Higher => -a.max(b).ln(),
    };
    pairs.iter().map(|p| best(p.reference) - best(p.arm)).collect()
}

/// From here on the signed-rank interval, which a few wild blocks cannot widen, takes the place of
/// Student's t, which is narrower with few blocks. Decided by the number of blocks alone: choosing
/// the narrower of two intervals would spoil both.
const RANKED_FROM: usize = 10;

/// Between the per-block log ratios; `None` under two blocks.
///
/// Blind when blocks agree by chance: with one slow run (of two) in the same arm of each of three
/// blocks, they agree perfectly on a wrong value.
pub(crate) fn between_blocks(log_ratios: &[f64], confidence: Confidence) -> Option<Interval> {
    let blocks = log_ratios.len();
    if blocks < 2 {
        return None;
    }
    if blocks >= RANKED_FROM
        && let Some(ranked) = signed_rank(log_ratios, confidence)
    {
        return Some(ranked);
    }
    let error = (variance(log_ratios) / blocks as f64).sqrt();
    let half = t_quantile(confidence, blocks as u32 - 1) * error;
    Some(Interval::around(mean(log_ratios), half))
}

/// Student's t on how far an arm's two runs in the same block lie apart, degrees of freedom after
/// Welch and Satterthwaite, rounded down.
///
/// Blind to anything that changes from block to block; sees what [`between_blocks`] misses.
pub(crate) fn within_blocks(pairs: &[Pair], better: Better, confidence: Confidence) -> Interval {
    let blocks = pairs.len() as f64;
    let spread = |of: fn(&Pair) -> [f64; 2]| {
        let squares = pairs.iter().map(|p| {
            let [a, b] = of(p).map(f64::ln);
            (a - b) * (a - b) / 2.0
        });
        squares.sum::<f64>() / blocks
    };
    let (reference, arm) = (spread(|p| p.reference), spread(|p| p.arm));
    let error = ((reference + arm) / (2.0 * blocks)).sqrt();
    let welch = blocks * (reference + arm).powi(2) / (reference.powi(2) + arm.powi(2));
    let freedom = if welch.is_finite() { welch as u32 } else { pairs.len() as u32 };
    let mean_log = |[a, b]: [f64; 2]| (a.ln() + b.ln()) / 2.0;
    let difference = |p: &Pair| mean_log(p.reference) - mean_log(p.arm);
    let centre = mean(&pairs.iter().map(difference).collect::<Vec<f64>>());
    let half = t_quantile(confidence, freedom) * error;
    match better {
        Better::Lower => Interval::around(centre, half),
        Better::Higher => Interval::around(-centre, half),
    }
}
