//! Large objects, which glibc maps separately: superpages before the first touch.
//!
//! On THP the whole mapping is advised, so that it stays one VMA and `realloc` can move it. The object then grows and
//! shrinks by whole superpages, because the kernel aligns mappings of such lengths to superpages. On the pool the
//! superpages that lie wholly inside are replaced, and `growth` resizes the object.
//!
//! # Safety
//! Memory that is replaced belongs to an object that malloc has just returned to this thread, or that `realloc` got
//! from the program: no other code may use it.
//! See docs/decisions/heap.md#4.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::arenas::stop_growing_ahead;
use super::chunk::Chunk;
use super::growth::{grow, shrink};
use super::next;
use crate::contiguity::{self, Grown};
use crate::counters::{self, Column, Kind};
use crate::settings::{self, Fallback};
use crate::table::{self, Range};
use crate::{executor, in_place, mapping, raw, sizes, source};

/// Minimum size of backed objects, lowered to two superpages in a large heap ([`heap_is_large`]). See
/// docs/decisions/heap.md#11.
pub(super) static BACKED_FROM: AtomicUsize = AtomicUsize::new(8 << 20);
/// Minimum size of objects that are resized by whole superpages.
const ROUNDED_FROM: usize = 16 << 20;

/// Call when the heap is large: from now on, backs objects that can hold a superpage.
pub fn heap_is_large() {
    BACKED_FROM.fetch_min(2 * sizes::superpage(), Ordering::Relaxed);
}

/// Backs a new object. `false`: there are no superpages, and the fallback is `error`.
///
/// # Safety
/// The object was just allocated, with a separate mapping.
#[inline(always)]
pub unsafe fn back(chunk: Chunk) -> bool {
    // SAFETY: the caller keeps this function's contract.
    chunk.size() < BACKED_FROM.load(Ordering::Relaxed) || unsafe { back_large(chunk) }
}

#[cold]
unsafe fn back_large(chunk: Chunk) -> bool {
    // SAFETY: the contract of `back`.
    let Some((start, length)) = (unsafe { chunk.mapping() }) else { return true };
    if settings::get().is_thp() {
        advise(start, length);
        return true;
    }
    let page = sizes::superpage();
    let (from, to) = (start.next_multiple_of(page), (start + length) / page * page);
    if from >= to {
        return true;
    }
    raw::keeping_errno(|| {
        // Only the header has been written.
        let header = chunk.memory as *mut [usize; 2];
        // SAFETY: the object is this thread's; the header precedes its memory.
        unsafe {
            let header = header.sub(1);
            let before = header.read();
            if put_on_pool(from, to) {
                if (from..to).contains(&(header as usize)) {
                    header.write(before);
                }
                counters::count(Kind::Heap, Column::Small, length - (to - from));
                return true;
            }
        }
        if executor::fall_back(settings::get().fallback, length) == Fallback::Error {
            counters::count(Kind::Heap, Column::Refused, length);
            return false;
        }
        advise(start, length);
        true
    })
}

/// Advises heap memory, if the advisor says so, and counts it.
pub fn advise(start: usize, length: usize) {
    count(contiguity::advise(Kind::Heap, start, length), length);
}

/// As [`advise`], for memory in use.
pub fn advise_old(start: usize, length: usize) {
    count(contiguity::advise_old(Kind::Heap, start, length), length);
}

/// Counts new memory, and how much of it was advised.
fn count(advised: usize, length: usize) {
    let column = if settings::get().is_hugetlb() { Column::FellBack } else { Column::Advised };
    counters::count(Kind::Heap, column, advised);
    counters::count(Kind::Heap, Column::FellBack, length - advised);
}

