//! `realloc` of objects on the pool (docs/decisions/pool.md#9).
//!
//! The kernel cannot enlarge a hugetlb mapping, and moves one incorrectly. So a growing object is copied once, to an
//! address with free space behind it. Further superpages are mapped in that space as VMAs of their own, which `free`
//! unmaps as one range. The space is not reserved: if another mapping takes it, the object is copied again.
//!
//! # Safety
//! Objects belong to this thread: `realloc` got them from the program, or malloc has just returned them. No mapping
//! replaces an existing one.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use super::chunk::{Chunk, HEADER};
use super::large::{self, BACKED_FROM, enter, forget, round_up};
use super::next;
use super::thresholds::MAX_MAPPED_FROM;
use crate::counters::{self, Column, Kind, Reason};
use crate::settings::{self, Fallback};
use crate::table;
use crate::{executor, filter, in_place, mapping, maps, raw, sizes, source};

/// Address space left free behind a growing object.
const FREE_SPACE_BEHIND: usize = 64 << 30;
/// Objects grow by 1/GROWTH_DIVISOR of their length more than requested: this limits the number of VMAs, and the pages
/// that are reserved and not touched.
const GROWTH_DIVISOR: usize = 16;

/// Returns a larger object with the contents of `old`, which is on the pool, or should be.
///
/// # Safety
/// As `realloc` in C.
pub unsafe fn grow(old: Chunk, size: usize) -> *mut c_void {
    // SAFETY: the caller keeps this function's contract; both objects are this thread's.
    unsafe {
        // An object gets the requested size at its first growth, and more later: an object that grows twice probably
        // continues to grow. Under a seccomp filter objects are malloc's own mappings, because the maps cannot be read.
        let has_grown =
            old.size() >= BACKED_FROM.load(Ordering::Relaxed) && !filter::may_be_in_place();
        if has_grown && old.is_mapped() && raw::keeping_errno(|| extend(old, size)) {
            return old.memory as *mut c_void;
        }
        let ahead =
            if has_grown { round_up(size.saturating_add(size / GROWTH_DIVISOR)) } else { size };
        let mut fresh = next::malloc(ahead);
        if fresh.is_null() && ahead != size {
            fresh = next::malloc(size);
        }
        if fresh.is_null() {
            // There may be free address space behind the object, but the kernel cannot enlarge hugetlb mappings.
            let is_on_pool = old.is_mapped() && table::first(old.memory, old.end()).is_some();
            let is_for_superpages_only = settings::get().fallback == Fallback::Error;
            return match is_on_pool || is_for_superpages_only {
                true => fresh,
                false => next::realloc(old.memory as *mut c_void, size),
            };
        }
        let chunk = Chunk::from_memory(fresh);
        if chunk.is_mapped() {
            let moved =
                if has_grown { raw::keeping_errno(|| move_to_free_space(chunk)) } else { None };
            if let Some(memory) = moved {
                fresh = memory;
            } else if !large::back(chunk) {
                next::free(fresh);
                raw::set_errno(libc::ENOMEM);
                return std::ptr::null_mut();
            }
        }
        let kept = old.usable().min(size);
        std::ptr::copy_nonoverlapping(old.memory as *const u8, fresh.cast(), kept);
        if old.is_mapped() {
            forget(old);
        }
        next::free(old.memory as *mut c_void);
        fresh
    }
}

/// Maps more superpages behind an object; `false`: unchanged.
unsafe fn extend(old: Chunk, size: usize) -> bool {
    // SAFETY: the contract of `grow`.
    let Some((start, length)) = (unsafe { old.mapping() }) else { return false };
    let (end, page) = (start + length, sizes::superpage());
    let needed = old.memory.checked_add(size).and_then(|to| to.checked_sub(end));
    let Some(needed) = needed.and_then(|it| it.checked_next_multiple_of(page)) else {
        return false;
    };
    if !end.is_multiple_of(page) {
        return false;
    }
    let ahead = (needed + length / GROWTH_DIVISOR).next_multiple_of(page);
    let Some((added, column)) = map_behind(end, needed, ahead) else { return false };
    // SAFETY: just mapped; no other code has the address.
    unsafe {
        if !count_as_mapped(added) {
            let _ = raw::munmap(end, added);
            if column == Column::Hugetlb {
                in_place::forget(added);
            }
            return false;
        }
        old.set_size(old.size() + added);
    }
    match column {
        Column::Hugetlb => enter(end, end + added),
        _ => large::advise(end, added),
    }
    true
}

