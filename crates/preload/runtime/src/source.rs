//! Memory of every kind on superpages: the one place that requests superpages from the kernel.
//!
//! Hugetlb pages are mapped *with their reservation* at another address, and then moved into place. If the pool is
//! short, mmap fails before any of the program's memory is touched. Where a reservation does not suffice (a hugetlb
//! cgroup charges at the fault, a memory policy binds to nodes), the pages are populated at once. Populating returns an
//! error where a later fault would raise SIGBUS.
//!
//! # Safety
//! `place` replaces the mappings in its range: callers own it, as address space they reserved.
//! See docs/decisions/pool.md#5.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::counters::{self, Column, Kind, Reason};
use crate::executor::advice;
use crate::once::OnceBool;
use crate::raw::{self, Errno};
use crate::settings::{self, Fallback, Pages};
use crate::sizes::superpage;
use crate::table;
use crate::{
    contiguity, copies, executor, filter, fork_lock, in_place, limits, maps, message, write_protect,
};

/// Pages that a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pages of the hugetlb pool, reserved.
    Hugetlb,
    /// Ordinary memory, advised with MADV_HUGEPAGE.
    Advised,
    /// Ordinary memory.
    Base,
}

/// `MAP_HUGETLB` with the size encoded, for `mmap(2)`.
pub fn hugetlb_flags(size: usize) -> c_int {
    libc::MAP_HUGETLB | (size.trailing_zeros() as c_int) << libc::MAP_HUGE_SHIFT
}

/// Reserves address space for `length` bytes (a multiple of the base page), aligned to `alignment`. The space is
/// inaccessible and not charged.
pub fn reserve(length: usize, alignment: usize) -> Result<usize, Errno> {
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE;
    let slack = alignment - raw::base_page();
    let total = length.checked_add(slack).ok_or(libc::ENOMEM)?;
    // SAFETY: fresh address space, whose unaligned ends are unmapped.
    unsafe {
        let start = raw::mmap(0, total, libc::PROT_NONE, flags, -1, 0)?;
        let aligned = start.next_multiple_of(alignment);
        if aligned > start {
            let _ = raw::munmap(start, aligned - start);
        }
        let rest = start + total - (aligned + length);
        if rest > 0 {
            let _ = raw::munmap(aligned + length, rest);
        }
        Ok(aligned)
    }
}

/// Maps fresh zeroed private memory at `[at, at + length)`, on superpages or as the fallback says.
///
/// # Safety
/// The caller owns the range and needs nothing in it; it is aligned to [`superpage`].
pub unsafe fn place(
    kind: Kind,
    at: usize,
    length: usize,
    protection: c_int,
) -> Result<Backing, Errno> {
    let settings = settings::get();
    // No files for thread stacks: the thread that unmaps a stack holds a lock.
    let may_be_on_pool = kind != Kind::Stack || !in_place::is_asked();
    if let (Pages::Hugetlb(_), true) = (settings.pages, may_be_on_pool) {
        // SAFETY: the caller keeps this function's contract.
        match unsafe { place_hugetlb(at, length, protection, libc::MAP_PRIVATE) } {
            Ok(()) => {
                counters::count(kind, Column::Hugetlb, length);
                return Ok(Backing::Hugetlb);
            }
            Err(why) => counters::count_reason(why),
        }
        if executor::fall_back(settings.fallback, length) == Fallback::Error {
            counters::count(kind, Column::Refused, length);
            return Err(libc::ENOMEM);
        }
    }
    // SAFETY: the caller keeps this function's contract.
    if let Err(errno) = unsafe { place_ordinary(at, length, protection) } {
        counters::count(kind, Column::Refused, length);
        return Err(errno);
    }
    let taken = contiguity::advise(kind, at, length);
    let column = if settings::get().is_hugetlb() { Column::FellBack } else { Column::Advised };
    counters::count(kind, column, taken);
    counters::count(kind, Column::FellBack, length - taken);
    Ok(if taken > 0 { Backing::Advised } else { Backing::Base })
}

