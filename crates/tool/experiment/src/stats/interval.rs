//! The two confidence intervals that are combined into the result, on logarithms of ratios.
//! See docs/decisions/verdicts.md#1.

use super::describe::{mean, variance};
use super::pairs::Pair;
use super::student::{Confidence, t_between};
use serde::Serialize;

/// An interval, `low <= high`. Intervals of ratios are finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Returns whether the interval contains `value`, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns the smallest interval that contains this one and `value`.
    pub(crate) fn with(self, value: f64) -> Interval {
        Interval { low: self.low.min(value), high: self.high.max(value) }
    }

    /// Returns the intersection; for disjoint intervals, the gap between them.
    pub(crate) fn and(self, other: Interval) -> Interval {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        Interval { low: low.min(high), high: high.max(low) }
    }

    pub(crate) fn exp(self) -> Interval {
        Interval { low: finite_exp(self.low), high: finite_exp(self.high) }
    }

    pub(crate) fn negated(self) -> Interval {
        Interval { low: -self.high, high: -self.low }
    }

    pub(crate) fn over(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    pub(crate) fn around(centre: f64, half: f64) -> Interval {
        Interval { low: centre - half, high: centre + half }
    }
}

/// Returns `exp(log)`, limited to finite positive numbers: an interval end is never 0 or infinite.
pub(crate) fn finite_exp(log: f64) -> f64 {
    log.exp().clamp(f64::MIN_POSITIVE, f64::MAX)
}

/// Number of blocks beyond which the normal approximation equals the exact distribution to the printed digits.
const EXACT_UP_TO: usize = 200;

/// Returns Student's t interval of the mean of the blocks' log ratios: the analysis of a randomized block design
/// (Fisher 1935, The Design of Experiments, chapter 4), with a separate variance for each arm.
///
/// The error is pooled from all variation that the difference between the arms does not explain: between the blocks'
/// ratios (blocks - 1 degrees of freedom) and between an arm's two runs in a block (one per arm and block). Two blocks
/// thus have up to five degrees of freedom; the ratios alone have one, for which t is 63.7. The degrees of freedom are
/// Satterthwaite's (1946), so that a quiet arm does not narrow the interval of a noisy one.
pub(crate) fn student(pairs: &[Pair], confidence: Confidence) -> Option<Interval> {
    if pairs.len() < 2 {
        return None;
    }
    let blocks = pairs.len() as f64;
    let log_ratios: Vec<f64> = pairs.iter().map(Pair::log_ratio_of_means).collect();
    let between = variance(&log_ratios);
    let tick = tick(pairs);
    let spread = |of: fn(&Pair) -> [f64; 2]| {
        let squares = pairs.iter().map(|pair| {
            let [a, b] = of(pair).map(f64::ln);
            // Two runs on the same clock tick may differ by a whole tick.
            let tick = tick / of(pair)[0];
            ((a - b) * (a - b) / 2.0).max(tick * tick / 12.0)
        });
        squares.sum::<f64>() / blocks
    };
    let all = 3.0 * blocks - 1.0;
    let parts = [
        (between, blocks - 1.0),
        (spread(|pair| pair.reference), blocks),
        (spread(|pair| pair.arm), blocks),
    ];
    let pooled: f64 = parts.iter().map(|(square, freedom)| square * freedom / all).sum();
    let welch: f64 =
        parts.iter().map(|(square, freedom)| (square / pooled / all).powi(2) * freedom).sum();
    let freedom = if welch.is_finite() { 1.0 / welch } else { all };
    let half = t_between(confidence, freedom) * (pooled / blocks).sqrt();
    Some(Interval::around(mean(&log_ratios), half))
}

/// Returns the resolution of the values: the clock's tick, if they show one, but at least one unit of the last printed
/// decimal. Ten runs of `1` show only that each was nearer to 1 than to 2.
pub(crate) fn tick(pairs: &[Pair]) -> f64 {
    clock_tick(pairs).max(last_decimal(pairs))
}

