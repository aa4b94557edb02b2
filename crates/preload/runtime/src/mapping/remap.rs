//! `mremap(2)`: resizing and moving mappings.
//!
//! The kernel cannot enlarge a hugetlb mapping, and moves one incorrectly: it miscalculates the target where page
//! tables are missing. So memory is demoted before it is enlarged or moved. Memory that only shrinks stays.
//!
//! A program may see one mapping where the kernel has several VMAs: copies of superpages keep the `vm_pgoff` of the
//! address where they were made, and parts with and without advice for THP do not merge. The kernel enlarges only one
//! VMA at a time (`EFAULT`), so these parts are moved one by one. At VMA borders that the program made, the kernel's
//! error stands.
//!
//! # Safety
//! As the system call.
//! See docs/decisions/contiguity.md#2.

use std::ffi::{c_int, c_void};

use libc::size_t;

use super::demote::{self, Scope};
use super::parts::{self, first_make_ordinary, is_valid, round_up, unmap};
use crate::contiguity::{self, Grown};
use crate::counters::Kind;
use crate::raw::{self, Errno};
use crate::settings;
use crate::table::{self, Entry, Range};
use crate::{copies, executor, filter, maps, pagemap, prepare, sizes, source};

/// `void *mremap(void *old, size_t old_size, size_t new_size, int flags, ... void *new)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mremap(
    old: *mut c_void,
    old_size: size_t,
    new_size: size_t,
    flags: c_int,
    target: *mut c_void,
) -> *mut c_void {
    // Without MREMAP_FIXED libc takes no fifth argument, and its register may hold anything.
    let target = if flags & libc::MREMAP_FIXED != 0 { target as usize } else { 0 };
    let call = Call { start: old as usize, old_size, new_size, flags, target };
    // SAFETY: the caller keeps this function's contract.
    raw::not_cancelled(|| raw::answer_address(unsafe { call.serve() }))
}

/// Arguments of `mremap(2)`.
#[derive(Clone, Copy)]
struct Call {
    start: usize,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: usize,
}

impl Call {
    fn end(&self) -> usize {
        round_up(self.start, self.old_size)
    }

    fn is_fixed(&self) -> bool {
        self.flags & libc::MREMAP_FIXED != 0
    }

    unsafe fn serve(self) -> Result<usize, Errno> {
        let target_end = round_up(self.target, self.new_size);
        prepare::changed(self.start, self.end());
        let old = self.end().saturating_sub(self.start);
        let advised = contiguity::rejoin(self.start, old);
        if self.is_fixed() {
            prepare::changed(self.target, target_end);
            prepare::release_range(self.target, target_end);
        }
        // With an `old_size` of 0 (shared memory mapped a second time) the range is empty: look up one byte.
        let around = self.end().max(self.start.saturating_add(1));
        let is_valid = self.start.is_multiple_of(raw::base_page()) && self.new_size > 0;
        let may_move = |entry: &Entry| !entry.is_ordinary || entry.range.shared;
        let entry = table::first_entry(self.start, around, may_move).filter(|_| is_valid);
        if let Some(entry) = entry {
            if self.only_shrinks() {
                // SAFETY: the caller keeps this function's contract.
                return unsafe { self.shrink() };
            }
            // Shared memory can be mapped a second time, with an `old_size` of 0; private memory in files, which the
            // kernel takes for shared, cannot.
            if !entry.range.shared && self.old_size == 0 {
                return Err(libc::EINVAL);
            }
            demote::make_ordinary(self.start, around, Scope::Covered)?;
        }
        if self.is_fixed() {
            // The kernel moves one VMA after the other to the target, and cannot unmap part of a superpage there.
            first_make_ordinary(self.target, target_end, Scope::Covered)?;
        }
        // Look this up before the move: afterwards another thread may map memory there.
        let is_divided = is_divided(self.start, self.end());
        // SAFETY: the caller keeps this function's contract.
        let plain = || unsafe { self.move_away() };
        let result = if self.is_fixed() {
            parts::replacing(self.target, target_end, plain)
        } else {
            plain()
        };
        if result.is_ok() {
            copies::forget(self.start, self.end());
        }
        let result = match result {
            Err(libc::EFAULT) if self.may_be_in_parts(is_divided) => {
                // SAFETY: as above.
                let moved = unsafe { self.move_parts() };
                if moved.is_ok() && self.is_fixed() {
                    table::remove(self.target, target_end);
                }
                moved
            }
            result => result,
        };
        let length = round_up(0, self.new_size);
        if let Ok(start) = result
            && length > old
            && self.may_be_advised()
        {
            contiguity::grown(Kind::Mmap, &Grown { start, length, old, advised });
        }
        if let Ok(place) = result
            && is_divided
            && place != self.start
        {
            // The borders of VMAs moved with the memory.
            let (start, end) = (place, place + round_up(0, self.new_size));
            let page = raw::base_page();
            table::add_ordinary(Range { start, end, page, shared: false }, (start, end));
        }
        result
    }

