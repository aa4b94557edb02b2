//! Calls on existing mappings: munmap, mprotect, madvise.
//!
//! A call that touches no range of the table goes straight to the kernel, without a lock. A call that the kernel
//! carries out on the pool exactly as on ordinary memory is made on the pool. Before any other call the superpages
//! concerned are demoted (`demote`), and the kernel then gets the call unchanged. If they cannot be demoted, the call
//! fails with `ENOMEM`, and nothing has changed.
//!
//! A call that the kernel refuses anyway (not whole base pages) demotes nothing.
//!
//! # Safety
//! As the system calls of the same names.
//! See docs/decisions/pool.md#6.

use std::ffi::{c_int, c_void};

use libc::size_t;

use super::demote::{self, Scope};
use super::{plan, small, without_demotion};
use crate::counters::{self, Column, Kind};
use crate::raw::{self, Errno};
use crate::table::{self, Entry, Range};
use crate::{contiguity, copies, in_place, looks, maps, prepare, write_protect};

/// `int munmap(void *addr, size_t length)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn munmap(address: *mut c_void, length: size_t) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    raw::not_cancelled(|| raw::answer(unsafe { unmap(address as usize, length) }))
}

pub(super) unsafe fn unmap(start: usize, length: usize) -> Result<(), Errno> {
    let end = round_up(start, length);
    let is_valid = is_valid(start, end);
    if is_valid {
        looks::gives_back(length);
        small::unmapped(start, end);
        if prepare::keep(start, end) {
            return Ok(());
        }
        prepare::changed(start, end);
        contiguity::forget(start, end);
    }
    let entry = if is_valid { table::first(start, end) } else { None };
    if is_valid {
        demote::make_ordinary(start, end, Scope::Removed)?;
    }
    // SAFETY: the caller keeps this function's contract.
    replacing(start, end, || unsafe { raw::munmap(start, length) }.map(|()| 0))?;
    if let Some(entry) = entry {
        let kind = if entry.shared { Kind::Shared } else { Kind::Mmap };
        counters::count(kind, Column::Returned, end - start);
    }
    Ok(())
}

/// Runs `work`, which unmaps or replaces `[from, to)`. If it succeeds, removes the range from the table, and frees its
/// parts in files of `in_place`.
pub(super) fn replacing(
    from: usize,
    to: usize,
    work: impl Fn() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let result = without_demotion(from, to, || {
        unmap_and_free(from, to, &mut || table::replacing(from, to, &work))
    });
    if result.is_ok() {
        copies::forget(from, to);
    }
    result
}

/// Runs `work`, which unmaps or replaces `[from, to)`. Then frees the parts of the range in files of `in_place`.
fn unmap_and_free(
    from: usize,
    to: usize,
    work: &mut dyn FnMut() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let is_in_file = |entry: &Entry| !entry.is_ordinary && !entry.range.shared;
    let (mut at, mut whole) = (from, 0);
    let result = loop {
        let entry = match in_place::is_asked() {
            true => table::first_entry(at, to, is_in_file),
            false => None,
        };
        let Some(Entry { range, mapping, .. }) = entry else { break work() };
        let (start, end) = (at.max(range.start), to.min(range.end));
        if mapping.0 < from || to < mapping.1 {
            break in_place::unmap_and_free(start, end, &mut || unmap_and_free(end, to, work));
        }
        // The range covers the whole file, which unmapping frees.
        whole += end - start;
        at = end;
    };
    if whole > 0 && result.is_ok() {
        in_place::forget(whole);
    }
    result
}

/// `int mprotect(void *addr, size_t len, int prot)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mprotect(address: *mut c_void, length: size_t, to: c_int) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    raw::not_cancelled(|| raw::answer(unsafe { protect(address as usize, length, to) }))
}

pub(super) unsafe fn protect(start: usize, length: usize, to: c_int) -> Result<(), Errno> {
    let end = round_up(start, length);
    prepare::changed(start, end);
    first_make_ordinary(start, end, Scope::Edges)?;
    // SAFETY: the caller keeps this function's contract.
    without_demotion(start, end, || unsafe { raw::mprotect(start, length, to) })
}

/// `int madvise(void *addr, size_t length, int advice)`.
///
/// # Safety
/// As the system call: some advice discards contents.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn madvise(
    address: *mut c_void,
    length: size_t,
    advice: c_int,
) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    raw::not_cancelled(|| raw::answer(unsafe { advise(address as usize, length, advice) }))
}

