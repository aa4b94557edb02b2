//! Calls about memory that is there: munmap, mprotect, madvise, mremap.
//!
//! What does not touch a range of the table goes straight to the kernel. So does what does, first:
//! for whole superpages the kernel's answer is right. Only its refusals of parts are mended. Whether a call is
//! about parts is looked up before the kernel is asked: once it has refused, another thread may have made the
//! page ordinary, and then the table tells nothing of why it did.
//!
//! # Safety
//! As the system calls of the same names.

use std::ffi::{c_int, c_void};

use libc::size_t;

use super::table::{self, Range};
use super::{Request, chips, demote};
use crate::ledger::{self, Column, Kind};
use crate::raw::{self, Errno, PRIVATE_ANONYMOUS, READ_WRITE};
use crate::{prepare, source};

/// `int munmap(void *addr, size_t length)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, length: size_t) -> c_int {
    // SAFETY: the caller's contract.
    raw::answer(unsafe { unmap(address as usize, length) })
}

unsafe fn unmap(start: usize, length: usize) -> Result<(), Errno> {
    let end = round_up(start, length);
    let is_valid = start.is_multiple_of(raw::base_page()) && start < end;
    if is_valid {
        if prepare::keep(start, end) {
            return Ok(());
        }
        prepare::changed(start, end);
    }
    if table::may_overlap(start, end) && start < end && chips::are_used() && chips::keep(start, end)
    {
        return Ok(());
    }
    let before = table::first(start, end);
    let is_cut = before.is_some() && is_cut(start, end);
    // SAFETY: the caller's contract.
    match table::replacing(start, end, || unsafe { raw::munmap(start, length) }) {
        Err(libc::EINVAL) if is_cut => {
            if !demote::edges(start, end) {
                return Err(libc::ENOMEM);
            }
            // What is still cut is shared: its pages at the edges stay mapped, the program does
            // not use them any more.
            let (from, to) = without_shared_edges(start, end);
            if from < to {
                // SAFETY: the caller's contract.
                table::replacing(from, to, || unsafe { raw::munmap(from, to - from) })?;
            }
        }
        other => other?,
    }
    if let Some(row) = before {
        chips::forget(start, end);
        let kind = if row.shared { Kind::Shared } else { Kind::Mmap };
        ledger::count(kind, Column::Returned, end - start);
    }
    Ok(())
}

/// `int mprotect(void *addr, size_t len, int prot)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, length: size_t, to: c_int) -> c_int {
    let (start, end) = (address as usize, round_up(address as usize, length));
    prepare::changed(start, end);
    let is_cut = is_cut(start, end);
    // SAFETY: the caller's contract, also for the second try.
    raw::answer(unsafe {
        match raw::mprotect(start, length, to) {
            Err(libc::EINVAL) if is_cut => {
                if demote::edges(start, end) {
                    let (from, until) = without_shared_edges(start, end);
                    if from < until { raw::mprotect(from, until - from, to) } else { Ok(()) }
                } else {
                    Err(libc::ENOMEM)
                }
            }
            result => result,
        }
    })
}

/// `int madvise(void *addr, size_t length, int advice)`.
///
/// # Safety
/// As the system call: some advice discards contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int {
    let (start, end) = (address as usize, round_up(address as usize, length));
    if advice == libc::MADV_NOHUGEPAGE {
        prepare::discard_untouched(start, end);
    }
    if !LEAVES_AS_IT_WAS.contains(&advice) {
        prepare::changed(start, end);
    }
    // SAFETY: the caller's contract.
    raw::answer(unsafe {
        if !table::may_overlap(start, end) || table::first(start, end).is_none() {
            raw::madvise(start, length, advice)
        } else {
            advise(start, end, advice)
        }
    })
}

