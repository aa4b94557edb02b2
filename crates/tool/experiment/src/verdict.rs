//! The verdict on an arm: faster, slower, same, undecided, did not take effect, no data. Pure.
//!
//! Order of precedence: an arm that did not get what its design promised has no number at all; then missing data;
//! then the interval decides. An interval inside the margin is "same" even if it excludes 1, because such small
//! differences do not matter. An interval that contains 1 is "same" up to a wider margin, because the stopping rule
//! leaves a ratio known to 2 % at best; the verdict then says by how much the arms may differ. A difference under the
//! measured noise floor is never a verdict (faster-cpython ideas#480). See docs/decisions/verdicts.md#4.

use crate::stats::student::{Confidence, blocks_until};
use crate::stats::{Comparison, Interval, SampleError};
use report::format::{percent, ratio};
use serde::Serialize;
use std::fmt;

/// Minimum number of blocks. With fewer, an interval is too wide to plan from, and the stopping rule asks for three.
const MIN_BLOCKS: u32 = 3;

/// Ratio of an interval's ends above which the interval is meaningless, and not printed in an undecided verdict.
const MEANINGLESS: f64 = 10.0;

/// Whether the arm got what its design promised. The caller judges this from coverage facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The arm got it, or promised nothing.
    AsPromised,
    /// The arm did not get it.
    Missing {
        /// The promise, and what was found.
        why: String,
    },
    /// The pages could not be read back.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// The minimum difference that matters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Margin {
    /// Arms within this fraction of each other are the same, even if it is certain that they differ. 0.02 means 2 %.
    pub same_within: f64,
    /// Arms that may be equal, and differ by at most this fraction, are the same. 0.05 means 5 %.
    pub same_at_most: f64,
    /// Difference measured by an A/A comparison ([`noise_floor`]); unknown without one. It raises `same_within`, and a
    /// smaller estimate is never called faster or slower.
    pub noise_floor: Option<f64>,
}

impl Margin {
    /// Returns the maximum difference at which arms are the same, even if they certainly differ. A noise floor beyond
    /// `same_at_most` means that little can be concluded, not that all arms are the same.
    pub fn surely_same(&self) -> f64 {
        self.same_within.max(self.noise_floor.unwrap_or(0.0).min(self.same_at_most))
    }
}

impl Default for Margin {
    fn default() -> Margin {
        Margin { same_within: 0.02, same_at_most: 0.05, noise_floor: None }
    }
}

/// The verdict and its figures. "Faster" means better in the sense of [`Better`](crate::stats::Better).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// The interval lies above 1.
    Faster(Figures),
    /// The interval lies below 1.
    Slower(Figures),
    /// The interval lies within the margin.
    Same {
        /// The largest difference that the interval leaves possible, as a fraction, rounded up to 0.1 %.
        within: f64,
        /// The numbers.
        #[serde(flatten)]
        figures: Figures,
    },
    /// The interval is too wide, or the difference is under the noise floor.
    Undecided {
        /// Estimated number of further runs of each arm that would decide it, if noise and estimate stay the same. At
        /// least 2 (one block); about 10 000 means that more runs will not help.
        more_runs: u32,
        /// Ratio of medians.
        speedup: f64,
        /// Unknown with a single block.
        interval: Option<Interval>,
        /// Confidence of the judgement.
        confidence: Confidence,
    },
    /// The arm did not get what its design promised, so its numbers would be about something else.
    DidNotTakeEffect {
        /// The promise, and what was found.
        why: String,
    },
    /// Nothing to compare.
    NoData {
        /// The reason.
        why: String,
    },
}

/// The numbers beside a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Ratio of the medians; above 1 if the arm is better.
    pub speedup: f64,
    /// Interval of the true ratio.
    pub interval: Interval,
    /// Confidence of the interval.
    pub confidence: Confidence,
}

/// The kind of metric that the words describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Times and rates: faster, slower. `Display` uses these.
    Speed,
    /// Amounts, such as bytes or faults: better, worse.
    Worth,
    /// CPU time: less, more.
    Amount,
}

/// Judges one comparison.
pub fn verdict(
    effect: &Effect,
    compared: Result<&Comparison, &SampleError>,
    margin: &Margin,
) -> Verdict {
    match effect {
        Effect::AsPromised => {}
        Effect::Missing { why } => return Verdict::DidNotTakeEffect { why: why.clone() },
        Effect::Unknown { why } => {
            return Verdict::NoData { why: format!("whether it took effect is unknown: {why}") };
        }
    }
    let comparison = match compared {
        Ok(comparison) => comparison,
        Err(error) => return Verdict::NoData { why: error.to_string() },
    };
    let (speedup, confidence) = (comparison.speedup, comparison.settings.confidence);
    let Some(interval) = comparison.interval else {
        let more_runs = 2 * MIN_BLOCKS.saturating_sub(comparison.blocks).max(1);
        return Verdict::Undecided { more_runs, speedup, interval: None, confidence };
    };
    let floor = margin.noise_floor.unwrap_or(0.0);
    let surely_same = margin.surely_same();
    let maybe_same = margin.same_at_most.max(surely_same);
    let figures = Figures { speedup, interval, confidence };
    let clear = speedup.ln().abs() >= floor.ln_1p();
    let apart = farthest(interval);
    if apart <= surely_same || (apart <= maybe_same && interval.contains(1.0)) {
        // Subtract a little before rounding up, because 1.02 - 1.0 is slightly more than 0.02.
        let within = ((apart - 1e-9) * 1000.0).ceil().max(0.0) / 1000.0;
        Verdict::Same { within, figures }
    } else if interval.low > 1.0 && clear {
        Verdict::Faster(figures)
    } else if interval.high < 1.0 && clear {
        Verdict::Slower(figures)
    } else {
        let more_runs = more_runs(comparison.blocks, &figures, maybe_same, clear);
        Verdict::Undecided { more_runs, speedup, interval: Some(interval), confidence }
    }
}

