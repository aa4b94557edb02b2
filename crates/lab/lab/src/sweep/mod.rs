//! Sweeps: designs x machines x workloads x fragmentations x memory sizes and layouts x seeds, on any number of threads
//! and computers. The result is the same, byte for byte.
//!
//! A [`Plan`] contains the *contents* of everything it names, so a shard needs only a directory with a plan. Each cell
//! has a [struct@Hash] of these contents. A [`Group`] is the set of cells that differ only in the design; the group
//! runs as one pass. A [`Store`] is a directory to which whole groups are added and from which no results are removed,
//! so an interrupted sweep can continue. [`merge`] sorts the results by hash.
//!
//! `plan` is pure. Only `store` accesses files and only `run` uses threads; a single pass uses none. See
//! docs/decisions/lab.md#7.

#[cfg(feature = "parquet")]
mod columns;
#[cfg(feature = "parquet")]
mod parquet;
mod plan;
mod run;
mod store;

pub use plan::Wanted;
pub use plan::{Group, Member, NamedInput, PLAN_SCHEMA, Plan, Shard, ShardError};
pub use plan::{SeedsError, seeds};
pub use run::{Ended, Progress, Ran, run};
pub use run::{MERGE_SCHEMA, Merged, merge};
pub use run::{State, states};
pub use store::Hash;
pub use store::{Contents, Damage, Launched, Store};

use std::io;
use std::path::{Path, PathBuf};

/// Why a sweep failed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// An unusable file or directory.
    #[error("{path}: {source}{remedy}", path = path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
        /// Remedy with a leading separator, or empty.
        remedy: &'static str,
    },
    /// No plan in the directory.
    #[error("{}: holds no plan; make one with `superpage lab sweep plan -o {} …`", .0.display(), .0.display())]
    NoPlan(PathBuf),
    /// The plan cannot be read.
    #[error("{path}: {why}; write it again with `superpage lab sweep plan --force`", path = path.display())]
    BadPlan {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The directory contains another plan.
    #[error("{}: holds another plan; choose another directory, or --force to replace the plan and keep the results that both share", .0.display())]
    OtherPlan(PathBuf),
    /// Another process runs the same shard in the same directory.
    #[error("{directory}: shard {shard} is being run by another process; wait for it, or run another shard", directory = directory.display())]
    Locked {
        /// The directory.
        directory: PathBuf,
        /// The shard.
        shard: Shard,
    },
    /// Another process runs the sweep's jobs on a cluster.
    #[error("{}: its jobs are being watched by another process; wait for it, or end it", .0.display())]
    Launched(PathBuf),
    /// Directories to merge have different plans.
    #[error("{first} and {second}: made from different plans; merge shards of one plan", first = first.display(), second = second.display())]
    PlansDiffer {
        /// The first directory.
        first: PathBuf,
        /// The second directory.
        second: PathBuf,
    },
    /// Two different reports of the same cell.
    #[error("cell {cell} has two different reports, one of them in {path}; they were made by different builds: remove one and run again", path = path.display())]
    Conflict {
        /// The cell.
        cell: Hash,
        /// A file with one of the reports.
        path: PathBuf,
    },
    /// Some cells have no report.
    #[error(
        "{missing} of {planned} cells are missing; run the remaining shards, or --partial to merge what there is"
    )]
    Incomplete {
        /// Cells without a report.
        missing: usize,
        /// Cells of the plan.
        planned: usize,
    },
    /// Writing the Parquet file failed.
    #[cfg(feature = "parquet")]
    #[error("Parquet: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
    /// The threads could not be started.
    #[error("{0}; use fewer --jobs")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl SweepError {
    fn file(path: &Path, source: io::Error) -> Self {
        let remedy = match source.kind() {
            io::ErrorKind::NotFound => "; make the directory first",
            io::ErrorKind::PermissionDenied => "; choose a place you may write",
            io::ErrorKind::NotADirectory => "; give a sweep's directory",
            _ => "",
        };
        Self::File { path: path.to_path_buf(), source, remedy }
    }
}