pub(super) unsafe fn advise(start: usize, length: usize, advice: c_int) -> Result<(), Errno> {
    let end = round_up(start, length);
    if advice == libc::MADV_NOHUGEPAGE {
        prepare::discard_untouched(start, end);
    }
    if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE) {
        looks::gives_back(length);
    }
    match advice {
        libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => contiguity::forget(start, end),
        // Ranges whose advice was withdrawn have MADV_NOHUGEPAGE and could not be collapsed.
        libc::MADV_COLLAPSE => _ = contiguity::rejoin(start, end - start),
        _ => {}
    }
    if !KEEPS_REUSABLE.contains(&advice) {
        prepare::changed(start, end);
    }
    if is_valid(start, end) && copies::first(start, end).is_some() {
        // SAFETY: the caller keeps this function's contract.
        return unsafe { advise_copies(start, end, advice) };
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe { advise_others(start, length, advice) }
}

unsafe fn advise_others(start: usize, length: usize, advice: c_int) -> Result<(), Errno> {
    let end = round_up(start, length);
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        let is_meant = |entry: &Entry| {
            !entry.is_ordinary || is_kept_by_page(advice) && plan::is_replaceable(entry)
        };
        if is_valid(start, end) && table::first_entry(start, end, is_meant).is_some() {
            advise_pool(start, end, advice)
        } else if advice == libc::MADV_HUGEPAGE
            && is_valid(start, end)
            && contiguity::advise_for_program(start, end - start)
        {
            Ok(())
        } else {
            raw::madvise(start, length, advice)
        }
    }
}

/// Advises a range that contains private copies of a file.
unsafe fn advise_copies(start: usize, end: usize, advice: c_int) -> Result<(), Errno> {
    let mut at = start;
    while at < end {
        let (from, to) = copies::first(at, end).unwrap_or((end, end));
        if at < from {
            // SAFETY: the caller keeps this function's contract.
            unsafe { advise_others(at, from - at, advice) }?;
        }
        at = to;
        match advice {
            // A discarded file page is read from the file again. The copy already has these contents, so nothing is
            // done.
            _ if from == to => {}
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED => {}
            // A file mapping refuses this advice, too.
            libc::MADV_FREE | libc::MADV_WIPEONFORK => return Err(libc::EINVAL),
            // SAFETY: the caller keeps this function's contract.
            _ => unsafe { raw::madvise(from, to - from, advice) }?,
        }
    }
    Ok(())
}

/// Advice that concerns only contents and superpages. A mapping with such advice may still be kept for
/// reuse when it is unmapped.
const KEEPS_REUSABLE: [c_int; 9] = [
    libc::MADV_NORMAL,
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_WILLNEED,
    libc::MADV_HUGEPAGE,
    libc::MADV_COLLAPSE,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
    libc::MADV_COLD,
];

/// Whether advice sets flags that a copy must get, too. They are also recorded for the base pages of a shared mapping,
/// which are copied with its superpages.
fn is_kept_by_page(advice: c_int) -> bool {
    /// Linux 6.13 (`include/uapi/asm-generic/mman-common.h`). Memory with guard pages cannot be copied.
    const MADV_GUARD_INSTALL: c_int = 102;
    const MARKS: [c_int; 8] = [
        libc::MADV_NORMAL,
        libc::MADV_SEQUENTIAL,
        libc::MADV_RANDOM,
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
        MADV_GUARD_INSTALL,
    ];
    MARKS.contains(&advice)
}

/// Advises a range that contains superpages of the pool.
unsafe fn advise_pool(start: usize, end: usize, advice: c_int) -> Result<(), Errno> {
    match advice {
        // After MADV_FREE the memory may become zero at any time, so it may be discarded at once.
        libc::MADV_DONTNEED | libc::MADV_FREE
            if advice == libc::MADV_DONTNEED || in_place::is_asked() =>
        {
            // SAFETY: the caller keeps this function's contract.
            without_demotion(start, end, || unsafe { discard(start, end) })
        }
        // These pages are superpages already.
        libc::MADV_HUGEPAGE | libc::MADV_COLLAPSE => without_demotion(start, end, || {
            each_part(start, end, |from, to, entry| match entry {
                // SAFETY: advice that changes no contents.
                None => unsafe { raw::madvise(from, to - from, advice) },
                Some(entry) if in_place::is_asked() && !entry.shared => {
                    write_protect::unregister(from, to - from);
                    // SAFETY: as above.
                    unsafe { raw::madvise(from, to - from, advice) }
                }
                Some(_) => Ok(()),
            })
        }),
        _ => {
            if let Some(scope) = scope_of(advice) {
                demote::make_ordinary(start, end, scope)?;
            }
            without_demotion(start, end, || {
                // SAFETY: the caller keeps this function's contract.
                unsafe { raw::madvise(start, end - start, advice) }?;
                record_advice(start, end, advice);
                Ok(())
            })
        }
    }
}

