//! `Document`: one comparison as a file. Facts only; every judgement is computed from it again,
//! so that a file redraws the same verdict byte for byte.

use crate::measure::Measure;
use host::Snapshot;
use launch::{Plan, Recipe, Word};
use prediction::Prediction;
use serde::{Deserialize, Serialize};

use crate::metric::MetricSpec;
use crate::procedure::{Settings, Stopped};
use crate::sample::Sample;
use crate::service::Service;
use crate::stats::stopping::Looks;
use crate::stats::{self, Confidence};
use crate::verdict::Margin;

/// Name and version of the format. A reader refuses any other.
pub const SCHEMA: &str = "superpage.compare/1";

/// A comparison. Numbers are in base units (bytes, seconds); unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of superpage that made it.
    pub superpage_version: String,
    /// When it began, in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
    /// The command that was compared, as words.
    pub command: Vec<Word>,
    /// What is around it, if that is a service: it alone has the arms, and is watched and counted; `wall_seconds` and
    /// the figures are of its load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Order, warm-ups, stopping rule.
    pub settings: Settings,
    /// How to judge.
    pub judging: Judging,
    /// The program's own figure, if it was looked for.
    pub metric: Option<MetricSpec>,
    /// Further figures of the same output, each with verdicts of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_metrics: Vec<MetricSpec>,
    /// Whether the comparison is about the program's figures rather than wall time.
    pub metric_is_primary: bool,
    /// The arms that ran; the first is the reference.
    pub arms: Vec<Arm>,
    /// Arms that were asked for and could not run here.
    pub left_out: Vec<LeftOut>,
    /// The machine before the first run.
    pub machine: Snapshot,
    /// Settings of the machine that were changed for the runs and put back afterwards, in words.
    pub lent: Vec<String>,
    /// Settings that somebody changed while the runs were made: they make the runs incomparable.
    pub changed_meanwhile: Vec<String>,
    /// Every run, in the order they were made.
    pub samples: Vec<Sample>,
    /// Why the runs ended.
    pub stopped: Stopped,
    /// Looks at the verdicts to decide whether to go on.
    #[serde(default)]
    pub looks: Looks,
    /// Seconds from the first warm-up to the last run.
    #[serde(deserialize_with = "units::seconds")]
    pub elapsed_seconds: f64,
    /// What superpages were predicted to bring, if that was asked.
    #[serde(default)]
    pub predicted: Option<Predicted>,
    /// Where `compare stream` placed the arrays, unless it was told to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrays: Option<Arrays>,
}

units::checked!(Document);

/// Where STREAM's arrays were, and where else they were tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrays {
    /// By how much they are shifted at a time: a cache line.
    #[serde(deserialize_with = "units::bytes")]
    pub line_bytes: u64,
    /// The `--offset` of the runs.
    #[serde(deserialize_with = "units::bytes")]
    pub offset_bytes: u64,
    /// How much these runs differed; `null` under two runs.
    pub deviation: Option<Deviation>,
    /// Runs with other offsets before them, given up because equal runs differed too much. They are in no verdict.
    pub earlier: Vec<Attempt>,
}

/// The largest standard deviation of an arm's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// The arm's name.
    pub arm: String,
    /// The metric's name.
    pub metric: String,
    /// The deviation as a share of the mean.
    #[serde(deserialize_with = "units::proportion")]
    pub share: f64,
}

/// Runs with arrays that were shifted afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Their `--offset`.
    #[serde(deserialize_with = "units::bytes")]
    pub offset_bytes: u64,
    /// How much they differed.
    pub deviation: Option<Deviation>,
    /// Names of the arms, as the samples count them.
    pub arms: Vec<String>,
    /// Every run, in the order they were made.
    pub samples: Vec<Sample>,
    /// Seconds from the first warm-up to the last run.
    #[serde(deserialize_with = "units::seconds")]
    pub elapsed_seconds: f64,
}

/// What superpages should bring the reference arm's program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The prediction.
    pub prediction: Prediction,
    /// It is about the phase that the metric times; else about all CPU time.
    pub of_metric: bool,
    /// What it was made from, in words.
    pub source: String,
    /// What is not in it.
    pub notes: Vec<String>,
}

impl Predicted {
    /// How many times faster it should be: at least, most likely, at most.
    pub fn ratio(&self) -> [f64; 3] {
        let saved = self.prediction.saved;
        [saved.low, saved.mid, saved.high].map(|saved| 1.0 / (1.0 - saved).max(0.01))
    }

    /// The same in words.
    pub fn ratio_text(&self) -> String {
        let [low, mid, high] = self.ratio().map(report::format::ratio);
        let of = if self.of_metric { "" } else { " of CPU time" };
        format!("predicted{of} {mid} ({low} to {high})")
    }
}

impl Document {
    /// The program's figures that were looked for, in the order of [`Sample::metric_at`].
    pub fn metrics(&self) -> impl Iterator<Item = &MetricSpec> {
        self.metric.iter().chain(&self.more_metrics)
    }

    /// CPUs, memory, kernel and THP setting of the machine, in a line.
    pub fn machine_line(&self) -> String {
        machine_line(&self.machine)
    }

