//! Evaluations: the entries of suites, each compared, here or on a cluster.

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

/// An evaluation that is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Suites, as `superpage evaluate` names them; none: all that come with superpage.
    pub suites: Vec<String>,
    /// Seconds, shared among the entries.
    pub max_time: f64,
    /// The file that keeps what is done.
    pub resume: Option<PathBuf>,
    /// Also take results of an evaluation whose file is gone.
    pub force: bool,
    /// No progress.
    pub quiet: bool,
    /// Where to run it.
    pub cluster: ClusterArgs,
}

/// How an evaluation ended: the signal that ended it, if one did.
pub type End = Result<Option<i32>, Failure>;

/// What an evaluation would run.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// Where.
    pub on: &'static str,
    /// The entries.
    pub entries: Vec<PlannedEntry>,
    /// Those that are not run, and why.
    pub not_run: Vec<NotRun>,
    /// What a cluster gets.
    #[serde(flatten)]
    pub submission: Option<SubmittedPlan>,
}

/// An entry that would be run.
#[derive(Debug, Serialize)]
pub struct PlannedEntry {
    /// Its name.
    pub name: String,
    /// The file of its suite.
    pub suite: PathBuf,
    /// The time that it gets.
    pub seconds: f64,
    /// The command that has to succeed before.
    pub check: Option<String>,
}

impl PlannedEntry {
    fn new(entry: &Entry, seconds: f64) -> Self {
        let check = entry.check().map(String::from);
        Self { name: entry.name.clone(), suite: entry.path.clone(), seconds, check }
    }
}

/// What a cluster gets.
#[derive(Debug, Serialize)]
pub struct SubmittedPlan {
    /// The directory of its results.
    pub directory: String,
    /// Command and script.
    #[serde(flatten)]
    pub submission: Submission,
}

impl Request {
    /// Runs what is not done yet. [`End`] says what a signal or a failure made of it; the evaluation has what was measured
    /// until then.
    ///
    /// # Errors
    /// Nothing can be run.
    pub fn run(&self) -> Result<(Evaluation, End), Failure> {
        match self.cluster.on {
            On::Local => here::evaluate(self),
            On::Slurm | On::Ray => on::evaluate(self),
        }
    }

    /// What would be run.
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
/// It cannot be read, or is none.
pub fn read(path: &Path) -> Result<Evaluation, Failure> {
    const MAX_BYTES: u64 = 1 << 30;
    let text = files::text(path, MAX_BYTES, "a file that `evaluate --json` wrote")?;
    Evaluation::parse(&text, &path.display().to_string()).map_err(Failure::usage)
}
