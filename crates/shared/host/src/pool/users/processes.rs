//! Processes that map hugetlb memory or have hugetlbfs files open.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize, Pid};

use crate::pool::mounts::Mount;
use crate::process::{self, Mapping, Maps, Smaps};
use crate::root::Reasons;
use crate::{ReadError, Root};

/// One process's hugetlb memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: Pid,
    /// Its command's name.
    pub name: String,
    /// Memory by page size.
    pub sizes: BTreeMap<PageSize, Share>,
}

/// A process's memory from one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Mapped bytes. The part that is not resident may be reserved.
    pub mapped: ByteSize,
    /// Bytes of resident pages that only this process maps.
    pub private: ByteSize,
    /// Bytes of resident pages that other processes map too.
    pub shared: ByteSize,
}

/// Files that a process maps or has open, and whether all processes were readable.
pub(super) struct Held {
    /// The files as (device, inode).
    pub files: BTreeSet<(u64, u64)>,
    pub is_complete: bool,
}

pub(super) fn scan(root: &Root, mounts: &[Mount], reasons: &mut Reasons) -> (Vec<Holder>, Held) {
    let mut holders = Vec::new();
    let held = each(root, mounts, reasons, |pid, devices, files| {
        holders.extend(look(root, pid, devices, files)?);
        Ok(())
    });
    holders.sort_by_key(|holder| holder.pid);
    (holders, held)
}

/// The files of the mounts that processes map or have open.
pub(super) fn held(root: &Root, mounts: &[Mount], reasons: &mut Reasons) -> Held {
    each(root, mounts, reasons, |pid, devices, files| {
        mapped(root, pid, devices, files)?;
        opened(root, pid, devices, files)
    })
}

/// Calls `look` with each process, the devices of the mounts and the files found so far.
fn each(
    root: &Root,
    mounts: &[Mount],
    reasons: &mut Reasons,
    mut look: impl FnMut(Pid, &BTreeSet<u64>, &mut BTreeSet<(u64, u64)>) -> Result<(), ReadError>,
) -> Held {
    let mut held = Held { files: BTreeSet::new(), is_complete: true };
    let devices = devices(root, mounts);
    let mut refused = 0;
    let mut why = String::new();
    for pid in process::pids(root).unwrap_or_default() {
        match look(pid, &devices, &mut held.files) {
            Ok(()) => {}
            Err(error) if error.is_gone() => {}
            Err(error) => {
                refused += 1;
                why = error.to_string();
            }
        }
    }
    if refused > 0 {
        held.is_complete = false;
        reasons.note(&format!("{refused} processes"), why);
    }
    // In another pid namespace, or if hidepid hides other users' processes, the list is incomplete.
    let is_first = process::is_in_first_namespace(root);
    if root.is_real() && !(is_first && fs::exists("/proc/1/stat").is_ok_and(|is_there| is_there)) {
        held.is_complete = false;
        reasons
            .note("processes", "those outside this container, or that /proc hides, are not seen");
    }
    held
}

fn devices(root: &Root, mounts: &[Mount]) -> BTreeSet<u64> {
    let point = |mount: &Mount| root.path(&mount.point.to_string_lossy());
    mounts.iter().filter_map(|mount| Some(fs::metadata(point(mount)).ok()?.dev())).collect()
}

fn look(
    root: &Root,
    pid: Pid,
    devices: &BTreeSet<u64>,
    held: &mut BTreeSet<(u64, u64)>,
) -> Result<Option<Holder>, ReadError> {
    let mut suspect = mapped(root, pid, devices, held)?;
    opened(root, pid, devices, held)?;
    // The process may map a file of a mount that only this process sees.
    suspect |= process::status(root, pid)
        .is_ok_and(|status| status.hugetlb.is_some_and(|bytes| bytes.bytes() > 0));
    // `/SYSV…` in maps is ambiguous, so read smaps.
    if !suspect {
        return Ok(None);
    }
    let mut sizes: BTreeMap<PageSize, Share> = BTreeMap::new();
    for entry in Smaps::open(root, pid)? {
        let entry = entry?;
        let resident = entry.private_hugetlb.bytes() | entry.shared_hugetlb.bytes();
        let Some(size) = entry.kernel_page_size else { continue };
        if resident == 0 && !entry.has_flag("ht") {
            continue;
        }
        let share = sizes.entry(size).or_default();
        let add = |to: &mut ByteSize, bytes: u64| to.0 = to.0.saturating_add(bytes);
        add(&mut share.mapped, entry.mapping.len());
        add(&mut share.private, entry.private_hugetlb.bytes());
        add(&mut share.shared, entry.shared_hugetlb.bytes());
    }
    if sizes.is_empty() {
        return Ok(None);
    }
    let name = process::stat(root, pid)?.name;
    Ok(Some(Holder { pid, name, sizes }))
}

/// Records the files of the mounts that the process maps. Returns whether a mapping may be of hugetlb pages.
fn mapped(
    root: &Root,
    pid: Pid,
    devices: &BTreeSet<u64>,
    held: &mut BTreeSet<(u64, u64)>,
) -> Result<bool, ReadError> {
    let mut suspect = false;
    for mapping in Maps::open(root, pid)? {
        suspect |= may_be_hugetlb(&mapping?, devices, held);
    }
    Ok(suspect)
}

fn may_be_hugetlb(
    mapping: &Mapping,
    devices: &BTreeSet<u64>,
    held: &mut BTreeSet<(u64, u64)>,
) -> bool {
    // Files that belong to no mount: anonymous, memfd and SysV memory.
    let unmounted = ["/anon_hugepage", "/memfd:", "/SYSV"];
    let numbers = (mapping.device.major, mapping.device.minor);
    let device = devices.iter().find(|device| sys::mount::device_numbers(**device) == numbers);
    if let Some(device) = device {
        held.insert((*device, mapping.inode));
    }
    device.is_some() || unmounted.iter().any(|prefix| mapping.name.starts_with(prefix))
}

/// Records the files of the mounts that the process has open.
fn opened(
    root: &Root,
    pid: Pid,
    devices: &BTreeSet<u64>,
    held: &mut BTreeSet<(u64, u64)>,
) -> Result<(), ReadError> {
    if devices.is_empty() {
        return Ok(());
    }
    let dir = format!("/proc/{pid}/fd");
    for name in root.list(&dir)? {
        // Ignore a descriptor that was closed meanwhile.
        let Ok(file) = fs::metadata(root.path(&format!("{dir}/{name}"))) else { continue };
        if devices.contains(&file.dev()) {
            held.insert((file.dev(), file.ino()));
        }
    }
    Ok(())
}