/// Maps ordinary memory at `[at, at + length)`.
///
/// # Safety
/// As [`place`].
unsafe fn place_ordinary(at: usize, length: usize, protection: c_int) -> Result<(), Errno> {
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        if !limits::has_no_memory_rlimits() {
            // The kernel does not check RLIMIT_DATA for a mapping that replaces another (mmap_region, mm/vma.c, Linux
            // 6.18), but does for a change of protection.
            raw::mprotect(at, length, protection)?;
        }
        raw::mmap(at, length, protection, flags, -1, 0).map(drop)
    }
}

/// Maps pool pages at `[at, at + length)`, all or none.
///
/// # Safety
/// As [`place`]; `sharing` is `MAP_PRIVATE` or `MAP_SHARED`.
pub unsafe fn place_hugetlb(
    at: usize,
    length: usize,
    protection: c_int,
    sharing: c_int,
) -> Result<(), Reason> {
    if sharing == libc::MAP_PRIVATE && in_place::is_asked() {
        // SAFETY: the caller keeps this function's contract.
        return unsafe { place_in_file(at, length, protection, libc::MAP_FIXED) };
    }
    let fresh = map_hugetlb(length, protection, sharing)?;
    let mut done = 0;
    while done < length {
        let step = (length - done).min(MAX_MOVE);
        let part = fresh + done;
        // SAFETY: both ranges are ours.
        let moved = unsafe {
            let is_divided = step == length - done
                || raw::mprotect(part, step, libc::PROT_NONE).is_ok()
                    && raw::mprotect(part, step, protection).is_ok();
            is_divided && raw::move_to(part, step, at + done).is_ok()
        };
        if !moved {
            let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: as above; the part that was moved becomes address space again.
            unsafe {
                let _ = raw::munmap(fresh + done, length - done);
                if done > 0 {
                    let _ = raw::mmap(at, done, libc::PROT_NONE, flags, -1, 0);
                }
            }
            return Err(Reason::Kernel);
        }
        done += step;
    }
    Ok(())
}