    /// Passes the call to the kernel; if the memory moved, removes its old range from the table.
    unsafe fn move_away(self) -> Result<usize, Errno> {
        let moved =
            |place: &usize| *place != self.start && self.flags & libc::MREMAP_DONTUNMAP == 0;
        // SAFETY: the caller keeps this function's contract.
        table::replacing_if(self.start, self.end(), moved, || unsafe { self.plain() })
    }

    /// Passes the call to the kernel unchanged.
    unsafe fn plain(self) -> Result<usize, Errno> {
        let Self { start, old_size, new_size, flags, target } = self;
        raw::keeping_errno(|| {
            // SAFETY: the caller keeps this function's contract.
            let moved = unsafe { raw::call!(SYS_mremap, start, old_size, new_size, flags, target) };
            if moved == -1 { Err(raw::errno()) } else { Ok(moved as usize) }
        })
    }

    fn only_shrinks(&self) -> bool {
        let stays = self.flags & !libc::MREMAP_MAYMOVE == 0;
        stays && self.old_size > 0 && round_up(self.start, self.new_size) <= self.end()
    }

    /// Shrinks by munmap: the kernel's mremap would round the sizes up to superpages.
    unsafe fn shrink(self) -> Result<usize, Errno> {
        let from = round_up(self.start, self.new_size);
        if pagemap::is_resident(self.start).is_none() {
            return Err(libc::EFAULT);
        }
        if from < self.end() {
            // SAFETY: the caller gives the end up.
            unsafe { unmap(from, self.end() - from) }?;
        }
        Ok(self.start)
    }

    /// Whether borders of VMAs that this library made may be the cause of the kernel's error.
    fn may_be_in_parts(&self, is_divided: bool) -> bool {
        // Under a filter the maps cannot be read.
        let is_ours = is_divided || !filter::is_set() && self.may_be_advised();
        let known = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        is_ours && self.flags & !known == 0 && is_valid(self.start, self.end()) && self.new_size > 0
    }

    fn may_be_advised(&self) -> bool {
        executor::advises() && settings::get().memory.mmap
    }

    /// Moves all VMAs of one mapping of the program.
    unsafe fn move_parts(self) -> Result<usize, Errno> {
        let length = self.end() - self.start;
        let new_length = round_up(0, self.new_size);
        let last = self.last_part().ok_or(libc::EFAULT)?;
        let added = new_length.saturating_sub(length);
        // SAFETY: the caller keeps this function's contract throughout.
        unsafe {
            if new_length < length {
                let (from, rest) = (self.start + new_length, length - new_length);
                unmap(from, rest)?;
                return Self { old_size: new_length, ..self }.serve();
            }
            if self.target == 0 && self.flags & libc::MREMAP_DONTUNMAP == 0 {
                // Grow in place, if the space behind is free.
                let (old_size, new_size) = (self.end() - last, self.end() - last + added);
                let call = Self { start: last, old_size, new_size, flags: 0, target: 0 };
                let grown = call.plain();
                if grown.is_ok() || self.flags & libc::MREMAP_MAYMOVE == 0 {
                    return grown.map(|_| self.start);
                }
            }
            let place = if self.is_fixed() {
                self.target
            } else {
                let page = sizes::superpage();
                source::reserve(
                    new_length,
                    if new_length < page { raw::base_page() } else { page },
                )?
            };
            let mut at = self.start;
            let moved = loop {
                let Some((_, end)) = part_at(at, self.end()) else { break Err(libc::EFAULT) };
                let part = end - at;
                let grown = part + if end == self.end() { added } else { 0 };
                let keeps = self.flags & libc::MREMAP_DONTUNMAP;
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | keeps;
                let target = place + (at - self.start);
                let call = Self { start: at, old_size: part, new_size: grown, flags, target };
                if let Err(errno) = call.move_away() {
                    break Err(errno);
                }
                at = end;
                if at == self.end() {
                    break Ok(place);
                }
            };
            if moved.is_err() {
                self.move_back(place, at);
                if !self.is_fixed() {
                    let _ = raw::munmap(place, new_length);
                }
            }
            moved
        }
    }

