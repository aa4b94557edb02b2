//! `Document`: one comparison as a file. It holds only facts. Every verdict is computed from the facts, so the same
//! file always gives the same verdict.

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
    /// Version of superpage that wrote it.
    pub superpage_version: String,
    /// Start time in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
    /// The compared command, as words.
    pub command: Vec<Word>,
    /// The configuration of a service, if the command is one. Arms, observation and counters then apply only to the
    /// service; `wall_seconds` and the metrics are those of its load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Order, warm-ups, stopping rule.
    pub settings: Settings,
    /// Thresholds of the verdicts.
    pub judging: Judging,
    /// The program's own metric, if requested.
    pub metric: Option<MetricSpec>,
    /// Further metrics of the same output, each with its own verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_metrics: Vec<MetricSpec>,
    /// Whether the comparison is about the program's metrics instead of wall time.
    pub metric_is_primary: bool,
    /// The arms that ran; the first is the reference.
    pub arms: Vec<Arm>,
    /// Requested arms that could not run here.
    pub left_out: Vec<LeftOut>,
    /// The machine before the first run.
    pub machine: Snapshot,
    /// Settings that were changed for the runs and restored, as text.
    pub lent: Vec<String>,
    /// Settings that another process changed during the runs: the runs are then incomparable.
    pub changed_meanwhile: Vec<String>,
    /// Every run, in the order of execution.
    pub samples: Vec<Sample>,
    /// Why the runs ended.
    pub stopped: Stopped,
    /// Interim looks at the verdicts to decide whether to continue.
    #[serde(default)]
    pub looks: Looks,
    /// Seconds from the first warm-up to the last run.
    #[serde(deserialize_with = "units::seconds")]
    pub elapsed_seconds: f64,
    /// What else the machine did during the runs; `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<host::Neighbours>,
    /// The predicted effect of superpages, if requested.
    #[serde(default)]
    pub predicted: Option<Predicted>,
    /// Array placement of `compare stream`, unless `--offset` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrays: Option<Arrays>,
}

units::checked!(Document);

/// Placement of STREAM's arrays, and the offsets tried earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrays {
    /// Bytes of one shift: a cache line.
    #[serde(deserialize_with = "units::bytes")]
    pub line_bytes: u64,
    /// The `--offset` of the runs.
    #[serde(deserialize_with = "units::bytes")]
    pub offset_bytes: u64,
    /// Deviation of these runs; `null` with fewer than two runs.
    pub deviation: Option<Deviation>,
    /// Runs with other offsets, abandoned because equal runs differed too much. No verdict uses these runs.
    pub earlier: Vec<Attempt>,
}

/// The largest standard deviation of an arm's metric.
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

/// Abandoned runs with another array offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// `--offset` of the runs.
    #[serde(deserialize_with = "units::bytes")]
    pub offset_bytes: u64,
    /// Deviation of the runs.
    pub deviation: Option<Deviation>,
    /// Names of the arms, indexed by the samples' arm numbers.
    pub arms: Vec<String>,
    /// Every run, in the order of execution.
    pub samples: Vec<Sample>,
    /// Seconds from the first warm-up to the last run.
    #[serde(deserialize_with = "units::seconds")]
    pub elapsed_seconds: f64,
}

/// Predicted effect of superpages on the reference arm's program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The prediction.
    pub prediction: Prediction,
    /// Whether the prediction is about the phase that the metric times; otherwise it is about all CPU time.
    pub of_metric: bool,
    /// The source of the accesses, as text.
    pub source: String,
    /// Limitations of the prediction.
    pub notes: Vec<String>,
}

impl Predicted {
    /// Returns the predicted speedup: lower bound, most likely value, upper bound.
    pub fn ratio(&self) -> [f64; 3] {
        let saved = self.prediction.saved;
        [saved.low, saved.mid, saved.high].map(|saved| 1.0 / (1.0 - saved).max(0.01))
    }

    /// Formats the predicted speedup.
    pub fn ratio_text(&self) -> String {
        let [low, mid, high] = self.ratio().map(report::format::ratio);
        let of = if self.of_metric { "" } else { " of CPU time" };
        format!("predicted{of} {mid} ({low} to {high})")
    }
}

/// The command that reads another document.
fn remedy(found: &str, file: &str) -> String {
    let command = match found.split('/').next().unwrap_or_default() {
        "superpage.evaluation" => "evaluate",
        _ => return "; give a file that compare wrote with --json".to_string(),
    };
    format!("; superpage {command} --from {file} prints it")
}