/// As [`place_hugetlb`], in a file that is promoted in place.
///
/// # Safety
/// As [`in_place::place`].
unsafe fn place_in_file(
    at: usize,
    length: usize,
    protection: c_int,
    how: c_int,
) -> Result<(), Reason> {
    may_be_private()?;
    if filter::may_be_in_place() {
        return Err(Reason::Unprotected); // a fork could not copy it to ordinary memory
    }
    if fork_lock::is_held() {
        return Err(Reason::Forked);
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe { in_place::place(at, length, protection, how) }
}

/// Whether memory stays off the pool if it could not be demoted later, as under a seccomp filter. `false` with
/// SUPERPAGE_POOL=always or fallback=error.
pub fn requires_demotable() -> bool {
    let settings = settings::get();
    !settings.always_pool && settings.fallback != Fallback::Error
}

/// Whether the program has set rlimits on what it maps.
static IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// Keeps private memory off the pool from now on, because the program limits what it maps.
/// See docs/decisions/fork.md#6.
pub fn note_rlimit_set() {
    IS_LIMITED.store(true, Ordering::SeqCst);
}

/// Checks whether private memory may lie on the pool or in files. If it may, every later fork looks for private
/// memory there.
fn may_be_private() -> Result<(), Reason> {
    if IS_LIMITED.load(Ordering::SeqCst) {
        return Err(Reason::Limit);
    }
    // If the maps cannot be listed (chroot without /proc), memory cannot be moved, and a fork cannot copy it.
    let is_listed = || filter::may_be_in_place() || maps::are_there();
    let can_be_moved = || !filter::is_set() && is_listed();
    if requires_demotable() && !can_be_moved() || !write_protect::is_possible() {
        return Err(Reason::Unprotected);
    }
    if !table::can_be_changed() {
        return Err(Reason::Held);
    }
    // Stored before the caller checks the fork lock: either the fork sees the flag, or the caller sees the fork.
    HAS_PRIVATE.store(true, Ordering::SeqCst);
    Ok(())
}

/// Maximum bytes of a hugetlb mapping to move at once. `move_hugetlb_page_tables` (mm/hugetlb.c) returns an `int`: the
/// bytes it moved, plus up to what one PMD table maps. Its caller compares this number with the length. 4 GiB overflow
/// to 0, and 3.9 GiB of untouched memory overflow, too (Linux 6.18, mm/mremap.c). Each part must be a VMA of its own:
/// if part of a VMA is moved, the rest loses its reservation (`clear_vma_resv_huge_pages`). A temporary change of
/// protection splits the VMA for good: hugetlb VMAs are never merged.
const MAX_MOVE: usize = 1 << 30;

/// Maps pool pages where the kernel chooses. The pages are reserved, or populated if a reservation does not suffice.
pub fn map_hugetlb(length: usize, protection: c_int, sharing: c_int) -> Result<usize, Reason> {
    map_hugetlb_of(superpage(), length, protection, sharing)
}

/// As [`map_hugetlb`], for a page size that the settings do not name.
pub fn map_hugetlb_of(
    page: usize,
    length: usize,
    protection: c_int,
    sharing: c_int,
) -> Result<usize, Reason> {
    map_checked(0, sharing | libc::MAP_ANONYMOUS | hugetlb_flags(page), -1, length, protection)
}

/// As [`map_hugetlb`], but maps a file of a hugetlbfs mount, privately. /proc/self/maps then shows the mount's path.
pub fn map_hugetlb_file(fd: c_int, length: usize, protection: c_int) -> Result<usize, Reason> {
    map_checked(0, libc::MAP_PRIVATE, fd, length, protection)
}

/// As [`map_hugetlb`], but private, readable and writable, and at `at`; [`Reason::Kernel`] if something is mapped
/// there.
pub fn map_hugetlb_at(at: usize, length: usize) -> Result<(), Reason> {
    if in_place::is_asked() {
        // SAFETY: the call replaces no mapping.
        return unsafe { place_in_file(at, length, raw::READ_WRITE, libc::MAP_FIXED_NOREPLACE) };
    }
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | hugetlb_flags(superpage());
    let start = map_checked(at, flags, -1, length, raw::READ_WRITE)?;
    if start != at {
        // Before Linux 4.17 the address is a hint.
        // SAFETY: our own new mapping, which nothing uses yet.
        let _ = unsafe { raw::munmap(start, length) };
        return Err(Reason::Kernel);
    }
    Ok(())
}

fn map_checked(
    at: usize,
    flags: c_int,
    fd: c_int,
    length: usize,
    protection: c_int,
) -> Result<usize, Reason> {
    let sharing = flags & libc::MAP_TYPE;
    if sharing == libc::MAP_PRIVATE {
        may_be_private()?;
    } else if !table::can_be_changed() {
        return Err(Reason::Held);
    }
    // SAFETY: fresh memory.
    let map = || unsafe { raw::mmap(at, length, protection, flags, fd, 0) };
    let start = map().map_err(reason_of)?;
    if sharing == libc::MAP_PRIVATE && fork_lock::is_held() {
        // The fork may already have checked for private memory.
        // SAFETY: our own new mapping, which nothing uses yet.
        let _ = unsafe { raw::munmap(start, length) };
        return Err(Reason::Forked);
    }
    if faults_may_fail() {
        // SAFETY: fresh memory of ours. Populating for writing needs it writable.
        let populated = unsafe {
            raw::mprotect(start, length, raw::READ_WRITE)
                .and_then(|()| raw::populate(start, length))
                .and_then(|()| raw::mprotect(start, length, protection))
        };
        if populated.is_err() {
            // SAFETY: as above.
            let _ = unsafe { raw::munmap(start, length) };
            return Err(Reason::Limit);
        }
    }
    Ok(start)
}

/// Whether the pool could serve `length` more bytes now: maps them and unmaps them.
pub fn pool_can_serve(length: usize) -> bool {
    let map = || raw::map(length, hugetlb_flags(superpage()));
    // SAFETY: unmaps what was just mapped, untouched.
    !faults_may_fail() && map().and_then(|start| unsafe { raw::munmap(start, length) }).is_ok()
}

/// Reason for an errno of a hugetlb mmap.
pub fn reason_of(errno: Errno) -> Reason {
    match errno {
        libc::ENOMEM => Reason::PoolShort,
        libc::EINVAL | libc::ENODEV | libc::ENOSYS => Reason::NoPool,
        libc::EPERM | libc::EACCES => Reason::NoPermission,
        _ => Reason::Kernel,
    }
}

/// Whether this process ever mapped private hugetlb pages; reset in a forked child, which has copies.
static HAS_PRIVATE: AtomicBool = AtomicBool::new(false);

/// Whether there may be private hugetlb memory.
pub fn has_private_hugetlb() -> bool {
    HAS_PRIVATE.load(Ordering::SeqCst)
}

/// Call in a forked child after it has replaced its private hugetlb memory.
pub fn forget_private_hugetlb() {
    HAS_PRIVATE.store(false, Ordering::Relaxed);
}

/// Whether a fault on reserved pages may still fail. Checks the cgroups once, and this thread's memory policy each
/// time.
fn faults_may_fail() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| limits::may_fail_faults(superpage()))
        || !filter::may_be_in_place() && limits::is_bound()
}

