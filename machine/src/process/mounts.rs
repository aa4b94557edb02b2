//! `/proc/PID/mountinfo`: which devices hold memory, so that their pages count as what they are.

use std::path::Path;

use units::Pid;

use super::maps::Device;
use crate::{ReadError, Root, text};

/// The device numbers of file systems that live in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryMounts {
    /// tmpfs and devtmpfs: shared memory.
    pub tmpfs: Vec<Device>,
    /// hugetlbfs: pages of the pools.
    pub hugetlbfs: Vec<Device>,
}

impl MemoryMounts {
    /// The mounts that a process sees. Where mountinfo is missing or refused, none are known, and
    /// the kernel's own names for shared memory still tell most of it.
    pub(crate) fn of(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let path = format!("/proc/{pid}/mountinfo");
        match root.read(&path) {
            Err(error) if error.is_gone() || error.is_denied() => Ok(Self::default()),
            text => parse(&text?, &root.path(&path)),
        }
    }
}

/// Reads the text of mountinfo; `path` is named in errors. See proc_pid_mountinfo(5): a number of
/// optional fields, a lone `-`, and the file system's type.
pub fn parse(text: &str, path: &Path) -> Result<MemoryMounts, ReadError> {
    let mut mounts = MemoryMounts::default();
    for (line, bad) in text::numbered(text, path) {
        let bad = || bad("`id parent major:minor root point options... - type source options`");
        let (before, after) = line.split_once(" - ").ok_or_else(bad)?;
        let device = before.split(' ').nth(2).and_then(|device| device.split_once(':'));
        let (major, minor) = device.ok_or_else(bad)?;
        let device = Device {
            major: major.parse().map_err(|_| bad())?,
            minor: minor.parse().map_err(|_| bad())?,
        };
        match after.split(' ').next() {
            Some("tmpfs" | "devtmpfs") => mounts.tmpfs.push(device),
            Some("hugetlbfs") => mounts.hugetlbfs.push(device),
            _ => {}
        }
    }
    Ok(mounts)
}