/// Advice about contents and about superpages: the memory is what it was, or will be when it is unmapped.
const LEAVES_AS_IT_WAS: [c_int; 9] = [
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

/// Advice about memory of which some is on superpages of the pool.
unsafe fn advise(start: usize, end: usize, advice: c_int) -> Result<(), Errno> {
    let is_cut = is_cut(start, end);
    // SAFETY: the caller's contract.
    unsafe {
        match advice {
            // The kernel would round the end down and say that all went well.
            libc::MADV_DONTNEED => each_part(start, end, |from, to, range| match range {
                None => raw::madvise(from, to - from, advice),
                Some(range) => empty(from, to, &range),
            }),
            // Lazy by definition, and these pages cannot be freed lazily.
            libc::MADV_FREE => each_part(start, end, |from, to, range| match range {
                None => raw::madvise(from, to - from, advice),
                Some(_) => Ok(()),
            }),
            libc::MADV_DONTFORK
            | libc::MADV_DOFORK
            | libc::MADV_WIPEONFORK
            | libc::MADV_KEEPONFORK
            | libc::MADV_DONTDUMP
            | libc::MADV_DODUMP => match raw::madvise(start, end - start, advice) {
                Err(libc::EINVAL) if is_cut && demote::edges(start, end) => {
                    raw::madvise(start, end - start, advice)
                }
                result => result,
            },
            // Hints about ordinary pages, which these are not: taken note of and left at that.
            libc::MADV_HUGEPAGE
            | libc::MADV_NOHUGEPAGE
            | libc::MADV_COLLAPSE
            | libc::MADV_MERGEABLE
            | libc::MADV_UNMERGEABLE
            | libc::MADV_COLD
            | libc::MADV_PAGEOUT => each_part(start, end, |from, to, range| match range {
                None => raw::madvise(from, to - from, advice),
                Some(_) => Ok(()),
            }),
            _ => raw::madvise(start, end - start, advice),
        }
    }
}

/// Discards contents. Whole pages are replaced by fresh ones, reserved: after the kernel's own way the
/// reservation does not hold where the pool has surplus pages, and the next touch could be killed.
/// Where the pool is too short for that, and in parts, the memory is made zero, which is what the
/// program would read there.
unsafe fn empty(from: usize, to: usize, range: &Range) -> Result<(), Errno> {
    if range.shared {
        // The object keeps its contents, as it would on base pages.
        return Ok(());
    }
    let first = from.next_multiple_of(range.page).min(to);
    let last = (to - to % range.page).max(first);
    let is_refreshed = first < last && refresh(first, last, range.page);
    for (from, to) in [(from, first), (first, last), (last, to)] {
        let is_done = from >= to || is_refreshed && from == first;
        let mut pages = (from - from % range.page..to).step_by(range.page);
        if is_done || !pages.any(demote::is_present) || zero(from, to) {
            continue;
        }
        // Memory that may not be written is emptied as ordinary memory.
        let whole = (from - from % range.page, to.next_multiple_of(range.page));
        let mut edges = (whole.0..whole.1).step_by(range.page);
        if !edges.all(|page| demote::edges(page + raw::base_page(), page + raw::base_page())) {
            return Err(libc::ENOMEM);
        }
        // SAFETY: the caller's contract.
        unsafe { raw::madvise(from, to - from, libc::MADV_DONTNEED) }?;
    }
    Ok(())
}

/// Puts fresh pages of the pool, reserved, under `[from, to)`; `false` if it has none.
fn refresh(from: usize, to: usize, page: usize) -> bool {
    if page != source::superpage() || !(from..to).step_by(page).any(demote::is_present) {
        return page == source::superpage();
    }
    let Some(protection) = demote::protection_of(from) else { return false };
    // SAFETY: the caller gives the contents up; the range stays in the table as it is.
    unsafe { source::place_hugetlb(from, to - from, protection, libc::MAP_PRIVATE) }.is_ok()
}

/// Clears memory through a system call, which fails where it may not be written and a store would
/// be fatal; whether it could.
pub fn zero(from: usize, to: usize) -> bool {
    const MOST: usize = 256;
    static ZEROES: [u8; 4096] = [0; 4096];
    let source = libc::iovec { iov_base: ZEROES.as_ptr().cast_mut().cast(), iov_len: ZEROES.len() };
    let sources = [source; MOST];
    let mut at = from;
    raw::keeping_errno(|| {
        while at < to {
            let length = (to - at).min(MOST * ZEROES.len());
            let target = libc::iovec { iov_base: at as *mut c_void, iov_len: length };
            // SAFETY: the program gave these contents up; the call checks the rest. It stops at the
            // shorter of both lists.
            let written = unsafe {
                let sources = sources.as_ptr();
                let target = &raw const target;
                raw::call!(SYS_process_vm_writev, raw::pid(), sources, MOST, target, 1, 0)
            };
            if written != length as libc::c_long {
                return false;
            }
            at += length;
        }
        true
    })
}

/// `void *mremap(void *old, size_t old_size, size_t new_size, int flags, ... void *new)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_size: size_t,
    new_size: size_t,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    let (start, end) = (old as usize, round_up(old as usize, old_size));
    let target = if flags & libc::MREMAP_FIXED != 0 { target as usize } else { 0 };
    prepare::changed(start, end);
    if target != 0 {
        prepare::changed(target, round_up(target, new_size));
    }
    // SAFETY: the caller's contract.
    let result = unsafe {
        if table::may_overlap(start, end) && table::first(start, end).is_some() {
            resize(start, old_size, new_size, flags, target)
        } else {
            let to = round_up(target, new_size);
            let plain = || remap(start, old_size, new_size, flags, target);
            if target == 0 || !table::may_overlap(target, to) {
                plain()
            } else if demote::edges(target, to) {
                let moved = table::replacing(target, to, plain);
                chips::forget(target, to);
                moved
            } else {
                Err(libc::ENOMEM)
            }
        }
    };
    raw::answer_address(result)
}