    /// Moves the parts before `end` back.
    unsafe fn move_back(&self, place: usize, end: usize) {
        let (from, to) = (place, place + (end - self.start));
        let mut at = from;
        while let Some((_, end)) = part_at(at, to).filter(|_| at < to) {
            let (start, length) = (self.start + (at - from), end - at);
            // SAFETY: restores the old mapping; nothing else was mapped there, or the old one was left
            // (MREMAP_DONTUNMAP).
            let _ = unsafe { raw::move_to(at, length, start) };
            let (end, page) = (start + length, raw::base_page());
            table::add_ordinary(Range { start, end, page, shared: false }, (start, end));
            at = end;
        }
    }

    /// Start of the last part, if the program may have mapped all parts as one: private anonymous memory without gaps,
    /// equal except for advice for THP, and divided by this library.
    ///
    /// Includes advised memory that was only read. A read gives such memory an `anon_vma`
    /// (`do_huge_pmd_anonymous_page`, mm/huge_memory.c); other memory gets one when it is written. Two VMAs that each
    /// have an `anon_vma` do not merge.
    fn last_part(&self) -> Option<usize> {
        if filter::is_set() {
            let mut last = self.start;
            while let Some((_, end)) =
                part_at(last, self.end()).filter(|(_, end)| *end < self.end())
            {
                last = end;
            }
            return Some(last);
        }
        let (mut at, mut last, mut first) = (self.start, self.start, None);
        let (mut is_one, mut before) = (true, None);
        maps::each_with_marks(|vma, marks, state| {
            if vma.end <= self.start || vma.start >= self.end() {
                return;
            }
            let alike = (vma.flags, marks);
            is_one &= vma.start <= at && *first.get_or_insert(alike) == alike;
            is_one &= vma.is_private() && vma.file == (0, 0);
            if let Some(before) = before.replace(state) {
                let was_only_read = !(before.was_changed && state.was_changed)
                    && before.is_accounted == state.is_accounted;
                is_one &= before.is_advised != state.is_advised
                    || before.is_advised && was_only_read
                    || is_divided(vma.start - 1, vma.start + 1);
            }
            last = vma.start.max(self.start);
            at = vma.end;
        })?;
        (is_one && at >= self.end()).then_some(last)
    }
}

/// Whether private memory of `[from, to)` was demoted.
fn is_divided(from: usize, to: usize) -> bool {
    table::first_entry(from, to, |entry| entry.is_ordinary && !entry.range.shared).is_some()
}

/// The part of `[at, end)` in the VMA at `at`; under a filter, up to the next border in the table.
fn part_at(at: usize, end: usize) -> Option<(usize, usize)> {
    if filter::is_set() {
        let is_made = |entry: &Entry| entry.is_ordinary && !entry.range.shared;
        let next = table::first_entry(at, end, is_made).map_or(end, |entry| match entry.range {
            Range { start, end, .. } if start <= at => end,
            Range { start, .. } => start,
        });
        return Some((at, next.min(end)));
    }
    maps::at(at).map(|vma| (at, vma.end.min(end)))
}
