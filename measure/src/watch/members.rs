//! The processes of a watched run, and their `/proc/PID/status`, kept open.

use std::collections::BTreeMap;

use machine::process::{self, KeptLoad, KeptStatus, Resident};
use machine::{ReadError, Root};
use units::Pid;

use crate::family::Family;

/// Files kept open at most: a launcher may have 1024 descriptors, and passes none on.
const MOST_FILES: usize = 128;

pub(super) struct Members {
    root: Root,
    family: Family,
    pids: Vec<Pid>,
    files: BTreeMap<Pid, KeptStatus>,
    load: Option<KeptLoad>,
    /// The newest pid on the machine when `pids` was read: while it stays, nobody was born.
    newest: Option<Pid>,
}

impl Members {
    pub(super) fn new(root: Root, family: Family) -> Self {
        let load = KeptLoad::open(&root).ok();
        Self { root, family, pids: Vec::new(), files: BTreeMap::new(), load, newest: None }
    }

    pub(super) fn pids(&self) -> &[Pid] {
        &self.pids
    }

    /// Finds them anew only if a process was born anywhere since: that costs a read per process on kernels
    /// without CONFIG_PROC_CHILDREN.
    pub(super) fn renew(&mut self) {
        let newest = self.load.as_mut().and_then(|load| load.newest_pid().ok());
        if newest.is_none() || newest != self.newest {
            self.pids = self.family.members();
            self.files.retain(|pid, _| self.pids.contains(pid));
            self.newest = newest;
        }
    }

    pub(super) fn status(&mut self, pid: Pid) -> Result<Resident, ReadError> {
        if let Some(file) = self.files.get_mut(&pid) {
            let status = file.read();
            if status.as_ref().is_err_and(ReadError::is_gone) {
                self.files.remove(&pid);
            }
            return status;
        }
        let mut file = KeptStatus::open(&self.root, pid)?;
        let status = file.read();
        if self.files.len() < MOST_FILES {
            self.files.insert(pid, file);
        }
        status
    }

    /// Faults without I/O that they took; `None` if one is gone.
    pub(super) fn minor_faults(&self) -> Option<u64> {
        let of = |pid: &Pid| process::stat(&self.root, *pid).ok().map(|stat| stat.minor_faults);
        self.pids.iter().map(of).sum()
    }
}
