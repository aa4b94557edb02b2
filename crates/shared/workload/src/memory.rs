//! `Zeroed`: the memory that kernels work on.
//!
//! The memory comes from the global allocator's `alloc_zeroed`, which is `calloc`, so a preloaded allocator or a glibc
//! tunable decides its backing; glibc serves a large `calloc` with a fresh, untouched mapping. Rejected: `vec![0; n]`
//! (aborts when out of memory), `try_reserve` + `resize` (touches every page before the setup is timed), and 64-byte
//! alignment by the allocator (Rust's `System` then uses `posix_memalign` + `memset`, which also touches every page).
//! So this module allocates 64 bytes more than needed and rounds the start up.
//!
//! # Safety
//! A `Zeroed<T>` owns one live allocation, `base` with `layout`, freed once in `drop`. `start` is `base` rounded up to
//! a multiple of 64, and `start + len * size_of::<T>()` stays inside the allocation because 64 more bytes were
//! requested. Every bit pattern, including zero, is a valid `T`, because `Plain` is implemented here only, for
//! integers, floats, atomics and arrays of them. So a slice over the whole range is always valid, and the borrow rules
//! of `Zeroed` are those of the slice. Populating changes no bytes: the kernel only maps pages that overlap the
//! allocation.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use units::ByteSize;

use crate::WorkloadError;

/// Alignment in bytes: the cache line of all supported machines, except some Arm CPUs with 128
/// bytes.
const ALIGNMENT: usize = 64;

/// Types for which every bit pattern is valid.
///
/// # Safety
/// The type has no padding that matters, no niche and no destructor, and its alignment divides 16.
pub unsafe trait Plain {}

// SAFETY: integers and floats accept every bit pattern and are aligned to at most 8.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}
// SAFETY: std documents the same size, alignment and bit validity as u32.
unsafe impl Plain for AtomicU32 {}
// SAFETY: std documents the same size, alignment and bit validity as u64.
unsafe impl Plain for AtomicU64 {}
// SAFETY: an array has its element's alignment and validity and adds no padding.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A slice of zeroed memory from the global allocator, aligned to a cache line.
#[derive(Debug)]
pub struct Zeroed<T: Plain> {
    base: NonNull<u8>,
    layout: Layout,
    start: NonNull<T>,
    len: usize,
}

impl<T: Plain> Zeroed<T> {
    /// Allocates `len` zeroes without touching them. An error names `what`.
    pub fn new(what: &'static str, len: usize) -> Result<Self, WorkloadError> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        let failed = || WorkloadError::Allocation { what, bytes: ByteSize(bytes) };
        let padded = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_add(ALIGNMENT))
            .ok_or_else(failed)?;
        let layout = Layout::from_size_align(padded, 16).map_err(|_| failed())?;
        // SAFETY: `layout` has at least ALIGNMENT bytes, so its size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(failed)?;
        let skip = base.align_offset(ALIGNMENT);
        debug_assert!(skip < ALIGNMENT);
        // SAFETY: `skip` < ALIGNMENT bytes, which the allocation has beyond `len` elements.
        let start = unsafe { base.add(skip) }.cast::<T>();
        Ok(Self { base, layout, start, len })
    }
}

impl<T: Plain> Zeroed<T> {
    /// Prefaults the pages of a range of elements for writing (`MADV_POPULATE_WRITE`).
    pub fn populate(&self, elements: std::ops::Range<usize>) -> Result<(), WorkloadError> {
        let page = crate::page_size();
        let range = self[elements].as_ptr_range();
        let start = page.floor(range.start as u64);
        let bytes = page.ceil(range.end as u64) - start;
        // SAFETY: the advice changes no contents; every page of the range overlaps this allocation.
        let refused = unsafe {
            libc::madvise(start as *mut libc::c_void, bytes as usize, libc::MADV_POPULATE_WRITE)
        };
        if bytes > 0 && refused != 0 {
            return Err(WorkloadError::Populate(std::io::Error::last_os_error()));
        }
        Ok(())
    }
}

impl Zeroed<AtomicU32> {
    /// Converts to plain numbers; taking `self` ensures that no other thread uses the memory.
    pub fn into_plain(self) -> Zeroed<u32> {
        let this = std::mem::ManuallyDrop::new(self);
        Zeroed {
            base: this.base,
            layout: this.layout,
            start: this.start.cast(), // AtomicU32 and u32 have one layout (std docs)
            len: this.len,
        }
    }
}

