//! Whether a fault on reserved pages of the pool may still fail, and which limits count memory.
//!
//! A reservation is a promise of the machine's pool. A hugetlb cgroup charges pages when they are faulted in, not when
//! they are reserved (its `rsvd` limit does, but may be unset). A memory policy or cpuset can demand pages from nodes
//! that have none. Where such a limit exists, or cannot be excluded, the pages are populated when they are mapped.
//! Populating costs time and gives up first-touch placement on nodes, but failures become errors instead of SIGBUS.
//!
//! # Safety
//! System calls with a buffer for the answer, and one function pointer that `before_locking` stored.
//! See docs/decisions/library.md#1.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use crate::files::read_file;
use crate::maps::each_line;
use crate::message::Decimal;
use crate::text::{self, Text, first_number};
use crate::{filter, raw};

/// Whether a cgroup, memory policy or cpuset may make a fault on pages of `page` bytes fail.
pub fn may_fail_faults(page: usize) -> bool {
    is_bound_to_nodes() || is_in_limited_cgroup(page)
}

/// Whether this thread's memory policy binds it to nodes.
pub fn is_bound() -> bool {
    const MPOL_BIND: i32 = 2;
    let mut mode = 0i32;
    let null = std::ptr::null_mut::<u64>();
    // SAFETY: the kernel writes only the mode.
    let asked = raw::keeping_errno(|| unsafe {
        raw::call!(SYS_get_mempolicy, &raw mut mode, null, 0, 0, 0)
    });
    // A kernel without NUMA has nothing to bind to.
    asked == 0 && mode & 0xff == MPOL_BIND
}

/// Whether this thread's memory policy binds it to nodes, or its cpuset excludes nodes.
fn is_bound_to_nodes() -> bool {
    if is_bound() {
        return true;
    }
    let mut online = [0; 256];
    let Some(online) = read_file(c"/sys/devices/system/node/online", &mut online) else {
        return false;
    };
    // A single node cannot be excluded. Reading the status file is the most expensive step here.
    if online.trim_ascii().iter().all(u8::is_ascii_digit) {
        return false;
    }
    let mut status = [0; 8192];
    let Some(status) = read_file(c"/proc/self/status", &mut status) else { return true };
    let Some(rest) = text::after(status, b"Mems_allowed_list:") else { return false };
    let line = rest.split(|&byte| byte == b'\n').next().unwrap_or(b"");
    // Both files use the same format, so a cpuset of all nodes compares equal.
    line.trim_ascii() != online.trim_ascii()
}

/// Whether the limit of a hugetlb cgroup may make a fault fail.
pub fn is_in_limited_cgroup(page: usize) -> bool {
    let mut limited = false;
    each_group(b"hugetlb", |version, path| {
        limited |= match version {
            Version::Two => match v2_mount() {
                Some(mount) => limited_below(mount, path, page, b".max"),
                None => path != b"/",
            },
            Version::One => {
                limited_below(b"/sys/fs/cgroup/hugetlb", path, page, b".limit_in_bytes")
            }
        };
    });
    limited
}

/// A memory cgroup of this process, or an ancestor; its files may be missing.
struct MemoryGroup<'a> {
    version: Version,
    mount: &'a [u8],
    path: &'a [u8],
}

/// Calls `tell` with each memory cgroup of this process and its ancestors, nearest first.
fn each_memory_group(mut tell: impl FnMut(&MemoryGroup)) {
    each_group(b"memory", |version, path| {
        let mount: &[u8] = match version {
            Version::Two => v2_mount().unwrap_or_default(),
            Version::One => b"/sys/fs/cgroup/memory",
        };
        upwards(path, |path| tell(&MemoryGroup { version, mount, path }));
    });
}

impl MemoryGroup<'_> {
    fn file(&self, name: &[u8]) -> Option<Text<512>> {
        Text::join(&[self.mount, self.path, name])
    }

    fn number(&self, first: &[u8], second: &[u8]) -> Option<usize> {
        let name = match self.version {
            Version::One => first,
            Version::Two => second,
        };
        first_number(read_file(self.file(name)?.c_str(), &mut [0; 64])?)
    }

    /// Limit and usage in bytes; `None`: no limit, or unknown.
    fn limit_and_usage(&self) -> Option<(usize, usize)> {
        let limit = self.number(b"/memory.limit_in_bytes", b"/memory.max")?;
        // Version 2 writes `max` for no limit, version 1 a number near 2^63.
        let limit = Some(limit).filter(|limit| *limit < 1 << 62)?;
        Some((limit, self.number(b"/memory.usage_in_bytes", b"/memory.current")?))
    }

    /// Bytes of the usage that the kernel reclaims first, without swapping.
    fn reclaimable(&self) -> usize {
        let mut bytes = 0usize;
        if let Some(file) = self.file(b"/memory.stat") {
            let _ = each_line(file.c_str(), |line| {
                bytes = bytes.saturating_add(reclaimable_in(self.version, line));
            });
        }
        bytes
    }
}

