//! Who holds the pools' pages: processes, and files in hugetlbfs mounts that outlive theirs.

mod files;
mod processes;

use serde::{Deserialize, Serialize};

pub use files::{HugeFile, Stale};
pub use processes::{Holder, Share};

use super::mounts;
use crate::root::Reasons;
use crate::{Root, Unknown};

/// Everybody who holds pages of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// Processes with hugetlb mappings, by pid.
    pub processes: Vec<Holder>,
    /// Files in the mounts that can be seen from here.
    pub files: Vec<HugeFile>,
    /// What could not be looked into, and why: without root, other users' processes.
    pub unknown: Vec<Unknown>,
}

impl Users {
    /// Looks through every process and every hugetlbfs mount. Costs a read of `maps` for each
    /// process, and of `smaps` for those that have hugetlb mappings.
    pub fn read(root: &Root) -> Self {
        let mut reasons = Reasons::default();
        let table = mounts::mounts(root);
        let mounts = reasons.ask("/proc/self/mounts", table).unwrap_or_default();
        let (processes, held) = processes::scan(root, &mounts, &mut reasons);
        let files = files::scan(root, &mounts, &held, &mut reasons);
        Self { processes, files, unknown: reasons.0 }
    }
}
