//! Objects on the pool that `realloc` resizes (docs/decisions/pool.md#9).
//!
//! The kernel cannot enlarge a mapping of the pool, and moves it wrongly. So an object that grows is copied
//! once, to where nothing is mapped behind it, and from then on further superpages are mapped there: they are
//! mappings of their own, which `free` unmaps as one range. The space behind is not reserved. Where somebody
//! else has come to lie there, the object is copied again.
//!
//! # Safety
//! The objects are this thread's alone: `realloc` was given them, or malloc has just returned them. Nothing
//! is mapped over what exists.

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

/// Addresses left free behind a growing object.
const SPACE: usize = 64 << 30;
/// What an object grows by beyond what is asked for, as a part of its length: it bounds the number of
/// mappings, and the pages that are reserved and not touched.
const AHEAD: usize = 16;

/// A larger object with the contents of one that is on the pool, or is to be.
///
/// # Safety
/// As `realloc` in C.
pub unsafe fn grow(old: Chunk, size: usize) -> *mut c_void {
    // SAFETY: the contract; both objects are this thread's.
    unsafe {
        // Whoever grows once is as large as asked for; whoever grows again will go on.
        // Under a filter of system calls objects are malloc's own mappings: the list of mappings cannot be read.
        let has_grown =
            old.size() >= BACKED_FROM.load(Ordering::Relaxed) && !filter::may_be_in_place();
        if has_grown && old.is_mapped() && raw::keeping_errno(|| extend(old, size)) {
            return old.memory as *mut c_void;
        }
        let ahead = if has_grown { round_up(size.saturating_add(size / AHEAD)) } else { size };
        let mut fresh = next::malloc(ahead);
        if fresh.is_null() && ahead != size {
            fresh = next::malloc(size);
        }
        if fresh.is_null() {
            // There may be free address space behind it; but the kernel cannot enlarge what lies on the pool.
            let is_on_pool = old.is_mapped() && table::first(old.memory, old.end()).is_some();
            let is_for_superpages_only = settings::get().fallback == Fallback::Error;
            return match is_on_pool || is_for_superpages_only {
                true => fresh,
                false => next::realloc(old.memory as *mut c_void, size),
            };
        }
        let chunk = Chunk::from_memory(fresh);
        if chunk.is_mapped() {
            let apart = if has_grown { raw::keeping_errno(|| move_apart(chunk)) } else { None };
            if let Some(memory) = apart {
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

/// Maps more superpages behind an object; `false`: it is as it was.
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
    let ahead = (needed + length / AHEAD).next_multiple_of(page);
    let Some((added, column)) = map_behind(end, needed, ahead) else { return false };
    // SAFETY: what was just mapped, which nobody knows of.
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

/// How much is mapped at `at`, and on which pages; `None`: something else is there, or nothing to be had.
fn map_behind(at: usize, needed: usize, ahead: usize) -> Option<(usize, Column)> {
    for length in [ahead, needed] {
        match source::map_hugetlb_at(at, length) {
            Ok(()) => return Some((length, Column::Hugetlb)),
            Err(Reason::Kernel) => return None,
            Err(why) => counters::because(why),
        }
    }
    if executor::fall_back(settings::get().fallback, needed) == Fallback::Error {
        return None;
    }
    raw::map_at(at, needed, raw::READ_WRITE, 0)?;
    Some((needed, Column::FellBack))
}

/// Makes malloc's own count of mapped bytes (`mallinfo2`) as much larger: `free` takes off what an object's
/// header says. So one is allocated with as much more than is then freed of it.
unsafe fn count_as_mapped(added: usize) -> bool {
    // More than what moves a threshold when it is freed.
    const FREED: usize = MAX_MAPPED_FROM + (1 << 20);
    let Some(size) = added.checked_add(FREED) else { return false };
    // SAFETY: an object of our own, which nobody else sees.
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

/// Puts a fresh object on the pool where nothing is behind it; `None`: it is as it was.
unsafe fn move_apart(chunk: Chunk) -> Option<*mut c_void> {
    // SAFETY: the contract of `grow`.
    let (start, length) = unsafe { chunk.mapping() }?;
    if start + HEADER != chunk.memory || !length.is_multiple_of(sizes::superpage()) {
        return None;
    }
    let at = place_with_space(length)?;
    source::map_hugetlb_at(at, length).ok()?;
    // SAFETY: the header is all that has been written. malloc keeps no list of its mappings.
    unsafe {
        (at as *mut [usize; 2]).write(*(start as *const [usize; 2]));
        let _ = raw::munmap(start, length);
    }
    enter(at, at + length);
    Some((at + HEADER) as *mut c_void)
}

/// The highest place with [`SPACE`] behind it: what the kernel places comes to lie above, from the top.
fn place_with_space(length: usize) -> Option<usize> {
    let page = sizes::superpage();
    let needed = length.checked_add(SPACE)?;
    let (mut end, mut found) = (0, None);
    maps::each(|vma| {
        // The kernel's own page lies where no program can map anything.
        if vma.start.cast_signed() >= 0 && vma.start.saturating_sub(end) >= needed + page {
            found = Some((vma.start - needed) / page * page);
        }
        end = vma.end;
    })?;
    found
}

/// An object of `size` bytes where one is that has as many: what it no longer needs goes back if that is
/// more than it may have ahead.
///
/// # Safety
/// As `realloc` in C.
pub unsafe fn shrink(old: Chunk, size: usize) -> *mut c_void {
    let same = old.memory as *mut c_void;
    // SAFETY: the contract.
    let Some((start, length)) = (unsafe { old.mapping() }) else { return same };
    let (end, page) = (start + length, sizes::superpage());
    let kept = (old.memory + size).next_multiple_of(page);
    // The kernel rounds lengths up to superpages if the first page is one.
    let is_exact = !start.is_multiple_of(page) || end.is_multiple_of(page);
    if !is_exact || end.saturating_sub(kept) <= 2 * length / AHEAD {
        return same;
    }
    let memory = mapping::undisturbed(kept, end, || {
        if in_place::is_asked() {
            // Else the file would keep it.
            // SAFETY: nothing behind `kept` is needed.
            let _ = unsafe { in_place::discard(kept, end) };
            in_place::forget(end - kept);
        }
        // SAFETY: the contract.
        let memory = unsafe { next::realloc(same, kept - old.memory - HEADER) };
        if memory == same {
            counters::count(Kind::Heap, Column::Returned, end - kept);
            table::remove(kept, end);
        }
        memory
    });
    if memory.is_null() { same } else { memory }
}
