//! What mimalloc asks of the kernel itself, past the arenas: mappings for large objects, and for its
//! own tables.
//!
//! Its calls come here by the linker's `--wrap`. Large objects get superpages; tables, which are
//! sparse, and address space that is only reserved stay as they are. A mapping comes back whole,
//! with the length it was made with, so the body of superpages and the tail of base pages need no
//! further care.
//!
//! # Safety
//! As the system calls of the same names.

use std::ffi::{c_int, c_void};

use libc::{off64_t, size_t};

use crate::ledger::{self, Column, Kind};
use crate::raw::{self, Errno};
use crate::{prepare, source};

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    let is_large = protection == raw::READ_WRITE
        && flags & raw::PRIVATE_ANONYMOUS == raw::PRIVATE_ANONYMOUS
        && flags & libc::MAP_FIXED == 0
        && length >= SMALLEST_OBJECT.max(source::superpage());
    // SAFETY: the caller's contract.
    let result = unsafe {
        if is_large {
            large(length)
        } else {
            raw::mmap(address as usize, length, protection, flags, fd, offset)
        }
    };
    raw::answer_address(result)
}

/// Above mimalloc's own tables (its page map takes 2.25 MiB), below what it makes mappings for.
const SMALLEST_OBJECT: usize = 8 << 20;

/// Memory for a large object: superpages, and base pages for what is left at the end.
unsafe fn large(length: usize) -> Result<usize, Errno> {
    let superpage = source::superpage();
    let length = length.checked_next_multiple_of(raw::base_page()).ok_or(libc::ENOMEM)?;
    if let Some(start) = prepare::take(Kind::Heap, length) {
        return Ok(start);
    }
    let start = source::reserve(length, superpage)?;
    // SAFETY: address space of our own.
    let filled = unsafe { fill(start, length) };
    if filled.is_err() {
        // SAFETY: ours, and nobody has it yet.
        let _ = unsafe { raw::munmap(start, length) };
    }
    filled.map(|()| start)
}

/// Superpages where whole ones fit, base pages at the ends.
///
/// # Safety
/// Address space in which nothing is.
unsafe fn fill(start: usize, length: usize) -> Result<(), Errno> {
    let superpage = source::superpage();
    let end = start + length;
    let from = start.next_multiple_of(superpage).min(end);
    let to = (end - end % superpage).max(from);
    // SAFETY: inside the range.
    unsafe {
        if from < to {
            source::place(Kind::Heap, from, to - from, raw::READ_WRITE)?;
        }
        for (from, to) in [(start, from), (to, end)] {
            if from < to {
                raw::mprotect(from, to - from, raw::READ_WRITE)?;
                ledger::count(Kind::Heap, Column::Small, to - from);
            }
        }
    }
    Ok(())
}

/// # Safety
/// As `munmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_munmap(address: *mut c_void, length: size_t) -> c_int {
    if length >= SMALLEST_OBJECT.max(source::superpage()) {
        ledger::count(Kind::Heap, Column::Returned, length);
    }
    let start = address as usize;
    // SAFETY: the caller's contract. mimalloc unmaps whole base pages.
    raw::answer(unsafe {
        if prepare::may_hold(start, start + length) {
            let end = (start + length).next_multiple_of(raw::base_page());
            prepare::give_back(start, end)
        } else {
            raw::munmap(start, length)
        }
    })
}

/// # Safety
/// As `mprotect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_mprotect(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
) -> c_int {
    let start = address as usize;
    let is_large = protection == raw::READ_WRITE && length >= SMALLEST_OBJECT;
    // SAFETY: the caller's contract. mimalloc makes memory writable that it had reserved before;
    // it protects no large memory that is in use.
    raw::answer(unsafe {
        if is_large { fill(start, length) } else { raw::mprotect(start, length, protection) }
    })
}

/// # Safety
/// As `madvise(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_madvise(
    address: *mut c_void,
    length: size_t,
    advice: c_int,
) -> c_int {
    if advice == libc::MADV_HUGEPAGE {
        // Given already, where it was wanted.
        return 0;
    }
    // SAFETY: the caller's contract.
    raw::answer(unsafe { raw::madvise(address as usize, length, advice) })
}

/// mimalloc's only call of it names its mappings, which would keep neighbours from being merged, and
/// leaves an error behind where the kernel knows no names.
///
/// # Safety
/// As `prctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_prctl(
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    const PR_SET_VMA: c_int = 0x5356_4d41;
    if option == PR_SET_VMA {
        return 0;
    }
    // SAFETY: the caller's contract.
    unsafe { raw::call!(SYS_prctl, option, a, b, c, d) as c_int }
}
