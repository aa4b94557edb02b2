//! Advice about superpages: the one place that gives the kernel any, but for what the program says itself (`mapping`).
//! Each call performs an action of `policy` (`crates/preload/runtime/tests/integration/advice.rs` has the list).
//!
//! # Safety
//! Advice about superpages changes no contents, and where nothing is mapped it is an error.
//! See docs/decisions/live.md#5.

use std::ffi::c_int;

use crate::raw;

/// Superpages may come where `[start, start + length)` is touched; `false`: the kernel refuses.
pub fn superpages(start: usize, length: usize) -> bool {
    give(start, length, libc::MADV_HUGEPAGE)
}

/// None may.
pub fn base_pages(start: usize, length: usize) -> bool {
    give(start, length, libc::MADV_NOHUGEPAGE)
}

/// The kernel makes superpages of what is there now; `false`: not everywhere. With no length it only says whether it
/// can (Linux 6.1).
pub fn collapse(start: usize, length: usize) -> bool {
    give(start, length, libc::MADV_COLLAPSE)
}

fn give(start: usize, length: usize, advice: c_int) -> bool {
    // SAFETY: as the module says.
    unsafe { raw::madvise(start, length, advice) }.is_ok()
}