unsafe fn remap(
    old: usize,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: usize,
) -> Result<usize, Errno> {
    raw::keeping_errno(|| {
        // SAFETY: the caller's contract.
        let moved = unsafe { raw::call!(SYS_mremap, old, old_size, new_size, flags, target) };
        if moved == -1 { Err(raw::errno()) } else { Ok(moved as usize) }
    })
}

/// A mapping on superpages is shrunk in place, or moved by copying: the kernel cannot enlarge one.
unsafe fn resize(
    start: usize,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: usize,
) -> Result<usize, Errno> {
    let (end, new_end) = (round_up(start, old_size), round_up(start, new_size));
    let shrinks = target == 0 && new_size > 0 && new_end <= end;
    if shrinks && flags & libc::MREMAP_DONTUNMAP == 0 {
        // Never by the kernel: it would round the old size up, past what is ours.
        if new_end < end {
            // SAFETY: the caller gives the end up.
            unsafe { unmap(new_end, end - new_end) }?;
        }
        return Ok(start);
    }
    let is_private = table::first(start, end).is_some_and(|range| !range.shared);
    if new_size == 0 || old_size == 0 || flags & libc::MREMAP_DONTUNMAP != 0 || !is_private {
        // SAFETY: the caller's contract; the kernel says what is wrong with it.
        return unsafe { remap(start, old_size, new_size, flags, target) };
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(libc::ENOMEM);
    }
    let fixed = if target == 0 { 0 } else { libc::MAP_FIXED };
    let request = Request {
        address: target,
        length: new_size,
        protection: READ_WRITE,
        flags: PRIVATE_ANONYMOUS | fixed,
        fd: -1,
        offset: 0,
    };
    // SAFETY: the new range is fresh or given up by the caller, the old one is readable memory of
    // the caller's, which nobody writes while it is being moved.
    unsafe {
        let protection = demote::protection_of(start).ok_or(libc::ENOMEM)?;
        let fresh = request.serve()?;
        let length = (end - start).min(round_up(fresh, new_size) - fresh);
        if protection & libc::PROT_READ == 0 {
            raw::mprotect(start, end - start, protection | libc::PROT_READ)?;
        }
        demote::copy_present(start, fresh, length, raw::base_page());
        if protection != READ_WRITE {
            raw::mprotect(fresh, round_up(fresh, new_size) - fresh, protection)?;
        }
        unmap(start, end - start)?;
        Ok(fresh)
    }
}

fn round_up(start: usize, length: usize) -> usize {
    start.saturating_add(length).saturating_add(raw::base_page() - 1) & !(raw::base_page() - 1)
}

/// Whether a superpage is only partly inside.
fn is_cut(start: usize, end: usize) -> bool {
    [start, end].into_iter().any(|edge| {
        let around = edge.saturating_sub(1);
        let range = table::first(around, edge + 1);
        range.is_some_and(|range| range.is_cut_by(start, end))
    })
}

/// `[start, end)` less the superpages of shared ranges that are only partly inside.
fn without_shared_edges(start: usize, end: usize) -> (usize, usize) {
    let page_at = |edge: usize| {
        let range = table::first(edge, edge + 1).filter(|range| range.shared);
        range.filter(|range| edge > range.start).map(|range| range.page)
    };
    let from = page_at(start).map_or(start, |page| start.next_multiple_of(page));
    let to = page_at(end).map_or(end, |page| end - end % page);
    (from, to)
}

/// Calls `work` for each stretch of `[start, end)` that is inside one range, or between ranges.
fn each_part(
    start: usize,
    end: usize,
    mut work: impl FnMut(usize, usize, Option<Range>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut at = start;
    while at < end {
        let next = table::first(at, end);
        let (to, range) = match next {
            Some(range) if range.start <= at => (range.end.min(end), Some(range)),
            Some(range) => (range.start, None),
            None => (end, None),
        };
        work(at, to, range)?;
        at = to;
    }
    Ok(())
}
