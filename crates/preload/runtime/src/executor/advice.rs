//! The only module that calls madvise for superpages, except for the program's own advice (`mapping`). Each call
//! performs an action of `advisor` (`crates/preload/runtime/tests/integration/advice.rs` has the list).
//!
//! # Safety
//! Advice about superpages changes no contents, and fails on unmapped memory. See docs/decisions/live.md#5.

use std::ffi::c_int;

use crate::raw;

/// MADV_HUGEPAGE on `[start, start + length)`; `false`: the kernel refuses.
pub fn superpages(start: usize, length: usize) -> bool {
    give(start, length, libc::MADV_HUGEPAGE)
}

/// MADV_NOHUGEPAGE.
pub fn base_pages(start: usize, length: usize) -> bool {
    give(start, length, libc::MADV_NOHUGEPAGE)
}

/// MADV_COLLAPSE; `false`: failed somewhere in the range. With length 0 only tests for kernel support (Linux 6.1).
pub fn collapse(start: usize, length: usize) -> bool {
    give(start, length, libc::MADV_COLLAPSE)
}

fn give(start: usize, length: usize, advice: c_int) -> bool {
    // SAFETY: see "Safety" of this module.
    unsafe { raw::madvise(start, length, advice) }.is_ok()
}
