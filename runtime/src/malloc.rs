//! Making glibc's `glibc.malloc.hugetlb=1` reliable.
//!
//! At its first allocation glibc reads the THP mode into a stack buffer one byte longer than the
//! text, does not terminate it, and compares it as a string (`__malloc_thp_mode`, seen on 2.36).
//! Whether malloc then advises its memory depends on the byte that happened to lie there: on a Zen
//! 4 guest with Debian 12, 28 of 60 runs of one program silently got no superpage. Here that byte is
//! made zero: the first allocation of the process is made from a stack that was just cleared.
//!
//! # Safety
//! The constructor runs before `main`, on the main thread, after libc is ready (we depend on it).
//! It allocates one byte and frees it.

use std::hint::black_box;

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = prepare_malloc;

extern "C" fn prepare_malloc() {
    if crate::is_asked() {
        clear_stack();
        // SAFETY: freeing what malloc returned, null included.
        unsafe { libc::free(black_box(libc::malloc(black_box(1)))) };
    }
}

/// Zeroes the stack below the caller, deeper than malloc's start-up goes.
#[inline(never)]
fn clear_stack() {
    black_box([0u8; 32 << 10]);
}
