//! What a watcher reads many times a second, from files that stay open.

use units::Pid;

use super::resident::{self, Resident};
use super::tree;
use crate::root::KeptFile;
use crate::{ReadError, Root};

/// An open `/proc/PID/status`. It stays that process's when its pid is given out again.
#[derive(Debug)]
pub struct KeptStatus(KeptFile);

impl KeptStatus {
    /// Opens it.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        KeptFile::open(root, &format!("/proc/{pid}/status")).map(Self)
    }

    /// What [`super::status`] reads; an error that [is gone](ReadError::is_gone) when the process ended.
    pub fn read(&mut self) -> Result<Resident, ReadError> {
        let (text, path) = self.0.read()?;
        resident::parse(&text, path)
    }
}

/// An open `/proc/loadavg`.
#[derive(Debug)]
pub struct KeptLoad(KeptFile);

/// What it says now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Threads of the machine that run or wait for a CPU, the reader's among them.
    pub running: u64,
    /// The pid given out last on this machine.
    pub newest: Pid,
}

impl KeptLoad {
    /// Opens it.
    pub fn open(root: &Root) -> Result<Self, ReadError> {
        KeptFile::open(root, "/proc/loadavg").map(Self)
    }

    /// Reads it.
    pub fn read(&mut self) -> Result<Load, ReadError> {
        let (text, path) = self.0.read()?;
        Ok(Load {
            running: tree::parse_running(&text, path)?,
            newest: tree::parse_newest(&text, path)?,
        })
    }

    /// The pid given out last on this machine: while it stays, no process was born anywhere, so a tree read
    /// before is still complete.
    pub fn newest_pid(&mut self) -> Result<Pid, ReadError> {
        let (text, path) = self.0.read()?;
        tree::parse_newest(&text, path)
    }
}
