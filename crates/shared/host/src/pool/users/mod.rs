//! Users of the pools' pages: processes, and files in hugetlbfs mounts that outlive their processes.

mod files;
mod processes;

use serde::{Deserialize, Serialize};

pub use files::{HugeFile, Stale};
pub use processes::{Holder, Share};

use super::mounts;
use crate::root::Reasons;
use crate::{Root, Unknown};

/// All users of pages of the pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Processes with hugetlb mappings, by pid.
    pub processes: Vec<Holder>,
    /// Files in the visible mounts.
    pub files: Vec<HugeFile>,
    /// Processes and mounts that could not be read, with reasons: without root, other users' processes.
    pub unknown: Vec<Unknown>,
}

impl Users {
    /// Reads every process and every hugetlbfs mount. Costs a read of `maps` for each process, and of `smaps`
    /// for those that have hugetlb mappings.
    pub fn read(root: &Root) -> Self {
        let mut reasons = Reasons::default();
        let table = mounts::mounts(root);
        let mounts = reasons.ask("/proc/self/mounts", table).unwrap_or_default();
        let (processes, held) = processes::scan(root, &mounts, &mut reasons);
        let files = files::scan(root, &mounts, &held, &mut reasons);
        Self { processes, files, unknown: reasons.0 }
    }
}
