//! When there are enough runs: Gorman's rule, one arm at a time, blind to the difference of arms.
//!
//! "At least 5 runs, and 99 % confidence that the mean is within 2 %", for *every* arm. It never looks
//! at a ratio, so it cannot stop because the answer pleases; `tests/integration/error_rate.rs` verifies that the
//! false-positive rate under it stays at the level. Runs come two to a block, so "at least 5" is 6.
//!
//! The half width is the larger of two: all runs as independent (Gorman's own), and block means as
//! independent. The first is too small under drift; the second is zero when each block of an arm
//! happens to hold one fast and one slow run.

use super::describe::{mean, variance};
use super::pairs::{Sample, SampleError, blocks_of, both};
use super::student::{Confidence, blocks_until, t_quantile};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The rule's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Least runs per arm; rounded up to whole blocks of two.
    pub min_runs: u32,
    /// Most runs per arm; rounded down to whole blocks, but never under one block.
    pub max_runs: u32,
    /// How sure to be of each mean.
    pub confidence: Confidence,
    /// How near the mean must be, as a fraction of it.
    pub within: f64,
}

impl Default for Rule {
    /// Gorman's figures (mmtests), and at most 30 runs.
    fn default() -> Rule {
        Rule { min_runs: 5, max_runs: 30, confidence: Confidence::P99, within: 0.02 }
    }
}

/// How far the experiment is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Runs per arm in complete blocks, of the arm that has fewest.
    pub runs: u32,
    /// Half width of each arm's mean as a fraction of it; unknown under two complete blocks.
    pub relative_half_width: Vec<Option<f64>>,
    /// The rule is met: more runs are not needed.
    pub enough: bool,
    /// Runs per arm, in total, at which the rule should be met if the noise stays what it is; may
    /// exceed `max_runs`. Unknown until every arm has two complete blocks.
    pub estimated_runs_needed: Option<u32>,
}

/// What the caller knows of time. Whole experiment, all arms.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Spent so far in measured blocks.
    pub elapsed: Duration,
    /// Allowed, if limited.
    pub limit: Option<Duration>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// Run another block.
    Block,
    /// Stop: the rule is met.
    Enough,
    /// Stop: out of runs; the rule is not met.
    MaxRuns,
    /// Stop: out of time, or the next block would not fit; the rule is not met.
    MaxTime,
}

/// Judge the samples so far against the rule. Call between blocks.
pub fn progress(samples: &[Sample], arms: u32, rule: &Rule) -> Result<Progress, SampleError> {
    let least = min_blocks(rule);
    let mut fewest: Option<u32> = None;
    let mut widths = Vec::new();
    let mut needed = Some(least);
    for arm in 0..arms {
        let blocks: Vec<[f64; 2]> =
            blocks_of(samples, arm)?.values().filter_map(|v| both(v)).collect();
        let count = blocks.len() as u32;
        let width = relative_half_width(&blocks, rule.confidence);
        needed = needed.zip(width).map(|(needed, width)| {
            if width <= rule.within {
                return needed;
            }
            needed.max(blocks_until(width, count, rule.within, rule.confidence))
        });
        fewest = Some(fewest.map_or(count, |f| f.min(count)));
        widths.push(width);
    }
    let blocks = fewest.unwrap_or(0);
    Ok(Progress {
        runs: 2 * blocks,
        enough: blocks >= least && widths.iter().all(|w| w.is_some_and(|w| w <= rule.within)),
        relative_half_width: widths,
        estimated_runs_needed: needed.map(|blocks| 2 * blocks),
    })
}

/// Go on or stop. `begun` is the number of blocks run so far, complete or not: an arm whose runs all
/// fail must not keep the experiment going for ever.
pub fn next(progress: &Progress, begun: u32, rule: &Rule, time: Time) -> Next {
    if progress.enough {
        return Next::Enough;
    }
    if begun >= (rule.max_runs / 2).max(1) {
        return Next::MaxRuns;
    }
    let one_block = time.elapsed.checked_div(begun).unwrap_or_default();
    // A cut-off block is thrown away, so do not begin one that will not fit; but the least number of
    // blocks is worth trying for up to the limit itself.
    let ahead = if begun >= min_blocks(rule) { one_block } else { Duration::ZERO };
    match time.limit {
        Some(limit) if time.elapsed + ahead >= limit => Next::MaxTime,
        _ => Next::Block,
    }
}

fn min_blocks(rule: &Rule) -> u32 {
    rule.min_runs.div_ceil(2).max(2)
}

fn relative_half_width(blocks: &[[f64; 2]], confidence: Confidence) -> Option<f64> {
    if blocks.len() < 2 {
        return None;
    }
    // As fractions of the largest, so that no sum or square of huge values overflows.
    let largest = blocks.iter().flatten().fold(0.0, |most: f64, v| most.max(*v));
    let runs: Vec<f64> = blocks.iter().flatten().map(|v| v / largest).collect();
    let means: Vec<f64> = runs.chunks(2).map(mean).collect();
    let half = |values: &[f64]| {
        let error = (variance(values) / values.len() as f64).sqrt();
        t_quantile(confidence, values.len() as u32 - 1) * error
    };
    Some(half(&runs).max(half(&means)) / mean(&runs))
}
