//! `/proc/PID/mountinfo`: the devices of memory file systems, to classify pages by kind.

use std::path::Path;

use units::{ByteSize, PageSize, Pid};

use super::maps::Device;
use crate::hugetlb::HugetlbPools;
use crate::{ReadError, Root, root};

/// Device numbers of memory file systems.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryMounts {
    /// tmpfs and devtmpfs: shared memory.
    pub tmpfs: Vec<Device>,
    /// hugetlbfs: pages of the pools, with their size if known.
    pub hugetlbfs: Vec<(Device, Option<PageSize>)>,
}

impl MemoryMounts {
    /// The mounts that a process sees. If mountinfo is missing or refused, the list is empty, and only the kernel's own
    /// names for shared memory identify it.
    pub fn from_pid(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let path = format!("/proc/{pid}/mountinfo");
        match root.read(&path) {
            Err(error) if error.is_gone() || error.is_denied() => Ok(Self::default()),
            text => {
                let mut mounts = parse(&text?, &root.path(&path))?;
                if root.is_real() {
                    mounts.hugetlbfs.extend(internal_hugetlbfs(root));
                }
                Ok(mounts)
            }
        }
    }

    /// Whether a device holds pages of a pool, and their size if known.
    pub(crate) fn hugetlb(&self, device: Device) -> Option<Option<PageSize>> {
        let found = self.hugetlbfs.iter().find(|(hugetlbfs, _)| *hugetlbfs == device);
        found.map(|(_, size)| *size)
    }
}

/// The kernel's internal hugetlbfs mounts, one per size, which are in no mount table: they back anonymous hugetlb
/// mappings, memfds and System V segments.
fn internal_hugetlbfs(root: &Root) -> Vec<(Device, Option<PageSize>)> {
    let sizes = HugetlbPools::read_sizes(root).into_keys();
    let device = |size| {
        let (major, minor) = sys::memfd::hugetlb_device(size).ok()?;
        Some((Device { major, minor }, Some(size)))
    };
    sizes.filter_map(device).collect()
}

/// Reads the text of mountinfo; `path` is named in errors. See proc_pid_mountinfo(5): after any number of optional
/// fields follow a lone `-` and the file system type.
pub fn parse(text: &str, path: &Path) -> Result<MemoryMounts, ReadError> {
    let mut mounts = MemoryMounts::default();
    for (line, bad) in root::numbered(text, path) {
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
            Some("hugetlbfs") => {
                let options = after.split(' ').nth(2).unwrap_or("").split(',');
                let mut sizes = options.filter_map(|option| option.strip_prefix("pagesize="));
                let size = sizes.next().and_then(|size| size.parse::<ByteSize>().ok());
                let size = size.and_then(|size| PageSize::new(size.bytes()).ok());
                mounts.hugetlbfs.push((device, size));
            }
            _ => {}
        }
    }
    Ok(mounts)
}