/// Returns one unit of the last decimal of all values; 0 if a value has more digits than programs print.
fn last_decimal(pairs: &[Pair]) -> f64 {
    let mut most = i32::MIN;
    for value in pairs.iter().flat_map(|pair| pair.reference.into_iter().chain(pair.arm)) {
        let (digits, decimals) = decimals(value);
        if digits > MAX_DIGITS {
            return 0.0;
        }
        most = most.max(decimals);
    }
    10f64.powi(-most.max(0))
}

/// Maximum number of digits of a printed value. A value with more digits was computed.
const MAX_DIGITS: usize = 15;

/// Returns the number of digits in a value's shortest text, and the number of decimals.
fn decimals(value: f64) -> (usize, i32) {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let after = digits.split_once('.').map_or(0, |(_, after)| after.len());
    (after + 1, after as i32 - exponent.parse().unwrap_or(0))
}

/// Returns the clock's tick, if an arm's values show one: most of them are equal, but not all. Returns zero if no arm
/// shows a tick.
fn clock_tick(pairs: &[Pair]) -> f64 {
    let of_arm = |of: fn(&Pair) -> [f64; 2]| {
        let mut values: Vec<f64> = pairs.iter().flat_map(of).collect();
        let all = values.len();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let gaps = values.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.min_by(f64::total_cmp).filter(|_| 2 * values.len() <= all)
    };
    let ticks = [of_arm(|pair| pair.reference), of_arm(|pair| pair.arm)];
    ticks.into_iter().flatten().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// Returns the confidence set of van Elteren's test (1960, "On the combination of independent two sample tests of
/// Wilcoxon"): every ratio that the pairs of runs of the same block do not reject.
///
/// Robust against a few outlier blocks, and unaffected by what a block's runs share. Exact if a block's four runs
/// differ only by arm. `None` if so few blocks cannot reach the confidence (99 % needs four).
pub(crate) fn ranked(pairs: &[Pair], confidence: Confidence) -> Option<Interval> {
    let cut = rejected_pairs(pairs.len(), confidence.tail())?;
    let differences = pairs.iter().flat_map(|pair| {
        let ([a, b], [c, d]) = (pair.reference.map(f64::ln), pair.arm.map(f64::ln));
        [a - c, a - d, b - c, b - d]
    });
    let mut differences: Vec<f64> = differences.collect();
    differences.sort_unstable_by(f64::total_cmp);
    // Two runs rounded to ticks are up to half a tick each from their true values.
    let least = |of: fn(&Pair) -> [f64; 2]| pairs.iter().flat_map(of).fold(f64::MAX, f64::min);
    let tick = tick(pairs);
    let rounded = tick / least(|pair| pair.reference) / 2.0 + tick / least(|pair| pair.arm) / 2.0;
    let high = differences[differences.len() - 1 - cut] + rounded;
    Some(Interval { low: differences[cut] - rounded, high })
}

/// Returns the largest `k` with `P(W <= k) <= tail`, where `W` is the number of pairs that the arm wins in `blocks`
/// blocks.
fn rejected_pairs(blocks: usize, tail: f64) -> Option<usize> {
    if blocks > EXACT_UP_TO {
        // W has mean 2 and variance 5/3 per block.
        let blocks = blocks as f64;
        let normal = t_between(Confidence::new(1.0 - 2.0 * tail)?, 1e4);
        return Some((2.0 * blocks - normal * (blocks * 5.0 / 3.0).sqrt() - 0.5).max(0.0) as usize);
    }
    // Of the six orders of two and two runs, the arm wins 0 pairs in one order, 1 in one, 2 in two, 3 in one, 4 in one.
    let mut chances = vec![1.0];
    for _ in 0..blocks {
        let mut next = vec![0.0; chances.len() + 4];
        for (sum, chance) in chances.iter().enumerate() {
            for (won, orders) in [1.0, 1.0, 2.0, 1.0, 1.0].into_iter().enumerate() {
                next[sum + won] += chance * orders / 6.0;
            }
        }
        chances = next;
    }
    let mut below = 0.0;
    let within = chances.iter().take_while(|chance| {
        below += **chance;
        below <= tail
    });
    within.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts every order of two and two runs in each of `blocks` blocks.
    fn counted(blocks: u32, most: u32) -> f64 {
        let orders = [0, 1, 2, 2, 3, 4];
        let all = 6u32.pow(blocks);
        let won = |mut pattern: u32| {
            (0..blocks).fold(0, |sum, _| {
                let of_block = orders[(pattern % 6) as usize];
                pattern /= 6;
                sum + of_block
            })
        };
        f64::from((0..all).filter(|pattern| won(*pattern) <= most).count() as u32) / f64::from(all)
    }

    #[test]
    fn rejected_pairs_are_those_counted() {
        assert_eq!(rejected_pairs(2, 0.005), None);
        for (blocks, tail) in [(3, 0.005), (4, 0.005), (5, 0.0025), (6, 0.001), (6, 0.05)] {
            let most = rejected_pairs(blocks, tail).unwrap() as u32;
            assert!(counted(blocks as u32, most) <= tail, "{blocks} {tail}");
            assert!(counted(blocks as u32, most + 1) > tail, "{blocks} {tail}");
        }
        // The approximation agrees with the exact values at the switch.
        let exact = rejected_pairs(EXACT_UP_TO, 0.005).unwrap() as f64;
        let near = rejected_pairs(EXACT_UP_TO + 1, 0.005).unwrap() as f64;
        assert!((0.0..=3.0).contains(&(near - exact)), "{exact} {near}");
    }

    #[test]
    fn the_last_decimal_that_is_printed_is_a_tick() {
        for (reference, arm, expected) in [
            ([1.0, 1.0], [2.0, 2.0], 1.0),
            ([1.0, 1.0], [2.5, 2.5], 0.1),
            ([0.25, 0.25], [0.25, 0.25], 0.01),
            ([1234.0, 1234.0], [1200.0, 1200.0], 1.0),
            ([3e-9, 3e-9], [3.4e-9, 3.4e-9], 1e-10),
            ([1.0 / 3.0, 1.0 / 3.0], [1.0, 1.0], 0.0),
            ([1e300, 1e300], [2e300, 2e300], 1.0),
        ] {
            let found = tick(&[Pair { reference, arm }; 2]);
            assert!((found - expected).abs() <= expected * 1e-9, "{reference:?} {arm:?}: {found}");
        }
        // Values have two decimals, but are multiples of a quarter.
        let quarters = Pair { reference: [0.25, 0.5], arm: [0.75, 0.75] };
        assert_eq!(tick(&[quarters; 2]), 0.25);
    }

    #[test]
    fn an_interval_is_no_narrower_than_the_last_decimal() {
        let pairs =
            |reference: f64, arm: f64| [Pair { reference: [reference; 2], arm: [arm; 2] }; 5];
        for confidence in [Confidence::P99, Confidence::new(0.9).unwrap()] {
            for of in [student, ranked] {
                let interval = of(&pairs(1.0, 2.0), confidence).unwrap();
                assert!(interval.high - interval.low > 0.1, "{interval:?}");
                let interval = of(&pairs(0.512345678, 0.612345678), confidence).unwrap();
                assert!(interval.high - interval.low < 1e-6, "{interval:?}");
            }
        }
    }

    #[test]
    fn a_wild_block_does_not_move_it() {
        let pair = |index: i32, wild: f64| {
            let near = |part: i32| 1.0 + f64::from((index * 7 + part) % 11) * 1e-3;
            Pair { reference: [near(0), near(1)], arm: [near(2) * wild, near(3)] }
        };
        let mut pairs: Vec<Pair> = (0..12).map(|index| pair(index, 1.0)).collect();
        pairs[3] = pair(3, 1e6);
        let interval = ranked(&pairs, Confidence::P99).unwrap();
        assert!(-0.02 < interval.low && interval.high < 0.02, "{interval:?}");
        let t = student(&pairs, Confidence::P99).unwrap();
        assert!(t.high > 1.0, "{t:?}");
    }
}
