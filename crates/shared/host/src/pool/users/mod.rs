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
    /// Files in the hugetlbfs mounts that this process sees.
    pub files: Vec<HugeFile>,
    /// Processes and mounts that could not be read, with reasons. Without root these include other users' processes.
    pub unknown: Vec<Unknown>,
}

/// Lists the files in the hugetlbfs mounts, with the reasons for what is unknown. Reads `maps` and descriptors of
/// processes, and these only if there is a file; never `smaps`, which holds a large process's mmap lock.
pub fn files(root: &Root) -> (Vec<HugeFile>, Vec<Unknown>) {
    let mut reasons = Reasons::default();
    let mounts = reasons.ask("/proc/self/mounts", mounts::mounts(root)).unwrap_or_default();
    if !files::are_there(root, &mounts) {
        return (Vec::new(), reasons.0);
    }
    let held = processes::held(root, &mounts, &mut reasons);
    (files::scan(root, &mounts, &held, &mut reasons), reasons.0)
}

impl Users {
    /// Reads every process and every hugetlbfs mount. Reads `maps` of each process, and `smaps` of processes that have
    /// hugetlb mappings.
    pub fn read(root: &Root) -> Self {
        let mut reasons = Reasons::default();
        let table = mounts::mounts(root);
        let mounts = reasons.ask("/proc/self/mounts", table).unwrap_or_default();
        let (processes, held) = processes::scan(root, &mounts, &mut reasons);
        let files = files::scan(root, &mounts, &held, &mut reasons);
        Self { processes, files, unknown: reasons.0 }
    }
}
