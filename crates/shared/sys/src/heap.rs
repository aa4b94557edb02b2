//! The heap of a program that lays out large arrays and reads them at random: superpages are asked for under them.
//!
//! # Safety
//! All memory is [`System`]'s, which is called with what the caller gave. What is added is advice about memory that
//! was just allocated: it changes no byte, and the range lies inside the allocation.
//! See docs/decisions/lab.md#5.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mem::Advice;

/// Smaller allocations may have no aligned superpage in them.
const LARGE: usize = 4 << 20;
/// The superpage of machines with 4 KiB base pages; a multiple of each machine's base page.
const SUPERPAGE: usize = 2 << 20;

/// glibc's allocator; once [`Heap::advise`] was called, large allocations are advised `MADV_HUGEPAGE` (`madvise(2)`).
///
/// For `#[global_allocator]`. `glibc.malloc.hugetlb=1` would do the same but for arrays that began small, and a program
/// cannot set it for itself.
#[derive(Debug)]
pub struct Heap {
    advises: AtomicBool,
}

impl Heap {
    /// One that advises nothing yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "for a static, which needs a const function")]
    pub const fn new() -> Self {
        Self { advises: AtomicBool::new(false) }
    }

    /// From now on, large allocations are advised.
    pub fn advise(&self) {
        self.advises.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn allocated(&self, start: *mut u8, length: usize) -> *mut u8 {
        if length >= LARGE && self.advises.load(Ordering::Relaxed) && !start.is_null() {
            advise(start, length);
        }
        start
    }
}

/// Asks for superpages in a large allocation. Where the kernel refuses, all stays as it was.
#[cold]
fn advise(start: *mut u8, length: usize) {
    let ahead = start.addr().wrapping_neg() % SUPERPAGE;
    let length = (length - ahead) & !(SUPERPAGE - 1);
    // SAFETY: `length` is `LARGE` or more, so the whole superpages from the first on lie inside the allocation, which
    // was just made or moved here; the advice changes none of its bytes.
    let _ = unsafe { libc::madvise(start.add(ahead).cast(), length, Advice::HugePage as i32) };
}

// SAFETY: each call is passed on to `System` as it came, and its answer returned.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `System` asks for.
        self.allocated(unsafe { System.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.allocated(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.allocated(unsafe { System.realloc(start, layout, size) }, size)
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}
