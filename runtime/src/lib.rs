//! `libsuperpage.so`: what happens inside a process that `superpage run` started.
//!
//! glibc's own heap is reached by its tunables, once `malloc` has made them reliable. A program that
//! maps memory itself (an allocator of its own, a buffer pool) is reached only here: a large
//! anonymous mapping gets `MADV_HUGEPAGE`, small ones are placed side by side (`pieces`). All of it
//! stays ordinary anonymous memory: every later munmap, mremap or mprotect of a part is what the
//! kernel makes of it.
//!
//! Inert unless `SUPERPAGE_PAGES=thp` is in the environment. This is the one library of the project
//! that reads the environment: a preloaded library has no other way to be told anything.
//!
//! # Safety
//! The exported functions have the C signatures of `mmap(2)`. They call the kernel directly, never
//! the libc function they replace, so they cannot recurse, and they allocate nothing, so they may
//! run inside any allocator. The advice touches only the range the kernel just handed out.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use libc::{off64_t, size_t};

mod malloc;
mod pieces;

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
    // SAFETY: the caller's arguments go to the kernel unchanged, under the caller's contract.
    let start = unsafe {
        libc::syscall(libc::SYS_mmap, address, length, protection, flags, fd, offset) as *mut c_void
    };
    if start != libc::MAP_FAILED && length >= SUPERPAGE && is_wanted(flags) && is_asked() {
        advise(start, length);
    }
    start
}

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE_ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// The same under its large-file name: on the 64-bit systems we build for, `off_t` is 64 bits.
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
fn is_wanted(flags: c_int) -> bool {
    let excluded = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
    flags & PRIVATE_ANONYMOUS == PRIVATE_ANONYMOUS && flags & excluded == 0
}

/// Whether the environment asks for THP; looked up once.
fn is_asked() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            // SAFETY: the name is a C string; the value, if any, is a C string of the environment
            // that is compared at once and not kept. Racing first calls compute the same answer.
            let asked = unsafe {
                let value = libc::getenv(c"SUPERPAGE_PAGES".as_ptr());
                !value.is_null() && libc::strcmp(value, c"thp".as_ptr()) == 0
            };
            STATE.store(if asked { YES } else { NO }, Ordering::Relaxed);
            asked
        }
        state => state == YES,
    }
}

/// `MADV_HUGEPAGE`, leaving errno as the successful mmap left it. A refusal (a kernel without THP)
/// leaves an ordinary mapping; the launcher reads back what came of it.
fn advise(start: *mut c_void, length: usize) {
    // SAFETY: the range was just mapped by us; errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::madvise(start, length, libc::MADV_HUGEPAGE);
        *errno = before;
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
