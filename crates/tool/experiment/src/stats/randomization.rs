//! Secondary statistics: a p-value that is exact under the ABBA schedule, and a robust estimate.
//!
//! The schedule draws each block's order at random. If arm and reference are the same program, exchanging their labels
//! in any block is therefore equally likely, whatever the drift of the host. So the signs of the per-block log ratios
//! are fair coins, and the sign-flip test is exact. Rejected: Mann-Whitney U, which permutes labels over *all* runs, as
//! if there were no drift. Its level is not guaranteed under ABBA blocks: drift common to both arms makes it too
//! conservative to detect anything, and correlation inside a block can make it wrong.

use super::describe::median;
use super::random::{Random, Stream};
use serde::Serialize;

/// Number of blocks up to which all sign patterns are enumerated (65 536); with more blocks they are drawn.
const EXACT_BLOCKS: usize = 16;
/// Number of patterns drawn for more blocks than [`EXACT_BLOCKS`]; the p-value's own error is then under 0.001 at p =
/// 0.01.
const DRAWS: u32 = 10_000;

/// Result of the sign-flip test of "no difference".
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Randomization {
    /// Two-sided p-value. It is at least `2 / 2^blocks`, so eight blocks are needed for less than 1 %.
    pub p: f64,
    /// Number of patterns evaluated.
    pub patterns: u32,
    /// Whether all patterns were enumerated instead of drawn.
    pub exact: bool,
}

/// Returns the p-value of the sign-flip test: the probability that random signs give a sum at least as far from zero as
/// the observed one.
pub fn sign_flip(log_ratios: &[f64], seed: u64) -> Randomization {
    // Sums in another order differ in their last bits. The tolerance makes equal patterns ties.
    let size: f64 = log_ratios.iter().map(|d| d.abs()).sum();
    let threshold = log_ratios.iter().sum::<f64>().abs() - size * 1e-11;
    if log_ratios.len() <= EXACT_BLOCKS {
        let patterns = 1u32 << log_ratios.len();
        let p = exact_hits(log_ratios, patterns, threshold) as f64 / f64::from(patterns);
        return Randomization { p, patterns, exact: true };
    }
    let mut random = Random::new(seed, Stream::Randomization);
    let mut hits = 1; // the observed pattern counts, so p is never zero (Davison and Hinkley 4.11)
    for _ in 0..DRAWS {
        let sum: f64 = log_ratios
            .chunks(64)
            .map(|chunk| {
                let bits = random.bits();
                let signed = chunk.iter().enumerate();
                signed.map(|(i, d)| if bits >> i & 1 == 1 { -d } else { *d }).sum::<f64>()
            })
            .sum();
        hits += u32::from(sum.abs() >= threshold);
    }
    let p = f64::from(hits) / f64::from(DRAWS + 1);
    Randomization { p, patterns: DRAWS, exact: false }
}

/// Returns the number of patterns at or beyond `threshold`. Enumerates all patterns in Gray-code order: each differs
/// from the previous one in one sign and costs one addition. The error of 65 536 additions stays far below the tie
/// tolerance.
fn exact_hits(log_ratios: &[f64], patterns: u32, threshold: f64) -> usize {
    let mut signed = log_ratios.to_vec();
    let mut sum: f64 = signed.iter().sum();
    let mut hits = usize::from(sum.abs() >= threshold);
    for pattern in 1..patterns {
        let flip = &mut signed[pattern.trailing_zeros() as usize];
        sum -= 2.0 * *flip;
        *flip = -*flip;
        hits += usize::from(sum.abs() >= threshold);
    }
    hits
}

/// Returns the Hodges-Lehmann estimate: the median of the means of all pairs of blocks (including each with itself).
/// Robust against an outlier block. `None` when empty.
pub fn hodges_lehmann(log_ratios: &[f64]) -> Option<f64> {
    let from = log_ratios.iter().enumerate();
    let pairs = from.flat_map(|(at, a)| log_ratios[at..].iter().map(move |b| (a + b) / 2.0));
    median(&mut pairs.collect::<Vec<f64>>())
}
