//! `Document`: one comparison on a running service as a file. It holds only facts.

use host::Snapshot;
use serde::{Deserialize, Serialize};
use units::Pid;

use super::metric::Metric;
use super::procedure::{Arm, Block, Left, Purpose, Ran, Settings, Stopped};
use crate::document::{DocumentError, Judging};
use crate::stats;
use crate::stats::stopping::Looks;

/// Name and version of the format.
pub const SCHEMA: &str = "superpage.compare-running/1";

const CSV_HEAD: &str = "arm,purpose,within_bounds,round,slot,began_seconds,seconds,value,eligible_bytes,coverage_before,\
coverage_after\n";

/// A comparison on a running service. Numbers are in base units (bytes, seconds); unknown is `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of superpage that wrote it.
    pub superpage_version: String,
    /// Start time in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
    /// The service's processes.
    pub processes: Vec<Process>,
    /// The metric.
    pub metric: Metric,
    /// Order, warm-ups, stopping rule, bounds of the coverage.
    pub settings: Settings,
    /// Thresholds of the verdicts.
    pub judging: Judging,
    /// The arms; the first is the reference.
    pub arms: Vec<Arm>,
    /// The machine before the first block.
    pub machine: Snapshot,
    /// Every block, in the order of execution.
    pub blocks: Vec<Block>,
    /// Why the blocks ended.
    pub stopped: Stopped,
    /// Interim looks at the verdicts to decide whether to continue.
    pub looks: Looks,
    /// Seconds from the first block to the last.
    #[serde(deserialize_with = "units::seconds")]
    pub elapsed_seconds: f64,
    /// What else the machine did during the blocks, the service's clients included; `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<host::Neighbours>,
    /// How the memory was left; `null` before the end.
    pub left: Option<Left>,
}

units::checked!(Document);

/// A process of the service, as it was when it was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: Pid,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// The command's name.
    pub name: String,
    /// The systemd unit.
    pub unit: Option<String>,
    /// Path of the memory cgroup.
    pub cgroup: Option<String>,
}

/// What is known before the first block.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The service's processes.
    pub processes: Vec<Process>,
    /// The metric.
    pub metric: Metric,
    /// Order, warm-ups, stopping rule, bounds of the coverage.
    pub settings: Settings,
    /// Thresholds of the verdicts.
    pub judging: Judging,
    /// The arms.
    pub arms: Vec<Arm>,
    /// The machine.
    pub machine: Snapshot,
    /// Start time in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
}

impl Document {
    /// Creates the document of blocks that were made.
    pub fn new(subject: Subject, ran: Ran) -> Self {
        let Subject { processes, metric, settings, judging, arms, machine, began_unix_seconds } =
            subject;
        Self {
            schema: SCHEMA.to_string(),
            superpage_version: env!("CARGO_PKG_VERSION").to_string(),
            began_unix_seconds,
            processes,
            metric,
            settings,
            judging,
            arms,
            machine,
            blocks: ran.blocks,
            stopped: ran.stopped,
            looks: ran.looks,
            elapsed_seconds: ran.elapsed_seconds,
            neighbours: None,
            left: None,
        }
    }

    /// Returns whether the schema of the text is that of a comparison on a running service.
    pub fn is_one(text: &str) -> bool {
        let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
        value.is_some_and(|value| value["schema"] == SCHEMA)
    }

    /// Parses a document. Error messages name `file`.
    ///
    /// # Errors
    /// It is not JSON of these fields, or a field is damaged.
    pub fn parse(text: &str, file: &str) -> Result<Self, DocumentError> {
        report::document::read(text).map_err(|why| DocumentError::NotADocument(file.into(), why))
    }

    /// Formats the document as JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data serializes");
        text.push('\n');
        text
    }

    /// Formats every block as CSV, one line each: base units; unknown is empty.
    pub fn to_csv(&self) -> String {
        let mut text = CSV_HEAD.to_string();
        for block in &self.blocks {
            let arm = block.arm.and_then(|arm| self.arms.get(arm as usize));
            let fault = arm.and_then(|arm| block.fault(arm, &self.settings.bounds));
            let purpose = match block.purpose {
                Purpose::AsFound => "as-found",
                Purpose::WarmUp => "warm-up",
                Purpose::Measured => "measured",
            };
            let counts = if fault.is_some() { "no" } else { "yes" };
            let words = [arm.map_or("as found", |arm| arm.name.as_str()), purpose, counts];
            let numbers = [
                Some(f64::from(block.round)),
                Some(f64::from(block.slot)),
                Some(block.began_seconds),
                Some(block.seconds),
                block.value,
                Some(block.before.eligible_bytes as f64),
                block.before.share(),
                block.after.and_then(|after| after.share()),
            ];
            text += &report::csv::line(words, numbers);
        }
        text
    }

    /// Returns the parameters of the statistics.
    pub fn statistics(&self) -> stats::Settings {
        let confidence = self.judging.confidence;
        let level = self.looks.level(confidence, self.stopped.end());
        stats::Settings { confidence, level, seed: self.settings.seed }
    }

    fn check(&self) -> Result<(), String> {
        if self.schema != SCHEMA {
            return Err(format!("schema: `{}`: expected {SCHEMA}", self.schema));
        }
        if self.arms.is_empty() {
            return Err("arms: there are none".to_string());
        }
        if let Some(at) = self.processes.iter().position(|process| process.pid.0 <= 0) {
            return Err(format!("processes[{at}].pid: expected more than 0"));
        }
        let arms = self.arms.len();
        for (at, block) in self.blocks.iter().enumerate() {
            if block.arm.is_some_and(|arm| arm as usize >= arms) {
                return Err(format!("blocks[{at}].arm: expected less than {arms}"));
            }
            let mut both = std::iter::once(&block.before).chain(&block.after);
            if both.any(|one| one.superpage_bytes > one.eligible_bytes) {
                return Err(format!("blocks[{at}]: superpage_bytes are more than eligible_bytes"));
            }
        }
        Ok(())
    }
}