/// Maps memory at `at`; returns its length and its kind of pages. `None`: the range is in use, or there is no memory.
fn map_behind(at: usize, needed: usize, ahead: usize) -> Option<(usize, Column)> {
    for length in [ahead, needed] {
        match source::map_hugetlb_at(at, length) {
            Ok(()) => return Some((length, Column::Hugetlb)),
            Err(Reason::Kernel) => return None,
            Err(why) => counters::count_reason(why),
        }
    }
    if executor::fall_back(settings::get().fallback, needed) == Fallback::Error {
        return None;
    }
    raw::map_at(at, needed, raw::READ_WRITE, 0)?;
    Some((needed, Column::FellBack))
}

/// Raises malloc's count of mapped bytes (`mallinfo2`) by `added`, because `free` subtracts the size in an object's
/// header. Allocates an object that is larger by `added`, unmaps that part, and frees the rest.
unsafe fn count_as_mapped(added: usize) -> bool {
    // Larger than the maximum mmap threshold: freeing such a mapping does not move the thresholds.
    const FREED: usize = MAX_MAPPED_FROM + (1 << 20);
    let Some(size) = added.checked_add(FREED) else { return false };
    // SAFETY: an object of our own, which no other code sees.
    unsafe {
        let memory = next::malloc(size);
        if memory.is_null() {
            return false;
        }
        let chunk = Chunk::from_memory(memory);
        let mapping = if chunk.is_mapped() { chunk.mapping() } else { None };
        let is_cut = mapping.is_some_and(|(start, length)| {
            let is_unmapped = raw::munmap(start + length - added, added).is_ok();
            if is_unmapped {
                chunk.set_size(chunk.size() - added);
            }
            is_unmapped
        });
        next::free(memory);
        is_cut
    }
}

/// Moves a fresh object to the pool, to an address with free space behind it; `None`: unchanged.
unsafe fn move_to_free_space(chunk: Chunk) -> Option<*mut c_void> {
    // SAFETY: the contract of `grow`.
    let (start, length) = unsafe { chunk.mapping() }?;
    if start + HEADER != chunk.memory || !length.is_multiple_of(sizes::superpage()) {
        return None;
    }
    let at = place_with_space(length)?;
    source::map_hugetlb_at(at, length).ok()?;
    // SAFETY: only the header has been written. malloc keeps no list of its mappings.
    unsafe {
        (at as *mut [usize; 2]).write(*(start as *const [usize; 2]));
        let _ = raw::munmap(start, length);
    }
    enter(at, at + length);
    Some((at + HEADER) as *mut c_void)
}

/// Finds the highest address with [`FREE_SPACE_BEHIND`] behind it. The kernel places new mappings above, from the top
/// down.
fn place_with_space(length: usize) -> Option<usize> {
    let page = sizes::superpage();
    let needed = length.checked_add(FREE_SPACE_BEHIND)?;
    let (mut end, mut found) = (0, None);
    maps::each(|vma| {
        // The kernel's own page (vsyscall) lies where no program can map anything.
        if vma.start.cast_signed() >= 0 && vma.start.saturating_sub(end) >= needed + page {
            found = Some((vma.start - needed) / page * page);
        }
        end = vma.end;
    })?;
    found
}

/// Shrinks an object in place. Frees the pages it no longer needs, if they are more than it may have ahead.
///
/// # Safety
/// As `realloc` in C.
pub unsafe fn shrink(old: Chunk, size: usize) -> *mut c_void {
    let same = old.memory as *mut c_void;
    // SAFETY: the caller keeps this function's contract.
    let Some((start, length)) = (unsafe { old.mapping() }) else { return same };
    let (end, page) = (start + length, sizes::superpage());
    let kept = (old.memory + size).next_multiple_of(page);
    // mremap rounds lengths up to superpages if the first page is one.
    let is_exact = !start.is_multiple_of(page) || end.is_multiple_of(page);
    if !is_exact || end.saturating_sub(kept) <= 2 * length / GROWTH_DIVISOR {
        return same;
    }
    let memory = mapping::without_demotion(kept, end, || {
        if in_place::is_asked() {
            // Otherwise the file would keep the pages.
            // SAFETY: the program needs nothing behind `kept`.
            let _ = unsafe { in_place::discard(kept, end) };
            in_place::forget(end - kept);
        }
        // SAFETY: the caller keeps this function's contract.
        let memory = unsafe { next::realloc(same, kept - old.memory - HEADER) };
        if memory == same {
            counters::count(Kind::Heap, Column::Returned, end - kept);
            table::remove(kept, end);
        }
        memory
    });
    if memory.is_null() { same } else { memory }
}