    /// Seconds of all runs, those with other offsets included.
    pub fn total_seconds(&self) -> f64 {
        let earlier = self.arrays.iter().flat_map(|arrays| &arrays.earlier);
        self.elapsed_seconds + earlier.map(|attempt| attempt.elapsed_seconds).sum::<f64>()
    }

    /// The settings of the statistics.
    pub fn statistics(&self) -> stats::Settings {
        let confidence = self.judging.confidence;
        let level = self.looks.level(confidence, self.stopped.end());
        stats::Settings { confidence, level, seed: self.settings.seed }
    }

    /// The prediction, if it is about this quantity of an arm on superpages.
    pub fn predicted_for(&self, arm: &str, quantity: &Measure) -> Option<&Predicted> {
        let arm = self.arms.iter().find(|one| one.name == arm)?;
        let told = self.predicted.as_ref()?;
        let is_about = told.of_metric == (*quantity != Measure::Wall);
        (is_about && arm.plan.promise == launch::Promise::Superpages).then_some(told)
    }
}

/// CPUs, memory, kernel and THP setting of a machine, in a line.
pub fn machine_line(machine: &Snapshot) -> String {
    let cpu = machine.cpu.as_ref();
    let model = cpu.and_then(|cpu| cpu.model.clone()).unwrap_or("unknown CPU".to_string());
    let cpus = cpu.and_then(|cpu| cpu.online).map_or("?".to_string(), |count| count.to_string());
    let memory = machine.memory.as_ref().and_then(|memory| memory.total);
    let memory = memory.map_or("?".to_string(), |total| total.to_string());
    let thp = machine.thp.as_ref().and_then(|thp| thp.enabled.as_ref());
    let thp = thp.map_or("none".to_string(), |enabled| enabled.selected.clone());
    let kernel = machine.kernel.clone().unwrap_or("?".to_string());
    format!("{cpus} x {model}, {memory}, Linux {kernel}, THP {thp}")
}

/// How verdicts are reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judging {
    /// Differences within this fraction are "the same", even if certain.
    #[serde(deserialize_with = "units::share")]
    pub same_within: f64,
    /// Differences that may be none are "the same" up to this fraction.
    #[serde(deserialize_with = "units::share")]
    pub same_at_most: f64,
    /// Confidence of the intervals.
    pub confidence: Confidence,
    /// Least share of the memory that can be on superpages for an arm that promised them.
    #[serde(deserialize_with = "units::share")]
    pub least_coverage: f64,
}

impl Default for Judging {
    /// That of a comparison of which nothing else is said.
    fn default() -> Self {
        Self {
            same_within: 0.02,
            same_at_most: 0.05,
            confidence: Confidence::P99,
            least_coverage: 0.8,
        }
    }
}

impl Judging {
    /// How large a difference is worth a word, beside a noise floor.
    pub fn margin(&self, noise_floor: Option<f64>) -> Margin {
        Margin { same_within: self.same_within, same_at_most: self.same_at_most, noise_floor }
    }
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name; unique in the document.
    pub name: String,
    /// What was asked for.
    pub recipe: Recipe,
    /// What that meant here.
    pub plan: Plan,
    /// The reference run a second time under another name, to measure the noise floor.
    pub is_noise_floor: bool,
}

/// An arm that did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why, and what would let it.
    pub why: String,
}

/// Why a file is no document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON, or not of our fields.
    #[error("{0}: {1}; give a comparison that `superpage compare --json` wrote")]
    NotADocument(String, String),
    /// The same of an evaluation.
    #[error("{0}: {1}; give an evaluation that `superpage evaluate --json` wrote")]
    NotAnEvaluation(String, String),
    /// Of another version.
    #[error(
        "{file}: unsupported schema `{found}` (expected {SCHEMA}); use the version of superpage \
         that wrote it"
    )]
    OtherSchema {
        /// The file.
        file: String,
        /// Its schema.
        found: String,
    },
}

impl Document {
    /// Reads a document; `file` is for messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        let broken = |why: String| DocumentError::NotADocument(file.into(), why);
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
        let found = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or("none");
        if found != SCHEMA {
            return Err(DocumentError::OtherSchema { file: file.into(), found: found.into() });
        }
        // From the text again, not from `value`: an error then names line and column.
        report::document::read(text).map_err(broken)
    }

    /// The document as JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data serializes");
        text.push('\n');
        text
    }

    fn check_samples(samples: &[Sample], arms: &[&str], place: &str) -> Result<(), String> {
        let strange = samples.iter().position(|sample| sample.arm as usize >= arms.len());
        match strange {
            Some(at) => {
                let arm = samples[at].arm;
                Err(format!("{place}[{at}].arm: {arm}: expected less than {}", arms.len()))
            }
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!("schema: `{}`: expected {SCHEMA}", self.schema));
        }
        if self.arms.is_empty() {
            return Err("arms: there are none".to_string());
        }
        let names: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        Self::check_samples(&self.samples, &names, "samples")?;
        for attempt in self.arrays.iter().flat_map(|arrays| &arrays.earlier) {
            let names: Vec<&str> = attempt.arms.iter().map(String::as_str).collect();
            Self::check_samples(&attempt.samples, &names, "arrays.earlier: samples")?;
        }
        Ok(())
    }
}
