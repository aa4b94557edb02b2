//! Percentile bootstrap of the ratio of medians, whole blocks resampled.
//!
//! A block is drawn with all its samples, so drift shared by a block cancels in each resample as it
//! did in the experiment, and correlation inside a block is kept. Alone it undercovers badly with few
//! blocks (three blocks have ten distinct resamples); [`super::compare`] takes it as one of three.

use super::describe::{midpoint, quantile_sorted};
use super::interval::Interval;
use super::pairs::Pair;
use super::random::{Random, Stream};
use super::student::Confidence;
use std::num::NonZeroU32;

/// Interval of `ln(median reference / median arm)`.
pub(crate) fn log_ratio_of_medians(
    pairs: &[Pair],
    confidence: Confidence,
    resamples: NonZeroU32,
    seed: u64,
) -> Interval {
    let ratios = resampled(pairs, resamples, seed);
    // Never empty: `resamples` is not zero.
    let end = |q| quantile_sorted(&ratios, q).unwrap_or(0.0);
    Interval { low: end(confidence.tail()), high: end(1.0 - confidence.tail()) }
}

/// The resampled log ratios, ascending.
fn resampled(pairs: &[Pair], resamples: NonZeroU32, seed: u64) -> Vec<f64> {
    let reference = Ascending::new(pairs.iter().map(|p| p.reference));
    let arm = Ascending::new(pairs.iter().map(|p| p.arm));
    let mut random = Random::new(seed, Stream::Bootstrap);
    let mut times = vec![0u32; pairs.len()];
    let mut ratios: Vec<f64> = (0..resamples.get())
        .map(|_| {
            times.fill(0);
            for _ in 0..pairs.len() {
                times[random.below(pairs.len() as u32) as usize] += 1;
            }
            reference.median(&times).ln() - arm.median(&times).ln()
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios
}

/// Values sorted once, each with its block; a resample is then only a count per block, and its median
/// one walk from the smallest value up. No resample is ever built or sorted.
struct Ascending(Vec<(f64, usize)>);

impl Ascending {
    fn new(blocks: impl Iterator<Item = [f64; 2]>) -> Ascending {
        let mut values: Vec<(f64, usize)> =
            blocks.enumerate().flat_map(|(block, [a, b])| [(a, block), (b, block)]).collect();
        values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Ascending(values)
    }

    /// Median when block `b` was drawn `times[b]` times; `times` sums to the number of blocks, so half
    /// of the (even number of) values lies at or under the lower of the two middle ones.
    fn median(&self, times: &[u32]) -> f64 {
        let half = times.len() as u32;
        let mut seen = 0;
        let mut lower = None;
        for &(value, block) in self.0.iter().filter(|v| times[v.1] > 0) {
            if let Some(lower) = lower {
                return midpoint(lower, value);
            }
            seen += times[block];
            if seen > half {
                return value;
            }
            lower = (seen == half).then_some(value);
        }
        // Only if `times` summed to less: then the largest value is the answer.
        self.0.last().map_or(f64::NAN, |v| v.0)
    }
}
