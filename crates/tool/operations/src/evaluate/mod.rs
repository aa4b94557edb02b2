//! Evaluations: compare the entries of suites, on this machine or on a cluster.

mod find;
mod here;
mod on;

use std::path::{Path, PathBuf};

use experiment::evaluation::{Evaluation, NotRun};
use serde::Serialize;

pub use find::entries;
pub use here::into;

use crate::cluster::{ClusterArgs, On, Submission};
use crate::compare::suite::Entry;
use crate::{Failure, files};

/// A request for an evaluation.
#[derive(Clone, Debug)]
pub struct Request {
    /// Suites, as in `superpage evaluate`; empty: all installed suites.
    pub suites: Vec<String>,
    /// Time limit in seconds, shared among the entries.
    pub max_time: f64,
    /// The file that keeps the results.
    pub resume: Option<PathBuf>,
    /// Whether to use results that an evaluation left, although its file is gone.
    pub force: bool,
    /// Whether to hide progress.
    pub quiet: bool,
    /// Where to run the evaluation.
    pub cluster: ClusterArgs,
}

/// How an evaluation ended: the signal that ended it, if a signal did.
pub type End = Result<Option<i32>, Failure>;

/// What an evaluation would run.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// Where the evaluation would run: local, slurm or ray.
    pub on: &'static str,
    /// The entries to run.
    pub entries: Vec<PlannedEntry>,
    /// Entries that are not run, with the reasons.
    pub not_run: Vec<NotRun>,
    /// What would be submitted to a cluster.
    #[serde(flatten)]
    pub submission: Option<SubmittedPlan>,
}

/// An entry to run.
#[derive(Debug, Serialize)]
pub struct PlannedEntry {
    /// Name of the entry.
    pub name: String,
    /// File of the entry's suite.
    pub suite: PathBuf,
    /// Time limit of the entry in seconds.
    pub seconds: f64,
    /// The command that must succeed first.
    pub check: Option<String>,
}

impl PlannedEntry {
    fn new(entry: &Entry, seconds: f64) -> Self {
        let check = entry.check().map(String::from);
        Self { name: entry.name.clone(), suite: entry.path.clone(), seconds, check }
    }
}

/// What would be submitted to a cluster.
#[derive(Debug, Serialize)]
pub struct SubmittedPlan {
    /// Directory of the results.
    pub directory: String,
    /// Command and script.
    #[serde(flatten)]
    pub submission: Submission,
}

impl Request {
    /// Runs the pending entries. If [`End`] reports a signal or failure, the evaluation holds the results until then.
    ///
    /// # Errors
    /// Nothing can be run.
    pub fn run(&self) -> Result<(Evaluation, End), Failure> {
        match self.cluster.on {
            On::Local => here::evaluate(self),
            On::Slurm | On::Ray => on::evaluate(self),
        }
    }

    /// Plans the evaluation without running it.
    ///
    /// # Errors
    /// A suite cannot be read.
    pub fn plan(&self) -> Result<Plan, Failure> {
        match self.cluster.on {
            On::Local => here::plan(self),
            On::Slurm | On::Ray => on::plan(self),
        }
    }
}

/// Reads a saved evaluation.
///
/// # Errors
/// The file cannot be read, or is not an evaluation.
pub fn read(path: &Path) -> Result<Evaluation, Failure> {
    const MAX_BYTES: u64 = 1 << 30;
    let text = files::text(path, MAX_BYTES, "a file that `evaluate --json` wrote")?;
    Evaluation::parse(&text, &path.display().to_string()).map_err(Failure::usage)
}
