//! `Document` of `superpage bench touch` and `superpage bench requests`: how fast a process gets memory, and how
//! long single accesses wait for it, by arm and number of threads.
//!
//! The command makes the runs (over [`crate::procedure`] and [`crate::execute`]) and hands their outcomes to
//! [`Row::new`]; everything else here is computed from them. `picture` draws it.

mod picture;
mod row;

use host::Snapshot;
use launch::{Plan, Recipe, Word};
use serde::Serialize;
use units::PageSize;

use crate::document::LeftOut;
pub use row::{Percentiles, ReadBack, Row, Spread, Summary};

/// Name and version of the format.
pub const SCHEMA: &str = "superpage.bench/1";

/// One run of the benchmark: all its arms. Base units; unknown is `null`.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// `touch` or `requests`.
    pub bench: &'static str,
    /// Version of superpage that made it.
    pub superpage_version: &'static str,
    /// When it began, in seconds since 1970 (UTC).
    pub began_unix_seconds: u64,
    /// The workload's command, as people know it, but for threads and what arms add.
    pub command: Vec<Word>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Measured runs of each row.
    pub runs: u32,
    /// The machine before the first run.
    pub machine: Snapshot,
    /// Settings that were changed for the runs and put back, in words.
    pub lent: Vec<String>,
    /// Settings that somebody else changed meanwhile.
    pub changed_meanwhile: Vec<String>,
    /// Arms that could not run here.
    pub left_out: Vec<LeftOut>,
    /// Seconds that all runs took.
    pub elapsed_seconds: f64,
    /// By arm and threads.
    pub rows: Vec<Row>,
}

/// One arm with one number of threads, before it is run.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The arm's name.
    pub arm: String,
    /// What was asked for.
    pub recipe: Recipe,
    /// What that means here.
    pub plan: Plan,
    /// Threads that touch, or serve.
    pub threads: usize,
    /// Whether the kernel is asked to fault pages in ahead.
    pub populates: bool,
    /// For an arm on smaller superpages (mTHP): of which size. All others are off while it runs, if
    /// settings were allowed to be changed.
    pub folio: Option<PageSize>,
}

impl Document {
    /// The document as JSON, ending in a newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data serializes") + "\n"
    }

    /// The picture: how long the share of accesses took that took longest, or rates where none were timed.
    pub fn to_svg(&self) -> String {
        picture::draw(self)
    }
}
