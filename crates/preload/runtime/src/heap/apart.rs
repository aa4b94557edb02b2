//! Large objects that glibc cut from what an arena was grown ahead by: natively they would have mappings of their own, as the top of
//! an arena is short, and go back to the kernel when they are freed. So they get one here.
//!
//! glibc gives a mapping to what is larger than the threshold and than the arena's top. So an object is asked for that is larger
//! than any top is grown to, and cut down to what is wanted, which `realloc` does by `mremap`.
//!
//! # Safety
//! What is moved was just allocated by this thread.
//! See docs/decisions/heap.md#2.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chunk::{Chunk, HEADER};
use super::{arenas, next, thresholds};
use crate::{filter, limits, raw};

/// Larger than an arena's top, which goes back from less than this on.
const LARGE: usize = 64 << 20;

/// (a) Whether malloc fills what it returns.
static ARE_FILLED: AtomicBool = AtomicBool::new(false);

/// The program asks for that, or did once.
pub fn objects_are_filled() {
    ARE_FILLED.store(true, Ordering::Relaxed);
}

/// Whether an object of so many bytes may be cut from what an arena was grown ahead by.
#[inline(always)]
pub fn may_be_ahead(bytes: usize) -> bool {
    bytes >= thresholds::mapped_from() && can_be_moved()
}

fn can_be_moved() -> bool {
    arenas::have_grown()
        && thresholds::are_known()
        && !filter::may_be_in_place()
        && limits::are_none()
        && !ARE_FILLED.load(Ordering::Relaxed)
}

/// Gives an object that was cut from an arena's top a mapping of its own, with the first `kept` bytes of its contents; `None`: it stays.
///
/// # Safety
/// It was just allocated, and nobody else has seen it.
#[cold]
pub unsafe fn moved(chunk: Chunk, kept: usize) -> Option<Chunk> {
    // SAFETY: the contract, throughout.
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