impl<T: Plain> Deref for Zeroed<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned, `len` elements lie inside the live allocation and were
        // initialized to zero, which is a `T` (see the module).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for Zeroed<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` excludes any other slice of it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed(layout)` and is freed here only.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: a `Zeroed<T>` is an owned slice of `T` and nothing else.
unsafe impl<T: Plain + Send> Send for Zeroed<T> {}
// SAFETY: as above; sharing it shares `&[T]`.
unsafe impl<T: Plain + Sync> Sync for Zeroed<T> {}

/// Splits `0..len` into `parts` ranges of nearly equal length, in order, with borders at multiples of `grain` (except
/// the last end).
pub fn shares(len: usize, parts: usize, grain: usize) -> Vec<std::ops::Range<usize>> {
    let grains = len.div_ceil(grain) as u128;
    let border = |part: usize| {
        ((grains * part as u128 / parts as u128) as usize).saturating_mul(grain).min(len)
    };
    (0..parts).map(|part| border(part)..border(part + 1)).collect()
}

/// Splits `slice` at the borders of `ranges`, which must be adjacent and cover it.
pub fn split_mut<'a, T>(
    mut slice: &'a mut [T],
    ranges: &[std::ops::Range<usize>],
) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(ranges.len());
    for range in ranges {
        let (part, rest) = slice.split_at_mut(range.len());
        parts.push(part);
        slice = rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_zero_aligned_and_writable() {
        let mut memory = Zeroed::<[u64; 8]>::new("a test", 1000).unwrap();
        assert_eq!(memory.len(), 1000);
        assert_eq!(memory.as_ptr().align_offset(ALIGNMENT), 0);
        assert!(memory.iter().flatten().all(|&word| word == 0));
        memory.iter_mut().flatten().for_each(|word| *word = u64::MAX);
        assert!(memory.iter().flatten().all(|&word| word == u64::MAX));
    }

    #[test]
    fn no_memory_is_an_error() {
        for len in [usize::MAX, usize::MAX / 8, 1 << 55] {
            let error = Zeroed::<u64>::new("a test", len).unwrap_err();
            assert!(matches!(error, WorkloadError::Allocation { what: "a test", .. }), "{error}");
        }
        assert!(Zeroed::<u64>::new("nothing", 0).unwrap().is_empty());
    }

    #[test]
    fn populated_memory_is_still_zero_and_faults_no_more() {
        let pages = 4096;
        let words = crate::page_size().bytes() as usize / 8;
        let mut memory = Zeroed::<u64>::new("a test", pages * words).unwrap();
        // Try the call.
        let populated = memory.populate(0..pages * words);
        testkit::require!(populated.is_ok(), "no MADV_POPULATE_WRITE (Linux 5.14): {populated:?}");
        memory.populate(7..7).unwrap();
        // Count only faults of this thread, because other tests run concurrently.
        let faults = || {
            // SAFETY: an rusage may be all zeroes, and the call writes to a live local.
            unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
                usage.ru_minflt
            }
        };
        let before = faults();
        assert!(memory.iter_mut().step_by(words).all(|word| std::mem::replace(word, 1) == 0));
        let faults = faults() - before;
        assert!(faults < pages as i64 / 2, "{faults}");
    }

    #[test]
    fn atomics_become_plain() {
        let memory = Zeroed::<AtomicU32>::new("a test", 3).unwrap();
        memory[1].store(7, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(*memory.into_plain(), [0, 7, 0]);
    }

    proptest! {
        #[test]
        fn shares_cover_in_order(len in 0usize..5000, parts in 1usize..9, grain in 1usize..70) {
            let ranges = shares(len, parts, grain);
            prop_assert_eq!(ranges.len(), parts);
            prop_assert_eq!(ranges[0].start, 0);
            prop_assert_eq!(ranges[parts - 1].end, len);
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
                prop_assert!(pair[0].end % grain == 0 || pair[0].end == len);
            }
            let mut data = (0..len).collect::<Vec<_>>();
            for (part, range) in split_mut(&mut data, &ranges).into_iter().zip(ranges) {
                prop_assert_eq!(part.to_vec(), range.collect::<Vec<_>>());
            }
        }
    }
}