/// Reclaimable bytes in a line of memory.stat, counted as `MemAvailable` counts them (si_mem_available): inactive file
/// pages, half of the active file pages, and half of the reclaimable slab. In version 1 the `total_` keys include
/// descendants.
fn reclaimable_in(version: Version, line: &[u8]) -> usize {
    let (whole, halves): (&[u8], [&[u8]; 2]) = match version {
        // Version 1 does not report reclaimable slab.
        Version::One => (b"total_inactive_file ", [b"total_active_file "; 2]),
        Version::Two => (b"inactive_file ", [b"active_file ", b"slab_reclaimable "]),
    };
    let number = |name: &[u8]| first_number(line.strip_prefix(name)?);
    let half = || halves.iter().find_map(|name| number(name)).map(|bytes| bytes / 2);
    number(whole).or_else(half).unwrap_or(0)
}

/// Whether no rlimit of the process counts memory that is mapped but not used yet. Returns the last known answer if the
/// process may have a seccomp filter.
pub fn has_no_memory_rlimits() -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(true);
    if !filter::may_be_in_place() {
        KNOWN.store(COUNT_MEMORY.into_iter().all(is_unlimited), Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed)
}

/// The rlimits that count mapped memory.
const COUNT_MEMORY: [libc::__rlimit_resource_t; 2] = [libc::RLIMIT_AS, libc::RLIMIT_DATA];

/// Whether a resource of `setrlimit(2)` is in [`COUNT_MEMORY`].
pub fn counts_memory(resource: c_int) -> bool {
    COUNT_MEMORY.iter().any(|which| *which as c_int == resource)
}

/// Whether the soft limit of a resource is RLIM_INFINITY.
pub fn is_unlimited(resource: libc::__rlimit_resource_t) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure in.
    let got = raw::keeping_errno(|| unsafe {
        let nothing = std::ptr::null::<libc::rlimit>();
        raw::call!(SYS_prlimit64, 0, resource as usize, nothing, &raw mut limit)
    });
    got == 0 && limit.rlim_cur == libc::RLIM_INFINITY
}

/// Bytes available without swapping, limited by the machine and the memory cgroups; `None` if unknown.
pub fn available_memory() -> Option<usize> {
    let mut available = None;
    each_line(c"/proc/meminfo", |line| {
        available = available.or_else(|| first_number(line.strip_prefix(b"MemAvailable:")?));
    })?;
    let available = available?.checked_mul(1024)?;
    let in_groups = min_headroom(|group| group.reclaimable());
    Some(available.min(in_groups.unwrap_or(usize::MAX)))
}

/// Whether any memory of the machine is swapped out, or swap usage is unknown.
pub fn may_be_paged_out() -> bool {
    let (mut total, mut free) = (None, None);
    let read = each_line(c"/proc/meminfo", |line| {
        total = total.or_else(|| first_number(line.strip_prefix(b"SwapTotal:")?));
        free = free.or_else(|| first_number(line.strip_prefix(b"SwapFree:")?));
    });
    read.is_none() || total != free || total.is_none()
}

/// Smallest headroom of this process's memory cgroups, without reclaim; `None`: no limit, or unknown.
pub fn cgroup_headroom() -> Option<usize> {
    min_headroom(|_| 0)
}

fn min_headroom(reclaimable: impl Fn(&MemoryGroup) -> usize) -> Option<usize> {
    let mut least: Option<usize> = None;
    each_memory_group(|group| {
        if let Some((limit, usage)) = group.limit_and_usage() {
            let left = left_of(limit, usage, reclaimable(group));
            least = Some(least.map_or(left, |least| least.min(left)));
        }
    });
    least
}

fn left_of(limit: usize, usage: usize, reclaimable: usize) -> usize {
    limit.saturating_add(reclaimable).saturating_sub(usage).min(limit)
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// Calls `tell` with the path of this process's cgroup of `controller` (version 1), and of its version 2 cgroup.
fn each_group(controller: &[u8], mut tell: impl FnMut(Version, &[u8])) {
    // Without cgroups in the kernel there are no limits.
    let _ = each_line(c"/proc/self/cgroup", |line| {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(b"0"), Some(b""), Some(path)) => tell(Version::Two, path),
            (Some(_), Some(list), Some(path))
                if list.split(|&byte| byte == b',').any(|name| name == controller) =>
            {
                tell(Version::One, path);
            }
            _ => {}
        }
    });
}

/// Calls `tell` with the path and each ancestor; the root is the empty path.
fn upwards(path: &[u8], mut tell: impl FnMut(&[u8])) {
    let mut path = if path == b"/" { b"" } else { path };
    loop {
        tell(path);
        let Some(cut) = path.iter().rposition(|&byte| byte == b'/') else { return };
        path = &path[..cut];
    }
}

