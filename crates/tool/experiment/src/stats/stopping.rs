//! Decides when there are enough runs.
//!
//! The runs are enough when every arm's ratio to the reference is known within a given percentage. That criterion does
//! not see the ratio *itself*, so it cannot stop because the answer pleases (fixed-width sequential estimation, Chow
//! and Robbins 1965). For long runs it would take hours to know a ratio of 2 within 2 %. So the verdicts themselves are
//! checked too: first after [`Rule`]'s `decide_after`, then whenever the number of blocks has grown by half.
//!
//! The stated confidence holds for the verdict that ends the runs, because every look spends a part of the error
//! ([`Looks::level`]; Lan and DeMets 1983, "Discrete sequential boundaries for clinical trials", with Bonferroni's
//! inequality instead of the looks' joint distribution). Half of the error is kept in reserve, each look spends a third
//! of the rest, and an end by time or number of runs spends all the rest. An end because the ratios are known precisely
//! enough gets half of the rest, because runs tend to end when they happen to agree (measured: 1.3 % for 1 %).
//! `tests/integration/error_rate.rs` and `tests/integration/verdicts.rs` verify all of this.
//! See docs/decisions/verdicts.md#2.

use super::student::{Confidence, blocks_until};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The rule's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Minimum number of runs per arm; rounded up to whole blocks of two.
    pub min_runs: u32,
    /// Maximum number of runs per arm; rounded down to whole blocks, but at least one block.
    pub max_runs: u32,
    /// Confidence in each ratio.
    pub confidence: Confidence,
    /// Required precision of every ratio, as a fraction.
    #[serde(deserialize_with = "units::proportion")]
    pub within: f64,
    /// Seconds after which decided verdicts suffice; `null`: they never suffice.
    #[serde(default, deserialize_with = "units::seconds")]
    pub decide_after: Option<f64>,
    /// Stop after the minimum number of runs if the standard deviation of equal runs exceeds this fraction of their
    /// mean, and at least as much time is left as they took; `null`: never.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "units::proportion"
    )]
    pub max_deviation: Option<f64>,
}

impl Default for Rule {
    /// Returns a rule with at least 5 runs (Gorman's figure, mmtests) and at most 100.
    fn default() -> Rule {
        Rule {
            min_runs: 5,
            max_runs: 100,
            confidence: Confidence::P99,
            within: 0.02,
            decide_after: Some(60.0),
            max_deviation: None,
        }
    }
}

/// Progress of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Number of complete blocks (two runs per arm each) of the arm with the fewest.
    pub blocks: u32,
    /// Half width of the widest interval, as a fraction; unknown for fewer than two complete blocks, zero if nothing is
    /// compared.
    pub half_width: Option<f64>,
    /// Whether every verdict is decided.
    pub decided: bool,
}

impl Progress {
    /// Returns whether every ratio is known as precisely as `rule` requires.
    pub fn is_enough(&self, rule: &Rule) -> bool {
        self.blocks >= min_blocks(rule) && self.half_width.is_some_and(|half| half <= rule.within)
    }

    /// Returns the estimated total number of runs per arm at which every ratio is known precisely enough, if the noise
    /// stays the same. It may exceed `max_runs`. Unknown until every arm has two complete blocks.
    pub fn estimated_runs_needed(&self, rule: &Rule) -> Option<u32> {
        let half = self.half_width?;
        let least = min_blocks(rule);
        if half <= rule.within {
            return Some(2 * least.max(self.blocks));
        }
        let log = f64::ln_1p;
        let until = blocks_until(log(half), self.blocks, log(rule.within), rule.confidence);
        Some(2 * least.max(until))
    }
}

/// Time of the whole experiment, all arms.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Time spent so far in measured blocks.
    pub elapsed: Duration,
    /// Time limit of these blocks, if any.
    pub limit: Option<Duration>,
    /// Soft limit. The time is extended up to this limit until every arm has [`PATIENT_RUNS`] runs. The second block is
    /// always made.
    pub patience: Option<Duration>,
}

/// Number of runs per arm up to which the soft limit extends the time, if `--max-time` was not given.
pub const PATIENT_RUNS: u32 = 50;

/// Share of the remaining error that a look leaves for later looks.
const ERROR_LEFT_PER_LOOK: f64 = 2.0 / 3.0;