impl Document {
    /// Returns the program's metrics, in the order of [`Sample::metric_at`].
    pub fn metrics(&self) -> impl Iterator<Item = &MetricSpec> {
        self.metric.iter().chain(&self.more_metrics)
    }

    /// Formats CPUs, memory, kernel and THP setting of the machine, in one line.
    pub fn machine_line(&self) -> String {
        machine_line(&self.machine)
    }

    /// Returns the seconds of all runs, including those with other offsets.
    pub fn total_seconds(&self) -> f64 {
        let earlier = self.arrays.iter().flat_map(|arrays| &arrays.earlier);
        self.elapsed_seconds + earlier.map(|attempt| attempt.elapsed_seconds).sum::<f64>()
    }

    /// Returns the parameters of the statistics.
    pub fn statistics(&self) -> stats::Settings {
        let confidence = self.judging.confidence;
        let level = self.looks.level(confidence, self.stopped.end());
        stats::Settings { confidence, level, seed: self.settings.seed }
    }

    /// Returns the prediction, if it is about this quantity and the arm promises superpages.
    pub fn predicted_for(&self, arm: &str, quantity: &Measure) -> Option<&Predicted> {
        let arm = self.arms.iter().find(|one| one.name == arm)?;
        let told = self.predicted.as_ref()?;
        let is_about = told.of_metric == (*quantity != Measure::Wall);
        (is_about && arm.plan.promise == launch::Promise::Superpages).then_some(told)
    }
}

/// Formats CPUs, memory, kernel and THP setting of a machine, in one line.
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

/// Thresholds of the verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judging {
    /// Differences within this fraction are "the same", even if they are significant.
    #[serde(deserialize_with = "units::share")]
    pub same_within: f64,
    /// Arms that may be equal are "the same" if they differ by at most this fraction.
    #[serde(deserialize_with = "units::share")]
    pub same_at_most: f64,
    /// Confidence of the intervals.
    pub confidence: Confidence,
    /// Minimum share of the eligible memory on superpages, for an arm that promised them.
    #[serde(deserialize_with = "units::share")]
    pub least_coverage: f64,
}

impl Default for Judging {
    /// Returns the defaults of a comparison.
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
    /// Returns the margin of the verdicts, given a noise floor.
    pub fn margin(&self, noise_floor: Option<f64>) -> Margin {
        Margin { same_within: self.same_within, same_at_most: self.same_at_most, noise_floor }
    }
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Name of the arm; unique in the document.
    pub name: String,
    /// The requested recipe.
    pub recipe: Recipe,
    /// Plan of the recipe on this machine.
    pub plan: Plan,
    /// Whether this is the reference run a second time under another name, to measure the noise floor.
    pub is_noise_floor: bool,
}

/// An arm that did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Name of the arm.
    pub name: String,
    /// The reason, and the remedy.
    pub why: String,
}

/// Why a file is not a document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file is not JSON, or has other fields.
    #[error("{0}: {1}; give a comparison that `superpage compare --json` wrote")]
    NotADocument(String, String),
    /// The file is not an evaluation.
    #[error("{0}: {1}; give an evaluation that `superpage evaluate --json` wrote")]
    NotAnEvaluation(String, String),
    /// The file is another document, or none.
    #[error("{file}: not a comparison: its schema is `{found}`{}", remedy(found, file))]
    OtherKind {
        /// The file's name.
        file: String,
        /// Its schema; `none` without one.
        found: String,
    },
    /// The file has another version of the format.
    #[error(
        "{file}: unsupported schema `{found}` (expected {SCHEMA}); use the version of superpage \
         that wrote it"
    )]
    OtherSchema {
        /// The file.
        file: String,
        /// The schema found.
        found: String,
    },
}

impl Document {
    /// Parses a document. Error messages name `file`.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        let broken = |why: String| DocumentError::NotADocument(file.into(), why);
        let value = report::document::json(text).map_err(|error| broken(error.to_string()))?;
        let found = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or("none");
        let kind = |schema: &str| schema.split('/').next().unwrap_or_default().to_string();
        if kind(found) != kind(SCHEMA) {
            return Err(DocumentError::OtherKind { file: file.into(), found: found.into() });
        }
        if found != SCHEMA {
            return Err(DocumentError::OtherSchema { file: file.into(), found: found.into() });
        }
        // Parse the text again, not `value`, so that an error has line and column.
        report::document::read(text).map_err(broken)
    }

    /// Formats the document as JSON, ending in a newline.
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