/// Returns the largest difference, as a fraction, that an A/A comparison (the same program as both arms) leaves
/// possible; for [`Margin::noise_floor`]. `None` if the comparison has no interval.
pub fn noise_floor(same_program: &Comparison) -> Option<f64> {
    same_program.interval.map(farthest)
}

/// Returns whether the interval of an undecided verdict is meaningful.
pub fn is_meaningful(interval: Interval) -> bool {
    interval.high / interval.low <= MEANINGLESS
}

/// Formats a noise floor as a sentence.
pub fn floor_text(floor: f64) -> String {
    if floor + 1.0 > MEANINGLESS.sqrt() {
        return "noise floor unknown: too few runs of the same program, or too much noise"
            .to_string();
    }
    format!("noise floor {}: two runs of the same program differ by up to that", percent(floor))
}

/// Returns the maximum distance of the interval from 1, as a fraction either way.
fn farthest(interval: Interval) -> f64 {
    interval.high.ln().max(-interval.low.ln()).max(0.0).exp_m1()
}

/// Returns the number of further runs of each arm until the interval is narrow enough to exclude 1 or to fit into the
/// margin, whichever comes first.
fn more_runs(blocks: u32, figures: &Figures, within: f64, clear: bool) -> u32 {
    let point = figures.speedup.ln();
    let half = (figures.interval.high.ln() - point).max(point - figures.interval.low.ln());
    let to_exclude_one = if clear { point.abs() } else { 0.0 };
    let to_fit = within.ln_1p() - point.abs();
    let target = to_exclude_one.max(to_fit).max(f64::MIN_POSITIVE);
    2 * (blocks_until(half, blocks, target, figures.confidence) - blocks)
}

impl Verdict {
    /// Formats the verdict as a line in the words that fit the metric.
    pub fn line(&self, terms: Terms) -> String {
        let (better, worse) = match terms {
            Terms::Speed => ("faster", "slower"),
            Terms::Worth => ("better", "worse"),
            Terms::Amount => ("less", "more"),
        };
        match self {
            Verdict::Faster(f) => {
                let of = span(f.interval, f.confidence);
                format!("{}x {better} ({of})", ratio(f.speedup))
            }
            Verdict::Slower(f) => {
                let turned = Interval { low: 1.0 / f.interval.high, high: 1.0 / f.interval.low };
                format!("{}x {worse} ({})", ratio(1.0 / f.speedup), span(turned, f.confidence))
            }
            Verdict::Same { within, figures: f } => {
                let of = span(f.interval, f.confidence);
                format!("same within {} ({}, {of})", percent(*within), ratio(f.speedup))
            }
            Verdict::Undecided { more_runs, speedup, interval, confidence } => {
                let of = match interval {
                    None => "no interval yet".to_string(),
                    Some(wide) if !is_meaningful(*wide) => {
                        "too few runs, or too much noise, for an interval".to_string()
                    }
                    Some(interval) => span(*interval, *confidence),
                };
                format!("undecided at {}x ({of}; about {more_runs} more runs)", ratio(*speedup))
            }
            Verdict::DidNotTakeEffect { why } => format!("design did not take effect: {why}"),
            Verdict::NoData { why } => format!("no data: {why}"),
        }
    }
}

impl Verdict {
    /// Returns the ratio, and its interval if that is meaningful; `None` if nothing was compared.
    pub fn ratio(&self) -> Option<(f64, Option<Interval>)> {
        let (speedup, interval) = match self {
            Verdict::Faster(f) | Verdict::Slower(f) | Verdict::Same { figures: f, .. } => {
                (f.speedup, Some(f.interval))
            }
            Verdict::Undecided { speedup, interval, .. } => (*speedup, *interval),
            Verdict::DidNotTakeEffect { .. } | Verdict::NoData { .. } => return None,
        };
        Some((speedup, interval.filter(|interval| is_meaningful(*interval))))
    }

    /// Returns whether the runs decided it.
    pub fn is_decided(&self) -> bool {
        matches!(self, Verdict::Faster(_) | Verdict::Slower(_) | Verdict::Same { .. })
    }

    /// Returns the verdict in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Faster(_) => "faster",
            Verdict::Slower(_) => "slower",
            Verdict::Same { .. } => "same",
            Verdict::Undecided { .. } => "undecided",
            Verdict::DidNotTakeEffect { .. } => "did not take effect",
            Verdict::NoData { .. } => "no data",
        }
    }

    /// Formats the verdict for a table cell: ratio, interval, word.
    pub fn cell(&self) -> String {
        let word = self.word();
        match self.ratio() {
            Some((speedup, Some(i))) => {
                format!("{}x ({}–{}) {word}", ratio(speedup), ratio(i.low), ratio(i.high))
            }
            Some((speedup, None)) => format!("{}x {word}", ratio(speedup)),
            None => word.to_string(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(Terms::Speed))
    }
}

fn span(interval: Interval, confidence: Confidence) -> String {
    let (low, high) = (ratio(interval.low), ratio(interval.high));
    format!("{} interval {low}–{high}", percent(confidence.level()))
}
