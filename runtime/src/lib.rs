//! `libsuperpage.so`: what happens inside a process that `superpage run` started.
//!
//! glibc's own heap is reached by its tunables, once `malloc` has made them reliable. A program that
//! maps memory itself (an allocator of its own, a buffer pool) is reached only here: a large
//! anonymous mapping gets `MADV_HUGEPAGE`, small ones are placed side by side (`pieces`). All of it
//! stays ordinary anonymous memory: every later munmap, mremap or mprotect of a part is what the
//! kernel makes of it.
//!
//! Not touched: `MAP_LOCKED` memory, which the kernel fills with base pages as it maps it.
//!
//! Inert unless `SUPERPAGE_PAGES=thp` is in the environment. This is the one library of the project
//! that reads the environment: a preloaded library has no other way to be told anything.
//!
//! # Safety
//! The exported functions have the C signatures of `mmap(2)`. They call the kernel directly, never
//! the libc function they replace, so they cannot recurse, and they allocate nothing, so they may
//! run inside any allocator. The advice touches only the range the kernel just handed out.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{off64_t, size_t};

mod malloc;
mod pieces;

// mmap's offset would be 32 bits, and the system call another one (mmap2).
#[cfg(not(target_pointer_width = "64"))]
compile_error!("libsuperpage.so is for systems with 64-bit pointers");

/// The size that decides which mappings count as large. Only advice depends on it, so on a machine
/// with another superpage size (arm64: 32 MiB, 512 MiB) it is a threshold, never an error.
const SUPERPAGE: usize = 2 << 20;

/// `void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)`.
///
/// # Safety
/// As the system call: `MAP_FIXED` replaces what was there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    let plain_request = address.is_null() && protection == READ_WRITE && flags == PRIVATE_ANONYMOUS;
    if plain_request
        && length < SUPERPAGE
        && is_asked()
        && let Some(piece) = pieces::take(length)
    {
        return piece;
    }
    let advised = length >= SUPERPAGE && is_wanted(flags) && is_asked();
    // The kernel would populate with base pages before the advice could be given.
    let populated = advised && is_populated(protection, flags);
    let flags = if populated { flags & !libc::MAP_POPULATE } else { flags };
    // SAFETY: the caller's arguments go to the kernel under the caller's contract; populating
    // changes nothing but when memory is taken.
    let start = unsafe {
        libc::syscall(libc::SYS_mmap, address, length, protection, flags, fd, offset) as *mut c_void
    };
    if advised && start != libc::MAP_FAILED {
        give_advice(start, length, libc::MADV_HUGEPAGE);
        if populated {
            give_advice(start, length, libc::MADV_POPULATE_WRITE);
        }
    }
    start
}

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE_ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// The same under its large-file name: `off_t` is 64 bits here.
///
/// # Safety
/// As [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: same contract.
    unsafe { mmap(address, length, protection, flags, fd, offset) }
}

/// Private anonymous memory, but no stacks (mostly untouched: superpages there are pure waste) and
/// nothing that chose its pages itself.
///
/// Whatever its protection. Advice on address space that is only reserved (`PROT_NONE`) costs no
/// memory: nothing is there to be touched. And it must be given then or never: the parts that an
/// allocator makes writable by mprotect, or that `MAP_FIXED` does not replace, keep the advice of
/// the reservation, and no later call passes through here.
fn is_wanted(flags: c_int) -> bool {
    let excluded = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
    flags & PRIVATE_ANONYMOUS == PRIVATE_ANONYMOUS && flags & excluded == 0
}

/// Whether all of it is to be there at once. Read-only memory is left to the kernel: it is all one
/// page of zeroes.
fn is_populated(protection: c_int, flags: c_int) -> bool {
    // MAP_NONBLOCK takes MAP_POPULATE back (mmap(2)).
    flags & (libc::MAP_POPULATE | libc::MAP_NONBLOCK) == libc::MAP_POPULATE
        && protection & libc::PROT_WRITE != 0
}

/// Whether the environment asks for THP: `malloc::start` looks, before any other code of the
/// process can map anything.
static ASKED: AtomicBool = AtomicBool::new(false);

fn turn_on() {
    ASKED.store(true, Ordering::Relaxed);
}

fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// `madvise(2)`, leaving errno as the successful mmap left it; whether the kernel took the advice.
/// A refusal leaves an ordinary mapping: of `MADV_HUGEPAGE` by a kernel without THP (the launcher reads back what came of it), of
/// `MADV_POPULATE_WRITE` before 5.14 or for want of memory (`MAP_POPULATE` promises nothing).
fn give_advice(start: *mut c_void, length: usize, advice: c_int) -> bool {
    // SAFETY: the callers have just mapped the range, it is all zeroes, and no advice of theirs
    // changes that; errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let taken = libc::madvise(start, length, advice) == 0;
        *errno = before;
        taken
    }
}

/// Fresh private anonymous memory straight from the kernel, errno as it was.
fn map_plain(length: usize) -> Option<usize> {
    // SAFETY: a null hint replaces nothing; errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let start = libc::syscall(
            libc::SYS_mmap,
            0usize,
            length,
            READ_WRITE,
            PRIVATE_ANONYMOUS,
            -1,
            0usize,
        );
        *errno = before;
        (start != -1).then_some(start as usize)
    }
}

/// `length` in whole base pages, as the kernel would round it.
fn round_up_to_page(length: usize) -> usize {
    // SAFETY: sysconf takes an integer and reads the auxiliary vector.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    length.next_multiple_of(page)
}