/// Call when this thread's faults may fail despite reservations: populates reserved pages while any node can serve
/// them.
pub fn populate_reserved() {
    let mut at = 0;
    while let Some(range) = table::first(at, usize::MAX) {
        // SAFETY: mapped memory; otherwise the call fails.
        let take = || unsafe { raw::populate(range.start, range.end - range.start) };
        let _ = raw::keeping_errno(take);
        at = range.end;
    }
}

/// Ends the process before the program starts: there are no superpages for `kind`, and SUPERPAGE_FALLBACK=error.
pub fn refuse(kind: Kind) -> ! {
    message::line(&[
        b"no superpages for the program's ",
        kind.name().as_bytes(),
        b": not started, because SUPERPAGE_FALLBACK=error",
    ]);
    raw::exit(127)
}

/// Replaces `[at, at + length)` by fresh memory that is advised for superpages and filled by `fill`. If `fill` returns
/// `false`, nothing changes. Addresses below `file_end` are copies of a file's pages.
pub fn replace_by_copy(
    at: usize,
    length: usize,
    page: usize,
    protection: c_int,
    file_end: usize,
    fill: impl FnOnce(usize) -> bool,
) -> Result<(), Reason> {
    let fresh = reserve(length, page).map_err(|_| Reason::Kernel)?;
    // SAFETY: address space of our own.
    let mapped = unsafe {
        let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_FIXED;
        raw::mmap(fresh, length, raw::READ_WRITE, flags, -1, 0)
    };
    if mapped.is_ok()
        && advice::superpages(fresh, length)
        && fill(fresh)
        && (file_end <= at || copies::add(at, file_end.min(at + length)))
    {
        return replace(fresh, length, protection, at)
            .inspect_err(|_| copies::forget(at, at + length));
    }
    // SAFETY: ours, and not in use.
    let _ = unsafe { raw::munmap(fresh, length) };
    Err(Reason::ThpOff)
}

/// Sets the copy's protection and moves it over the original in one mremap.
///
/// On Arm the kernel makes instruction and data caches coherent when pages become executable.
pub fn replace(fresh: usize, length: usize, protection: c_int, at: usize) -> Result<(), Reason> {
    // SAFETY: the copy is ours, and holds what the range it replaces does.
    let replaced = unsafe {
        raw::mprotect(fresh, length, protection).and_then(|()| raw::move_to(fresh, length, at))
    };
    replaced.map_err(|_| {
        // SAFETY: ours, and not in use.
        let _ = unsafe { raw::munmap(fresh, length) };
        Reason::Kernel
    })
}
