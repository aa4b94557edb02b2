//! The secondary line: a p-value that is exact under the ABBA schedule, and a robust estimate.
//!
//! The schedule draws each block's order at random, so if arm and reference are the same program,
//! exchanging their labels in any block is as likely as not, whatever the host's drift did. The signs
//! of the per-block log ratios are therefore fair coins and the sign-flip test is exact.
//! Rejected: Mann-Whitney U. It shuffles labels over *all* runs, as if drift did not exist: its level
//! is not guaranteed under ABBA blocks (drift common to both arms makes it conservative to the point of
//! blindness; correlation inside a block can make it lie).

use super::describe::median;
use super::random::{Random, Stream};
use serde::Serialize;

/// Number of blocks up to which all sign patterns are counted (65 536); above, they are drawn.
const EXACT_BLOCKS: usize = 16;
/// Patterns drawn above [`EXACT_BLOCKS`]: the p-value's own error is then under 0.001 at p = 0.01.
const DRAWS: u32 = 10_000;

/// Result of the sign-flip test of "no difference".
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Randomization {
    /// Two-sided p-value. Never under `2 / 2^blocks`: under 1 % needs eight blocks.
    pub p: f64,
    /// Patterns looked at.
    pub patterns: u32,
    /// All patterns, or a seeded draw.
    pub exact: bool,
}

/// How often do random signs give a sum at least as far from zero as the one seen?
pub fn sign_flip(log_ratios: &[f64], seed: u64) -> Randomization {
    // Sums in another order differ in their last bits; a pattern that ties must count as a tie.
    let size: f64 = log_ratios.iter().map(|d| d.abs()).sum();
    let threshold = log_ratios.iter().sum::<f64>().abs() - size * 1e-11;
    if log_ratios.len() <= EXACT_BLOCKS {
        let patterns = 1u32 << log_ratios.len();
        let p = exact_hits(log_ratios, patterns, threshold) as f64 / f64::from(patterns);
        return Randomization { p, patterns, exact: true };
    }
    let mut random = Random::new(seed, Stream::Randomization);
    let mut hits = 1; // The pattern seen counts itself, so p is never zero (Davison and Hinkley 4.11).
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

/// All patterns in Gray-code order: each differs from the one before in one sign, so it costs one
/// addition. The error of 65 536 additions stays far under the tie tolerance.
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

/// Hodges-Lehmann: the median of all means of two blocks (each with itself too). One wild block moves
/// it little. `None` when empty.
pub fn hodges_lehmann(log_ratios: &[f64]) -> Option<f64> {
    let from = log_ratios.iter().enumerate();
    let pairs = from.flat_map(|(at, a)| log_ratios[at..].iter().map(move |b| (a + b) / 2.0));
    median(&mut pairs.collect::<Vec<f64>>())
}
