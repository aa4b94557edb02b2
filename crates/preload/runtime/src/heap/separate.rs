//! Separate mappings for large objects that glibc cut from the top of an arena that was grown ahead. Without the
//! library the top of an arena is short, glibc maps such objects, and freeing one unmaps it.
//!
//! glibc maps an object that is larger than the mmap threshold and than the arena's top. `move_to_own_mapping`
//! allocates an object larger than any top. `realloc` then shrinks the object to the wanted size by `mremap`.
//!
//! # Safety
//! This thread has just allocated the object that is moved.
//! See docs/decisions/heap.md#2.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chunk::{Chunk, HEADER};
use super::{arenas, next, thresholds};
use crate::{filter, limits, raw};

/// More bytes than the top of an arena ever holds, because glibc trims a larger top.
const LARGE: usize = 64 << 20;

/// (a) Whether malloc fills what it returns (`M_PERTURB`).
static ARE_FILLED: AtomicBool = AtomicBool::new(false);

/// Call when the program has set `M_PERTURB`.
pub fn objects_are_filled() {
    ARE_FILLED.store(true, Ordering::Relaxed);
}

/// Whether an object of `bytes` may be cut from a top that was grown ahead.
#[inline(always)]
pub fn may_be_ahead(bytes: usize) -> bool {
    bytes >= thresholds::mapped_from() && can_be_moved()
}

fn can_be_moved() -> bool {
    arenas::have_grown()
        && thresholds::are_known()
        && !ARE_FILLED.load(Ordering::Relaxed)
        && !filter::may_be_in_place()
        && limits::has_no_memory_rlimits()
}

/// Moves an object that was cut from an arena's top to a separate mapping, with the first `kept` bytes of its contents;
/// `None`: not moved.
///
/// # Safety
/// This thread has just allocated the object, and has not returned it to the program.
#[cold]
pub unsafe fn move_to_own_mapping(chunk: Chunk, kept: usize) -> Option<Chunk> {
    // SAFETY: the caller keeps this function's contract throughout.
    unsafe {
        if !can_be_moved() || !arenas::is_cut_from_top(chunk) {
            return None;
        }
        raw::keeping_errno(|| {
            let wanted = chunk.usable();
            let large = next::malloc(LARGE.checked_add(wanted)?);
            if large.is_null() {
                return None;
            }
            let cut = match Chunk::from_memory(large).is_mapped() {
                true => next::realloc(large, wanted),
                false => std::ptr::null_mut(),
            };
            if cut.is_null() {
                next::free(large);
                return None;
            }
            let own = Chunk::from_memory(cut);
            let memory = chunk.memory as *mut c_void;
            cut.cast::<u8>().copy_from_nonoverlapping(memory.cast(), kept);
            next::free(memory);
            debug_assert!(own.is_mapped() && own.size() >= wanted + HEADER);
            Some(own)
        })
    }
}