/// Which superpages must be demoted before the kernel carries out the advice; `None` if none must
/// be.
pub(super) fn scope_of(advice: c_int) -> Option<Scope> {
    match advice {
        // Populating works on the pool. The other advice in this list has no effect there.
        libc::MADV_POPULATE_READ
        | libc::MADV_POPULATE_WRITE
        | libc::MADV_WILLNEED
        | libc::MADV_UNMERGEABLE => None,
        // The kernel keeps this advice per VMA, and splits the VMA at a superpage boundary.
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_DONTFORK
        | libc::MADV_DOFORK
        | libc::MADV_KEEPONFORK
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP => Some(Scope::Edges),
        // Freeing lazily, merging, paging out, wiping and guard pages: on the pool the kernel refuses this advice, or
        // reports success and does nothing.
        _ => Some(Scope::Covered),
    }
}

/// Records advice that a copy must get, too.
fn record_advice(start: usize, end: usize, advice: c_int) {
    match advice {
        libc::MADV_DONTFORK => table::mark(start, end, |marks| marks.dont_fork = true),
        libc::MADV_DOFORK => table::mark(start, end, |marks| marks.dont_fork = false),
        libc::MADV_DONTDUMP => table::mark(start, end, |marks| marks.dont_dump = true),
        libc::MADV_DODUMP => table::mark(start, end, |marks| marks.dont_dump = false),
        libc::MADV_NORMAL | libc::MADV_SEQUENTIAL | libc::MADV_RANDOM => {
            table::mark(start, end, |marks| marks.order = advice);
        }
        _ => {}
    }
}

/// MADV_DONTNEED. Private memory reads as zero afterwards; a shared object keeps its contents. Works in address order:
/// the kernel stops at locked memory, and later memory keeps its contents.
unsafe fn discard(start: usize, end: usize) -> Result<(), Errno> {
    let mut at = start;
    while let Some(entry) = table::first(at, end) {
        if !entry.shared && !in_place::is_asked() {
            let (from, to) = (start.max(entry.start), end.min(entry.end));
            demote::make_ordinary(from, to, Scope::Edges)?;
        }
        at = entry.end;
    }
    each_part(start, end, |from, to, entry| match entry {
        // SAFETY: the caller keeps this function's contract.
        None => unsafe { raw::madvise(from, to - from, libc::MADV_DONTNEED) },
        Some(entry) if entry.shared => Ok(()),
        Some(_) if in_place::is_asked() => {
            // SAFETY: the caller keeps this function's contract; entries are of one file each.
            match unsafe { in_place::discard(from, to) } {
                // Locked memory: fail as the kernel does.
                Err(libc::EINVAL) if maps::is_in_place(from, to) => Err(libc::EINVAL),
                // The range was unmapped without this library, and another mapping replaced it.
                Err(libc::EINVAL) => {
                    table::remove(from, to);
                    // SAFETY: as above.
                    unsafe { raw::madvise(from, to - from, libc::MADV_DONTNEED) }
                }
                result => result,
            }
        }
        Some(_) => demote::discard(from, to),
    })
}

/// Demotes superpages before a call on them, unless the kernel will refuse the call anyway.
pub(super) fn first_make_ordinary(start: usize, end: usize, scope: Scope) -> Result<(), Errno> {
    if is_valid(start, end) { demote::make_ordinary(start, end, scope) } else { Ok(()) }
}

/// Whether a range begins at a base page and is not empty.
pub(super) fn is_valid(start: usize, end: usize) -> bool {
    start.is_multiple_of(raw::base_page()) && start < end
}

/// End of a range, rounded up to whole base pages.
pub(super) fn round_up(start: usize, length: usize) -> usize {
    start.saturating_add(length).saturating_add(raw::base_page() - 1) & !(raw::base_page() - 1)
}

/// Calls `work` for each part of `[start, end)` that lies inside one range of the table, or between ranges. Like the
/// kernel, reports unmapped memory (`ENOMEM`) at the end, and any other error at once.
fn each_part(
    start: usize,
    end: usize,
    mut work: impl FnMut(usize, usize, Option<Range>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let (mut at, mut result) = (start, Ok(()));
    while at < end {
        let next = table::first(at, end);
        let (to, range) = match next {
            Some(range) if range.start <= at => (range.end.min(end), Some(range)),
            Some(range) => (range.start, None),
            None => (end, None),
        };
        match work(at, to, range) {
            Err(libc::ENOMEM) => result = Err(libc::ENOMEM),
            other => other?,
        }
        at = to;
    }
    result
}
