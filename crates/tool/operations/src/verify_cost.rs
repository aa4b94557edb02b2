//! Checks predictions from the cost of address translation: predicts on base pages, runs on superpages, reports the
//! error.
//! See docs/decisions/prediction.md#6.

use experiment::analysis::{Analysis, Summary, analyse};
use experiment::document::Document;
use experiment::procedure::values;
use experiment::sample::Sample;
use experiment::stats::stopping::Rule;
use experiment::stats::{self, Better, Interval};
use experiment::verdict::Verdict;
use launch::{Pages, Recipe};
use prediction::{Faults, Prediction, Prices};
use report::format::percent;

use crate::Failure;
use crate::jobs::{Job, JobOutcome, arms};
use crate::predict::{self, BaseRuns, Priced, Pricing, Replayed, Subject, SubjectDemand};

/// A request for a check.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Minimum runs per arm.
    pub min_runs: Option<u32>,
    /// Maximum runs per arm.
    pub max_runs: u32,
    /// Maximum seconds for all measured runs of a subject.
    pub max_time: f64,
    /// How to predict.
    pub method: Method,
    /// Whether to hide progress.
    pub quiet: bool,
}

/// How savings are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// From all accesses, recorded under QEMU, and prices.
    Prices,
    /// By replay of windows.
    Replay,
    /// Both.
    Both,
}

/// Outcome of one subject.
#[derive(Debug)]
pub enum Measured {
    /// Figures of the subject.
    Row(Box<Row>),
    /// The signal that interrupted the measurement; the process ends by it.
    Signal(i32),
}

/// Figures of one subject.
#[derive(Debug)]
pub struct Row {
    /// Name of the subject.
    pub name: String,
    /// Seconds of CPU time: on base pages, and on superpages.
    pub seconds: [f64; 2],
    /// Share of the eligible memory on superpages, in the superpage arm.
    pub coverage: Option<f64>,
    /// Interval of the measured saving; `None` if runs are too few or differ too much.
    pub between: Option<Interval>,
    /// The prediction from prices; `None` if not asked for.
    pub priced: Option<FromPrices>,
    /// The prediction by replay, or why there is none; `None` if not asked for.
    pub replayed: Option<Result<Replayed, String>>,
    /// Limitations of the comparison.
    pub notes: Vec<String>,
}

/// A prediction from prices.
#[derive(Debug)]
pub struct FromPrices {
    /// The prediction.
    pub prediction: Prediction,
    /// The measured prices.
    pub prices: Prices,
    /// Source of the accesses.
    pub source: String,
}

impl Row {
    /// Returns the share (0 to 1) of the time that superpages saved.
    pub fn measured(&self) -> f64 {
        1.0 - self.seconds[1] / self.seconds[0]
    }

    /// Returns the error of the prediction from prices: predicted minus measured share.
    pub fn error(&self) -> Option<f64> {
        Some(self.priced.as_ref()?.prediction.saved.mid - self.measured())
    }

    /// Returns the error of the prediction by replay.
    pub fn replay_error(&self) -> Option<f64> {
        Some(self.replayed.as_ref()?.as_ref().ok()?.saved.mid - self.measured())
    }
}

impl Request {
    /// Predicts and measures one subject.
    ///
    /// # Errors
    /// The subject cannot be predicted or run.
    pub fn measure(&self, subject: &Subject) -> Result<Measured, Failure> {
        let asked = match self.method {
            Method::Replay => None,
            Method::Prices | Method::Both => Some(subject.demand(self.quiet)?),
        };
        let mut pricing = match &asked {
            Some(asked) => Pricing::begin(asked, self.quiet)?,
            None => Pricing::of_first_touches(self.quiet)?,
        };
        let document = match self.job(subject)?.run_and(&mut || pricing.between())? {
            JobOutcome::Document(document) => document,
            JobOutcome::Signal(signal, _) => return Ok(Measured::Signal(signal)),
        };
        let timed = matches!(subject, Subject::Workload(..));
        let prices = pricing.finish()?;
        let faults = prices.all.faults;
        let analysis = analyse(&document);
        let mut row = row(subject.name(), asked, prices, &document, &analysis, timed)?;
        if self.method != Method::Prices {
            row.replayed = Some(self.replay(subject, &document, &analysis.arms[0], &faults));
        }
        Ok(Measured::Row(Box::new(row)))
    }