/// Mount point of cgroup v2: alone, or beside v1 (systemd's hybrid layout). Cached once found.
fn v2_mount() -> Option<&'static [u8]> {
    const ALONE: u8 = 1;
    const BESIDE: u8 = 2;
    static FOUND: AtomicU8 = AtomicU8::new(0);
    let mut buffer = [0; 512];
    let mut is_there = |file| read_file(file, &mut buffer).is_some();
    let found = match FOUND.load(Ordering::Relaxed) {
        0 if is_there(c"/sys/fs/cgroup/cgroup.controllers") => ALONE,
        0 if is_there(c"/sys/fs/cgroup/unified/cgroup.controllers") => BESIDE,
        found => found,
    };
    FOUND.store(found, Ordering::Relaxed);
    match found {
        ALONE => Some(b"/sys/fs/cgroup"),
        BESIDE => Some(b"/sys/fs/cgroup/unified"),
        _ => None,
    }
}

/// Whether the cgroup at `path`, or an ancestor, limits pages of this size. The root of a v2 hierarchy has no limit
/// file. If the topmost visible directory has one, its ancestors are hidden (a container), and count as limited. v1 has
/// the file everywhere. If it is missing, the hierarchy is mounted at another path, and the limit is unknown.
fn limited_below(mount: &[u8], path: &[u8], page: usize, ending: &[u8]) -> bool {
    let mut limited = false;
    upwards(path, |path| {
        let at_top = path.is_empty();
        let (number, unit) = size_name(page);
        let pieces: [&[u8]; 6] = [mount, path, b"/hugetlb.", number.bytes(), unit, ending];
        let Some(file) = Text::<512>::join(&pieces) else {
            limited = true;
            return;
        };
        let mut value = [0; 64];
        limited |= match read_file(file.c_str(), &mut value) {
            Some(_) if at_top && ending == b".max" => true,
            Some(value) => is_limit(value.trim_ascii()),
            None => !at_top && ending != b".max",
        };
    });
    limited
}

/// Whether the value is a limit: v2 writes `max` for no limit, v1 a number near 2^63.
fn is_limit(value: &[u8]) -> bool {
    value != b"max" && value.len() < 19
}

/// Number and unit of a page size in the kernel's file names: `2MB`, `1GB`, `64KB`.
fn size_name(page: usize) -> (Decimal, &'static [u8]) {
    let (shift, unit): (u32, &[u8]) = match page {
        0x4000_0000.. => (30, b"GB"),
        0x10_0000.. => (20, b"MB"),
        _ => (10, b"KB"),
    };
    (Decimal::new((page >> shift) as u64), unit)
}

/// Whether the kernel populates and locks new mappings (`MCL_FUTURE`).
static FUTURE_IS_LOCKED: AtomicBool = AtomicBool::new(false);

/// Function to call before the process's memory is locked.
static BEFORE_LOCKING: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Registers `work`, to be called before existing mappings are locked.
pub fn before_locking(work: fn()) {
    BEFORE_LOCKING.store(work as *mut (), Ordering::Release);
}

/// Call before existing mappings are locked: runs the registered function.
pub fn run_before_locking() {
    let work = BEFORE_LOCKING.load(Ordering::Acquire);
    if !work.is_null() {
        // SAFETY: the function that `before_locking` was given.
        unsafe { std::mem::transmute::<*mut (), fn()>(work)() };
    }
}

/// Notes whether MCL_FUTURE is in force.
pub fn lock_future(is_locked: bool) {
    FUTURE_IS_LOCKED.store(is_locked, Ordering::Relaxed);
}

/// Whether MCL_FUTURE is in force; the heap is then not grown ahead.
pub fn is_future_locked() -> bool {
    FUTURE_IS_LOCKED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_can_reclaim_is_left() {
        let of = |version, text: &str| -> usize {
            text.lines().map(|line| reclaimable_in(version, line.as_bytes())).sum()
        };
        let two = "anon 7\nfile 900\ninactive_anon 7\ninactive_file 100\nactive_file 60\n\
                   slab_reclaimable 20\nslab 90\nworkingset_refault_file 5\n";
        assert_eq!(of(Version::Two, two), 100 + 30 + 10);
        let one = "cache 900\ninactive_file 4096\nactive_file 4096\ntotal_cache 900\n\
                   total_inactive_file 100\ntotal_active_file 60\ntotal_unevictable 0\n";
        assert_eq!(of(Version::One, one), 100 + 30);
        assert_eq!(of(Version::One, "total_active_file x\n\n") + of(Version::Two, "\n"), 0);

        assert_eq!(left_of(1000, 1000, 900), 900);
        assert_eq!(left_of(1000, 900, 0), 100);
        assert_eq!(left_of(1000, 1200, 100), 0, "the limit was lowered");
        assert_eq!(left_of(1000, 100, 500), 1000, "read at two times");
    }
}
