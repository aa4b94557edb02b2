//! Making glibc's `glibc.malloc.hugetlb=1` reliable.
//!
//! At its first allocation glibc reads the THP mode into a stack buffer one byte longer than the text, does not
//! terminate it, and compares it as a string (`__malloc_thp_mode`, seen on 2.36). Whether malloc then advises its
//! memory depends on a stale byte of the stack: on a Zen 4 guest with Debian 12, 28 of 60 runs of one program silently
//! got no superpage. [`make_reliable`] makes the first allocation of the process from a stack that it has just zeroed.
//!
//! That allocation must precede the constructors of all other libraries: those of libstdc++ and libselinux allocate.
//! The loader runs the constructors of a preloaded library last, unless the library is marked `DF_1_INITFIRST`, which
//! `build.rs` does. The mark works only for the library loaded last. Up to glibc 2.33 that is libpthread, which does no
//! harm: those versions have no `glibc.malloc.hugetlb`.
//!
//! # Safety
//! Runs in the library's constructor, when libc has initialized malloc but little else.
//! See docs/decisions/heap.md#7.

use std::ffi::c_void;
use std::hint::black_box;

use libc::size_t;

// glibc's malloc, even if `malloc` is interposed. The program's own allocator must not be called here: without
// `environ` it would miss its settings (MALLOC_CONF of jemalloc).
unsafe extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

/// Makes this process's first malloc, from a zeroed stack.
pub fn make_reliable() {
    clear_stack();
    // SAFETY: freeing what malloc returned, null included.
    unsafe { __libc_free(black_box(__libc_malloc(black_box(1)))) };
}

/// Zeroes the stack below the caller, deeper than malloc's initialization reaches.
#[inline(never)]
fn clear_stack() {
    black_box([0u8; 32 << 10]);
}
