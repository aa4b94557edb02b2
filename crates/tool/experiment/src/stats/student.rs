//! Quantiles of Student's t, and the number of blocks for a given interval width.

use serde::{Deserialize, Serialize};
use std::f64::consts::FRAC_2_PI;

/// A two-sided confidence level, e.g. 0.99. Always in `0.5 ..= 0.9999`, because a handful of blocks cannot support
/// more.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Confidence(f64);

impl TryFrom<f64> for Confidence {
    type Error = &'static str;
    fn try_from(level: f64) -> Result<Self, Self::Error> {
        Self::new(level).ok_or("a confidence lies between 0.5 and 0.9999")
    }
}

impl From<Confidence> for f64 {
    fn from(confidence: Confidence) -> f64 {
        confidence.0
    }
}

impl Confidence {
    /// 99 %.
    pub const P99: Confidence = Confidence(0.99);

    /// Returns the level as a [`Confidence`]; `None` outside `0.5 ..= 0.9999`.
    pub fn new(level: f64) -> Option<Confidence> {
        (0.5..=0.9999).contains(&level).then_some(Confidence(level))
    }

    /// Returns the level as a fraction.
    pub fn level(self) -> f64 {
        self.0
    }

    /// Returns the confidence level with this share of the error.
    pub fn of_error(self, share: f64) -> Confidence {
        Confidence(1.0 - (1.0 - self.0) * share.max(MIN_SHARE))
    }

    /// Returns the one-sided tail probability: 0.005 for 99 %.
    pub fn tail(self) -> f64 {
        (1.0 - self.0) / 2.0
    }
}

/// Minimum share of the error (a hundred-thousandth of 1 %): the spread of runs is not known more precisely.
const MIN_SHARE: f64 = 1e-3;

/// Like [`t_quantile`], for fractional degrees of freedom (less than 1 counts as 1). Interpolates: the quantile's
/// logarithm is nearly linear in the reciprocal of the degrees of freedom.
pub fn t_between(confidence: Confidence, freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    let low = freedom.floor();
    let [at_low, at_high] = [low, low + 1.0].map(|whole| t_quantile(confidence, whole as u32));
    let part = (1.0 / low - 1.0 / freedom) * low * (low + 1.0);
    at_low * (at_high / at_low).powf(part)
}

/// Returns the `t` with `P(|T| <= t) = confidence` for `freedom` degrees of freedom (0 counts as 1).
///
/// Uses Newton's method on the exact finite series, in the angle `atan(t / sqrt(freedom))`. The probability is
/// increasing and concave in the angle, so from angle 0 each step stops short of the root: it never overshoots and
/// needs no bracket. Rejected: Hill's approximation (CACM 396), which errs in the fifth digit at one and two degrees of
/// freedom, where precision matters most.
pub fn t_quantile(confidence: Confidence, freedom: u32) -> f64 {
    let freedom = freedom.max(1);
    let mut angle = 0.0;
    for _ in 0..100 {
        let (probability, slope) = central_probability(angle, freedom);
        let step = (confidence.level() - probability) / slope;
        angle += step;
        if step <= angle * 1e-15 {
            break;
        }
    }
    angle.tan() * f64::from(freedom).sqrt()
}

/// Returns `P(|T| <= sqrt(freedom) * tan(angle))` and its derivative by exact finite sums: Abramowitz and Stegun 26.7.3
/// (odd) and 26.7.4 (even). The derivative is the last term times `(freedom - 1) cos(angle)`.
fn central_probability(angle: f64, freedom: u32) -> (f64, f64) {
    let (sine, cosine) = angle.sin_cos();
    if freedom == 1 {
        return (FRAC_2_PI * angle, FRAC_2_PI);
    }
    let odd = freedom % 2 == 1;
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = term;
    for power in ((if odd { 3 } else { 2 })..freedom - 1).step_by(2) {
        term *= cosine * cosine * f64::from(power - 1) / f64::from(power);
        sum += term;
    }
    let slope = term * f64::from(freedom - 1) * cosine;
    if odd { (FRAC_2_PI * (angle + sine * sum), FRAC_2_PI * slope) } else { (sine * sum, slope) }
}

/// Maximum number of blocks that [`blocks_until`] returns (10 000 runs per arm); more are not worth trying.
pub const MAX_BLOCKS: u32 = 5_000;

/// Returns the number of blocks, more than `blocks`, at which a half width of `now` would have shrunk to `target` with
/// the same spread. The width is proportional to `t(3 * blocks - 1) / sqrt(blocks)`. At most [`MAX_BLOCKS`].
pub fn blocks_until(now: f64, blocks: u32, target: f64, confidence: Confidence) -> u32 {
    let shrink = |k: u32| t_quantile(confidence, 3 * k - 1) / f64::from(k).sqrt();
    let first = blocks.max(1) + 1;
    let wanted = target / now * shrink(blocks.max(2));
    // Double first: the answer is usually near, and the cost of `shrink` grows with the number of blocks.
    let (mut enough, mut short) = (first, first - 1);
    while enough < MAX_BLOCKS && shrink(enough) > wanted {
        (short, enough) = (enough, (2 * enough).min(MAX_BLOCKS));
    }
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if shrink(middle) <= wanted {
            enough = middle;
        } else {
            short = middle;
        }
    }
    enough
}
