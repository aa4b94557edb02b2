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
    /// hugetlbfs: pages of the pools, with their page size if known.
    pub hugetlbfs: Vec<(Device, Option<PageSize>)>,
}

impl MemoryMounts {
    /// The mounts that a process sees. If mountinfo is missing or unreadable, the list is empty; then only names that
    /// the kernel gives (such as `/memfd:`) identify shared memory.
    pub fn from_pid(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let path = format!("/proc/{pid}/mountinfo");
        match root.read(&path) {
            // EINVAL: the process is ending and has no mounts any more (fs/proc_namespace.c mounts_open_common).
            Err(error) if error.is_gone() || error.is_denied() || is_invalid(&error) => {
                Ok(Self::default())
            }
            text => {
                let mut mounts = parse(&text?, &root.path(&path))?;
                if root.is_real() {
                    mounts.hugetlbfs.extend(internal_hugetlbfs(root));
                }
                Ok(mounts)
            }
        }
    }

    /// `Some` if a device belongs to hugetlbfs, with the page size if known.
    pub(crate) fn hugetlb(&self, device: Device) -> Option<Option<PageSize>> {
        let found = self.hugetlbfs.iter().find(|(hugetlbfs, _)| *hugetlbfs == device);
        found.map(|(_, size)| *size)
    }
}

fn is_invalid(error: &ReadError) -> bool {
    matches!(error, ReadError::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidInput)
}

/// The kernel's internal hugetlbfs mounts, one for each page size. No mount table lists them. They back anonymous
/// hugetlb mappings, memfds and System V segments.
fn internal_hugetlbfs(root: &Root) -> Vec<(Device, Option<PageSize>)> {
    let sizes = HugetlbPools::read_sizes(root).into_keys();
    let device = |size| {
        let (major, minor) = sys::memfd::hugetlb_device(size).ok()?;
        Some((Device { major, minor }, Some(size)))
    };
    sizes.filter_map(device).collect()
}

/// Reads the text of mountinfo; errors name `path`. See proc_pid_mountinfo(5): a lone `-` ends the optional
/// fields, and the file system type follows.
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
