//! Turning hugetlb pages of a running program into ordinary memory, in place.
//!
//! Needed when a program unmaps, protects or replaces part of such a page: it asked for ordinary
//! memory and may do that. Other threads may be writing to the rest of the page meanwhile, so it
//! is write-protected through userfaultfd first: who writes then waits in the kernel, be it the
//! program or a system call on its behalf. The contents are copied, the copy is moved over the
//! page in one step, and with the descriptor closed the waiters go on, on the copy.
//!
//! In a process with one thread nobody can write meanwhile, and the descriptor is not needed.
//!
//! # Safety
//! The page belongs to a range of `table`. Its contents are read while nobody can change them.

use std::ffi::c_int;

use super::chips;
use super::table::{self, Range};
use crate::hold::{self, Hold};
use crate::ledger::{self, Column, Kind, Reason};
use crate::lock::{Level, Lock};
use crate::settings::{self, Fallback};
use crate::{maps, raw, stack};

/// Demotes the pages of private ranges that `[from, to)` covers only partly. `false`: there was no
/// memory or no descriptor for it, and nothing has changed.
pub fn edges(from: usize, to: usize) -> bool {
    // One after the other: a second thread finds the page gone from the table, and is done.
    ONE_AT_A_TIME.with_or(|()| edges_alone(from, to), || false)
}

static ONE_AT_A_TIME: Lock<()> = Lock::new(Level::Demotion, ());

/// In a forked child.
pub fn after_fork() {
    ONE_AT_A_TIME.after_fork(|(), _| {});
}

fn edges_alone(from: usize, to: usize) -> bool {
    [from, to].into_iter().all(|edge| match table::first(edge, edge.saturating_add(1)) {
        Some(range) if !range.shared && edge > range.start && edge % range.page != 0 => {
            let start = edge - edge % range.page;
            stack::if_within(start, start + range.page, || page(&range, start))
        }
        _ => true,
    })
}

/// Demotes one page of the table.
fn page(range: &Range, start: usize) -> bool {
    let length = range.page;
    let replaced = to_ordinary(start, length);
    if replaced {
        table::remove(start, start + length);
        chips::forget(start, start + length);
        ledger::because(Reason::Split);
        ledger::count(Kind::Mmap, Column::Returned, length);
        ledger::count(Kind::Mmap, Column::FellBack, length);
    }
    replaced
}

/// Puts ordinary memory with the same contents and protection in the place of a private hugetlb
/// page, whoever else writes to it.
pub fn to_ordinary(start: usize, length: usize) -> bool {
    let Some(protection) = protection_of(start) else { return false };
    let flags = raw::PRIVATE_ANONYMOUS;
    // SAFETY: fresh memory.
    let Ok(copy) = (unsafe { raw::mmap(0, length, raw::READ_WRITE, flags, -1, 0) }) else {
        return false;
    };
    if settings::get().fallback == Fallback::Thp {
        // SAFETY: as above. Advice may be refused.
        let _ = unsafe { raw::madvise(copy, length, libc::MADV_HUGEPAGE) };
    }
    let replaced = raw::keeping_errno(|| replace(start, length, protection, copy));
    if !replaced {
        // SAFETY: ours, and used by nobody.
        let _ = unsafe { raw::munmap(copy, length) };
    }
    replaced
}

fn replace(start: usize, length: usize, protection: c_int, copy: usize) -> bool {
    let hold = if hold::has_one_thread() {
        None
    } else {
        match Hold::new().filter(|hold| hold.protect(start, length)) {
            None => return false,
            hold => hold,
        }
    };
    // SAFETY: the page is readable once it is made so, nobody writes it, and `copy` is ours; the
    // copy then takes the page's place with the page's protection.
    let moved = unsafe {
        let readable = protection & libc::PROT_READ != 0
            || raw::mprotect(start, length, protection | libc::PROT_READ).is_ok();
        if readable && is_present(start) {
            std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
        }
        readable
            && raw::mprotect(copy, length, protection).is_ok()
            && raw::move_to(copy, length, start).is_ok()
    };
    drop(hold);
    moved
}

/// Whether the page exists; one that does not is zero, like a fresh copy.
pub fn is_present(start: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: one base page is asked about, one byte is written.
    let asked = unsafe { raw::call!(SYS_mincore, start, raw::base_page(), &raw mut present) };
    asked != 0 || present & 1 != 0
}

/// Copies the pages (of size `page`) that exist; the others are zero on both sides, and stay so.
///
/// # Safety
/// Both are memory of at least `length` bytes, the first readable, the second the caller's to write.
pub unsafe fn copy_present(from: usize, to: usize, length: usize, page: usize) {
    for at in (0..length).step_by(page) {
        if is_present(from + at) {
            // SAFETY: the contract.
            unsafe {
                let (from, to) = ((from + at) as *const u8, (to + at) as *mut u8);
                std::ptr::copy_nonoverlapping(from, to, page);
            }
        }
    }
}

/// The protection of the mapping at an address.
pub fn protection_of(address: usize) -> Option<c_int> {
    let mut found = None;
    maps::each(|vma| {
        if (vma.start..vma.end).contains(&address) {
            found = Some(vma.protection());
        }
    })?;
    found
}