    /// Predicts by replay. The reason why it cannot is kept, because the measurement and the other prediction hold.
    fn replay(
        &self,
        subject: &Subject,
        document: &Document,
        base: &Summary,
        price: &Faults,
    ) -> Result<Replayed, String> {
        let timed = matches!(subject, Subject::Workload(..));
        let runs = document.samples.iter().filter(|it| it.arm == 0);
        let mut faults: Vec<f64> = runs.map(|run| run.minor_faults as f64).collect();
        let runs = BaseRuns {
            part: medians(base, timed).ok_or("its runs have no times")?,
            whole: base.user_seconds.unwrap_or(0.0) + base.system_seconds.unwrap_or(0.0),
            faults: stats::describe::median(&mut faults).unwrap_or(0.0),
        };
        let replayed = Replayed::new(subject, &runs, price, self.quiet);
        replayed.map_err(|failure| failure.lines().collect::<Vec<_>>().join("; "))
    }

    /// Creates the experiment with a subject.
    ///
    /// # Errors
    /// Its numbers of runs contradict each other.
    pub fn job(&self, subject: &Subject) -> Result<Job, Failure> {
        let recipes = [Pages::Base, Pages::Thp].map(Recipe::new).to_vec();
        let (min_runs, max_runs) = arms::runs(self.min_runs, Some(self.max_runs))?;
        let rule = Rule {
            min_runs,
            max_runs,
            // Do not stop at the decision that there is a saving: its size matters.
            decide_after: None,
            ..Rule::default()
        };
        predict::timed_job(subject, recipes, rule, Some(self.max_time), self.quiet)
    }
}

fn row(
    name: String,
    asked: Option<SubjectDemand>,
    prices: Priced,
    document: &Document,
    analysis: &Analysis,
    timed: bool,
) -> Result<Row, Failure> {
    let judged = analysis.judgements.iter().find(|one| one.arm == analysis.arms[1].name);
    if let Some(Verdict::DidNotTakeEffect { why }) = judged.map(|one| &one.verdict) {
        return Err(Failure::cannot(format!("nothing is verified: {why}")));
    }
    let [base, superpage] = [&analysis.arms[0], &analysis.arms[1]].map(|arm| medians(arm, timed));
    let (Some(base), Some(superpage)) = (base, superpage) else {
        return Err(Failure::usage("its runs have no times"));
    };
    if base.0 + base.1 <= 0.0 {
        return Err(Failure::usage("too little CPU time; give it more work"));
    }
    let mut notes = Vec::new();
    let priced = asked.map(|asked| {
        let runs = predict::base_runs(&document.samples, timed);
        let prediction = predict::predict(&asked, &prices, base, &runs);
        notes = asked.notes;
        FromPrices { prediction, prices: prices.all, source: asked.source }
    });
    let coverage = analysis.arms[1].eligible_coverage;
    let least = document.judging.least_coverage;
    if let Some(coverage) = coverage.filter(|share| *share < least) {
        notes.push(format!("only {} of eligible memory was on superpages", percent(coverage)));
    }
    if coverage.is_none() {
        notes.push("whether its memory was on superpages is unknown".to_string());
    }
    let seconds = [base.0 + base.1, superpage.0 + superpage.1];
    let between = saved_between(document, timed);
    if priced.as_ref().is_some_and(|it| it.prediction.saved.low == it.prediction.saved.high) {
        notes.push("no access, and no first touch, that superpages could speed up".to_string());
    }
    Ok(Row { name, seconds, coverage, between, priced, replayed: None, notes })
}

/// Returns the confidence interval of the saving, from the ratio of the arms as in `compare`.
fn saved_between(document: &Document, timed: bool) -> Option<Interval> {
    let seconds = |sample: &Sample| match timed {
        true => sample.metric,
        false => Some(sample.user_seconds + sample.system_seconds),
    };
    let settings = document.statistics();
    let values = values(&document.samples, seconds);
    let compared = stats::compare(&values, 0, 1, Better::Lower, &settings).ok()?;
    let speedup = compared.interval?;
    let saved = Interval { low: 1.0 - 1.0 / speedup.low, high: 1.0 - 1.0 / speedup.high };
    (saved.low > -1.0).then_some(saved)
}

/// Returns the median seconds in user mode and in the kernel; if `timed`, those of the timed phase, and 0.
fn medians(arm: &Summary, timed: bool) -> Option<(f64, f64)> {
    match timed {
        true => arm.metric.map(|seconds| (seconds, 0.0)),
        false => Some((arm.user_seconds?, arm.system_seconds?)),
    }
}
