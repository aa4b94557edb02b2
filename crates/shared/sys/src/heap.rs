//! A global allocator that advises MADV_HUGEPAGE for large allocations, for programs with large arrays and random
//! access.
//!
//! # Safety
//! All memory comes from [`System`], which is called with the caller's arguments. The only addition is advice on memory
//! that was just allocated. Advice changes no byte, and its range lies inside the allocation. See
//! docs/decisions/lab.md#5.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mem::Advice;

/// Minimum bytes of an allocation to advise. A smaller allocation may contain no aligned superpage.
const LARGE: usize = 4 << 20;
/// The superpage of machines with 4 KiB base pages; a multiple of each machine's base page.
const SUPERPAGE: usize = 2 << 20;

/// The system allocator. After [`Heap::advise`], it advises `MADV_HUGEPAGE` for large allocations (`madvise(2)`).
///
/// For `#[global_allocator]`. glibc's tunable `glibc.malloc.hugetlb=1` does the same, except for arrays that grew from
/// a small allocation. But a program cannot set tunables for itself.
#[derive(Debug)]
pub struct Heap {
    advises: AtomicBool,
}

impl Heap {
    /// An allocator that does not advise yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "for a static, which needs a const function")]
    pub const fn new() -> Self {
        Self { advises: AtomicBool::new(false) }
    }

    /// Enables advice for later large allocations.
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

/// Advises MADV_HUGEPAGE for the superpages inside a large allocation. If the kernel refuses, the memory stays on base
/// pages.
#[cold]
fn advise(start: *mut u8, length: usize) {
    let ahead = start.addr().wrapping_neg() % SUPERPAGE;
    let length = (length - ahead) & !(SUPERPAGE - 1);
    // SAFETY: `length` is `LARGE` or more, so the aligned superpages lie inside the allocation, which was just made or
    // moved; the advice changes none of its bytes.
    let _ = unsafe { libc::madvise(start.add(ahead).cast(), length, Advice::HugePage as i32) };
}

// SAFETY: each call is passed to `System` unchanged, and its result is returned.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this function, which is also that of `System`.
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