/// Maps reserved pages of the pool at `[from, to)`; `false`: the pool has none, and nothing changed.
///
/// # Safety
/// The caller owns the range, and does not need its contents.
pub unsafe fn put_on_pool(from: usize, to: usize) -> bool {
    // SAFETY: the caller keeps this function's contract.
    match unsafe { source::place_hugetlb(from, to - from, raw::READ_WRITE, libc::MAP_PRIVATE) } {
        Ok(()) => {
            enter(from, to);
            true
        }
        Err(why) => {
            counters::count_reason(why);
            false
        }
    }
}

/// Adds superpages of the heap to the table.
pub fn enter(from: usize, to: usize) {
    table::remove(from, to);
    table::add(Range { start: from, end: to, page: sizes::superpage(), shared: false });
    mapping::demote_if_forking(from, to);
    counters::count(Kind::Heap, Column::Hugetlb, to - from);
}

/// Call before a separately mapped object is freed.
///
/// # Safety
/// The object has a separate mapping.
pub unsafe fn forget(chunk: Chunk) {
    // Not BACKED_FROM: an object that was shrunk may still have superpages.
    if chunk.size() < sizes::superpage() {
        return;
    }
    // SAFETY: the caller keeps this function's contract.
    if let Some((start, length)) = unsafe { chunk.mapping() } {
        counters::count(Kind::Heap, Column::Returned, length);
        contiguity::forget(start, start + length);
        mapping::without_demotion(start, start + length, || {
            let (mut at, end) = (start, start + length);
            while let Some(range) = table::first(at, end) {
                in_place::forget(range.end.min(end) - range.start.max(at));
                at = range.end;
            }
            table::remove(start, end);
        });
    }
}

/// `realloc` of an object with a separate mapping.
///
/// # Safety
/// As in C.
pub unsafe fn resize(old: Chunk, size: usize) -> *mut c_void {
    // SAFETY: the caller keeps this function's contract.
    let resize = |size| unsafe { next::realloc(old.memory as *mut c_void, size) };
    let is_large = size >= BACKED_FROM.load(Ordering::Relaxed);
    // SAFETY: the caller keeps this function's contract throughout.
    unsafe {
        let Some((start, length)) = old.mapping() else { return resize(size) };
        if size > 0 && table::first(start, start + length).is_some() {
            let fits = size <= old.usable();
            return if fits { shrink(old, size) } else { grow(old, size) };
        }
        // Objects that fell back stay ordinary memory, which the kernel moves.
        if is_for_pool(size) && old.size() < BACKED_FROM.load(Ordering::Relaxed) {
            return grow(old, size);
        }
        // mremap moves one VMA at a time.
        let advised = contiguity::rejoin(start, length);
        let rounded = if size >= ROUNDED_FROM { round_up(size) } else { size };
        let mut memory = resize(rounded);
        if memory.is_null() && (rounded != size || stop_growing_ahead()) {
            memory = resize(size);
        }
        let is_backed = is_large && executor::advises();
        if memory.is_null() || !is_backed {
            return memory;
        }
        let new = Chunk::from_memory(memory);
        if let Some((start, new_length)) = new.mapping().filter(|_| new.is_mapped()) {
            if old.size() < BACKED_FROM.load(Ordering::Relaxed) {
                advise(start, new_length);
            } else if new_length > length {
                let grown = Grown { start, length: new_length, old: length, advised };
                count(contiguity::grown(Kind::Heap, &grown), new_length - length);
            }
        }
        memory
    }
}

/// Rounds a request up so that its mapping is whole superpages: malloc adds a header and rounds up to base pages.
pub fn round_up(size: usize) -> usize {
    const HEADERS: usize = 4 * size_of::<usize>();
    let page = sizes::superpage();
    match size.checked_add(HEADERS).and_then(|size| size.checked_next_multiple_of(page)) {
        Some(mapping) => mapping - HEADERS,
        None => size,
    }
}

/// Whether an object of this size should be on the pool.
pub fn is_for_pool(size: usize) -> bool {
    size >= BACKED_FROM.load(Ordering::Relaxed) && settings::get().is_hugetlb()
}