/// Share of the error that is spent at all. The rest is kept, so that a few thousand experiments can *show* that the
/// stated confidence holds.
const ERROR_BUDGET: f64 = 0.5;

/// What ended the runs, classified by its effect on the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A look at the verdicts. Each look is counted.
    Decided,
    /// Every ratio is known precisely enough.
    Enough,
    /// A reason that does not depend on the measured values.
    Other,
}

/// Interim looks at the verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// Number of looks.
    pub made: u32,
    /// Number of blocks at the last look.
    pub at: u32,
}

impl Looks {
    /// Returns whether a look at the verdicts is due after `begun` blocks: at the time of `decide_after`, and then
    /// whenever the number of blocks has grown by half. The first look comes before a block that would end later than
    /// that time.
    pub fn is_due(&self, begun: u32, rule: &Rule, time: Time) -> bool {
        let Some(after) = rule.decide_after else { return false };
        let ahead = time.elapsed + time.one_block(begun);
        begun >= min_blocks(rule) && ahead.as_secs_f64() > after && 2 * begun >= 3 * self.at
    }

    /// Returns the confidence level of the comparison for runs that ended by `end`.
    pub fn level(&self, confidence: Confidence, end: End) -> Confidence {
        let left = ERROR_BUDGET * ERROR_LEFT_PER_LOOK.powi(self.made as i32);
        confidence.of_error(match end {
            End::Decided => left / ERROR_LEFT_PER_LOOK * (1.0 - ERROR_LEFT_PER_LOOK),
            End::Enough => left / 2.0,
            End::Other => left,
        })
    }

    /// Counts a look.
    pub fn record(&mut self, begun: u32) {
        *self = Looks { made: self.made + 1, at: begun };
    }
}

impl Time {
    fn one_block(&self, begun: u32) -> Duration {
        self.elapsed.checked_div(begun).unwrap_or_default()
    }

    fn allows(&self, begun: u32, rule: &Rule) -> bool {
        let Some(mut limit) = self.limit else { return true };
        let one_block = self.one_block(begun);
        if let Some(patience) = self.patience {
            if begun < 2 {
                return true;
            }
            limit = limit.max(patience.min(one_block * (PATIENT_RUNS / 2)));
        }
        // A cut-off block is discarded, so do not begin one that will not fit. But within a soft limit the minimum number
        // of blocks is worth trying up to the limit itself.
        let is_soft = self.patience.is_some();
        let ahead = if begun < min_blocks(rule) && is_soft { Duration::ZERO } else { one_block };
        // Tolerate 0.1 %, so that the last of several equal blocks fits.
        self.elapsed + ahead < limit + limit / 1000
    }

    /// Returns whether at least as much time is left as was spent.
    pub fn is_half_left(&self) -> bool {
        self.limit.is_none_or(|limit| self.elapsed * 2 <= limit)
    }

    /// Returns the total number of blocks that the time allows, estimated from the first `begun` blocks.
    pub fn blocks(&self, begun: u32) -> Option<u32> {
        let (limit, one_block) = (self.limit?, self.one_block(begun).as_secs_f64());
        let most = |limit: Duration| (limit.as_secs_f64() / one_block.max(1e-9)) as u32;
        let patient = self.patience.map_or(0, |patience| most(patience).clamp(2, PATIENT_RUNS / 2));
        Some(most(limit).max(patient))
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// Run another block.
    Block,
    /// Stop: every ratio is known precisely enough.
    Enough,
    /// Stop: the maximum number of runs was made.
    MaxRuns,
    /// Stop: the time is over, or the next block would not fit.
    MaxTime,
}

/// Decides whether to continue. `begun` is the number of blocks run, complete or not: an arm whose runs all fail must
/// not keep the experiment running forever.
pub fn next(progress: &Progress, begun: u32, rule: &Rule, time: Time) -> Next {
    if progress.is_enough(rule) {
        Next::Enough
    } else if begun >= max_blocks(rule) {
        Next::MaxRuns
    } else if time.allows(begun, rule) {
        Next::Block
    } else {
        Next::MaxTime
    }
}

/// Returns the maximum number of blocks.
pub fn max_blocks(rule: &Rule) -> u32 {
    (rule.max_runs / 2).max(1)
}

/// Returns the minimum number of blocks.
pub fn min_blocks(rule: &Rule) -> u32 {
    rule.min_runs.div_ceil(2).max(2)
}
