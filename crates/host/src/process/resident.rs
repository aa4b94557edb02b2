//! What a process holds in memory, from `/proc/PID/status`: cheap, without a page table walk.

use std::path::Path;

use serde::{Deserialize, Serialize};
use units::{ByteSize, Pid};

use super::stat::stat;
use crate::{ReadError, Root, text};

/// Resident memory of one process, in bytes. The kernel keeps these counts by CPU and may be off
/// by some dozen pages for each (proc_pid_status(5)). `None`: a kernel thread, or a line that this
/// kernel does not print.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// The command's name.
    pub name: String,
    /// `VmRSS`: `anon` + `file` + `shmem`; hugetlb is not in it.
    pub rss: Option<ByteSize>,
    /// `RssAnon`.
    pub anon: Option<ByteSize>,
    /// `RssFile`.
    pub file: Option<ByteSize>,
    /// `RssShmem`.
    pub shmem: Option<ByteSize>,
    /// `HugetlbPages`.
    pub hugetlb: Option<ByteSize>,
    /// `VmSwap`.
    pub swap: Option<ByteSize>,
    /// `VmHWM`: the largest `rss` ever.
    pub peak_rss: Option<ByteSize>,
    /// `VmPTE`: memory in its page tables.
    pub page_tables: Option<ByteSize>,
    /// `THP_enabled`: false after `prctl(PR_SET_THP_DISABLE)`.
    pub thp_enabled: Option<bool>,
    /// Faults it took without I/O; from `/proc/PID/stat`.
    pub minor_faults: Option<u64>,
    /// When it started, in clock ticks since boot: pid and start name a process for good.
    pub start_ticks: Option<u64>,
}

impl Resident {
    /// `rss` and hugetlb together.
    pub fn total(&self) -> Option<ByteSize> {
        let hugetlb = self.hugetlb.map_or(0, ByteSize::bytes);
        Some(ByteSize(self.rss?.bytes().saturating_add(hugetlb)))
    }
}

/// Reads `/proc/PID/status`, and no more: what comes from elsewhere is `None`. Needs no privilege.
pub fn status(root: &Root, pid: Pid) -> Result<Resident, ReadError> {
    let path = format!("/proc/{pid}/status");
    parse(&root.read(&path)?, &root.path(&path))
}

/// The same, and faults and the start time.
pub fn resident(root: &Root, pid: Pid) -> Result<Resident, ReadError> {
    let resident = status(root, pid)?;
    let stat = stat(root, pid)?;
    let (minor_faults, start_ticks) = (Some(stat.minor_faults), Some(stat.start_ticks));
    Ok(Resident { minor_faults, start_ticks, ..resident })
}

/// Reads the text of `/proc/PID/status`; `path` is named in errors.
pub fn parse(text: &str, path: &Path) -> Result<Resident, ReadError> {
    let mut resident = Resident::default();
    for (line, bad) in text::numbered(text, path) {
        let (key, value) = line.split_once(':').ok_or_else(|| bad("`Key: value`"))?;
        let slot = match key {
            "VmRSS" => &mut resident.rss,
            "RssAnon" => &mut resident.anon,
            "RssFile" => &mut resident.file,
            "RssShmem" => &mut resident.shmem,
            "HugetlbPages" => &mut resident.hugetlb,
            "VmSwap" => &mut resident.swap,
            "VmHWM" => &mut resident.peak_rss,
            "VmPTE" => &mut resident.page_tables,
            "Name" => {
                resident.name = value.trim_start_matches('\t').to_string();
                continue;
            }
            "THP_enabled" => {
                resident.thp_enabled = Some(match value.trim() {
                    "0" => false,
                    "1" => true,
                    _ => return Err(bad("0 or 1")),
                });
                continue;
            }
            _ => continue,
        };
        *slot = Some(ByteSize(text::bytes(value).ok_or_else(|| bad("a number of kB"))?));
    }
    Ok(resident)
}
