//! Puts superpages under memory in use, in place.
//!
//! # Safety
//! As in the parent module, the process has one thread. Memory being copied does not change before the copy replaces
//! it, because only our code runs, and our own memory is not moved.
//! See docs/decisions/segments.md#2.

use advisor::Action;
use advisor::{Event, Facts};

use super::image::Extent;
use crate::counters::Reason;
use crate::executor::{self, advice};
use crate::table::{self, Range};
use crate::{api, files, pagemap, raw, sizes, source};

/// Puts pool pages under `[first, last)`. With `in_mount` they come from a hugetlbfs mount, if there is one: users of
/// libhugetlbfs look for the mount's path in /proc.
pub fn to_hugetlb(
    extent: &Extent,
    (first, last): (usize, usize),
    page: usize,
    in_mount: bool,
) -> Result<(), Reason> {
    let length = last - first;
    let file = if in_mount { api::unlinked_in_mount(page) } else { None };
    let fresh = match file {
        Some(fd) => {
            let fresh = source::map_hugetlb_file(fd, length, raw::READ_WRITE);
            raw::close(fd);
            fresh?
        }
        None => source::map_hugetlb_of(page, length, raw::READ_WRITE, libc::MAP_PRIVATE)?,
    };
    copy(extent, first, last, page, fresh);
    source::replace(fresh, length, extent.protection, first)?;
    // If the table cannot grow, the program's calls on parts of these pages get the kernel's errors; nothing else is
    // lost.
    table::add(Range { start: first, end: last, page, shared: false });
    Ok(())
}

/// Puts transparent superpages under `[first, last)`.
pub fn to_thp(extent: &Extent, first: usize, last: usize, page: usize) -> Result<(), Reason> {
    // Superpages with only bss stay in place. A superpage that also holds data, or extends beyond the extent, is
    // replaced by a fresh one.
    let copied_to = extent.file_end.next_multiple_of(page).clamp(first, last);
    let inside = extent.end - extent.end % page;
    let advised_to = inside.clamp(copied_to, last);
    for (kind, start, end) in [
        (advisor::Kind::Segment, first, copied_to),
        (advisor::Kind::Segment, advised_to, last),
        (advisor::Kind::Bss, copied_to, advised_to),
    ] {
        if start < end {
            let part = Part { extent, page, start, end, advised: (start, end) };
            part.provide(kind, true).1?;
        }
    }
    Ok(())
}

/// Puts code in `[first, last)` on its file's superpages, as far as the kernel has or makes superpages; returns the
/// bytes that have superpages, or will get them when first read.
///
/// Parts not cached yet will be read in superpages, if the file system has large folios (ext4, XFS, tmpfs). Parts
/// cached in small pages stay so, unless MADV_COLLAPSE can change that (see `mapping::file`). The whole mapping is
/// advised, so that it stays one VMA: a program may look for its code in /proc/self/maps.
pub fn to_file(extent: &Extent, first: usize, last: usize, page: usize) -> usize {
    let advised = (extent.start, extent.end);
    let part = Part { extent, page, start: first, end: last, advised };
    part.provide(advisor::Kind::Segment, false).0
}

/// Part of an extent to put on superpages, and the range to advise.
struct Part<'a> {
    extent: &'a Extent,
    page: usize,
    start: usize,
    end: usize,
    advised: (usize, usize),
}

impl Part<'_> {
    /// Runs the advisor for one part. Returns the bytes on superpages, and the first refusal.
    fn provide(&self, kind: advisor::Kind, may_copy: bool) -> (usize, Result<(), Reason>) {
        let (start, end) = self.advised;
        let extent = self.extent;
        let is_whole = sizes::pmd_size() == Some(self.page);
        let facts = &mut Facts {
            kind,
            may_copy,
            // MADV_COLLAPSE would ignore the setting (Linux 6.18).
            is_off: files::is_thp_off(),
            has_file: is_whole && !extent.is_written && extent.is_congruent,
            ..executor::facts(start, end - start, self.page)
        };
        let (mut why, mut on) = (Reason::ThpOff, 0);
        let action = executor::run_advisor(Event::Loaded, facts, |action, facts| {
            let is_done = match action {
                Action::Advise { bytes, .. } => advice::superpages(start, bytes as usize),
                Action::Collapse { .. } => {
                    on = self.collapse(facts);
                    on == self.end - self.start
                }
                Action::Copy { .. } => {
                    let copied = to_copy(extent, self.start, self.end, self.page);
                    copied.inspect_err(|reason| why = *reason).is_ok()
                }
                _ => return None,
            };
            Some((executor::done_if(is_done), 0))
        });
        (on, if action == Action::Nothing { Ok(()) } else { Err(why) })
    }

    /// Collapses resident pages, or the file's; returns the bytes on superpages, now or once they are touched. Reads
    /// file pages that are not cached if the alternative is a copy.
    fn collapse(&self, facts: &Facts) -> usize {
        let page = self.page;
        let is_on = |at: &usize| match facts.kind {
            advisor::Kind::Bss => pagemap::is_untouched(*at, page) || advice::collapse(*at, page),
            _ => !facts.may_copy && !is_cached(*at) || is_file_huge(*at, page),
        };
        (self.start..self.end).step_by(page).filter(is_on).count() * page
    }
}

/// Whether the page cache has the file's page that is mapped at `at`. To processes that neither own the file nor may
/// write it, mincore(2) reports every page as cached.
fn is_cached(at: usize) -> bool {
    pagemap::is_resident(at) != Some(false)
}

/// Whether the file's own superpage is, or can be, mapped at `at`. A file's superpage is better than a copy: nothing is
/// copied, all processes share it, and profilers see the file's name.
///
/// MADV_COLLAPSE can make a superpage for any file that is not open for writing (`CONFIG_READ_ONLY_THP_FOR_FS`). There
/// is one already if a file system with large folios read the file in such units.
fn is_file_huge(at: usize, page: usize) -> bool {
    // SAFETY: a readable byte of the mapping.
    let _ = unsafe { std::ptr::read_volatile(at as *const u8) };
    pagemap::is_huge(at, at + page) || advice::collapse(at, page)
}

/// Replaces `[first, last)` by a copy on anonymous superpages. If there are no superpages, nothing changes: private
/// base pages would be worse than the file's.
fn to_copy(extent: &Extent, first: usize, last: usize, page: usize) -> Result<(), Reason> {
    let (length, file_end) = (last - first, extent.file_end);
    source::replace_by_copy(first, length, page, extent.protection, file_end, |fresh| {
        copy(extent, first, last, page, fresh);
        is_collapsed(fresh, last - first, page)
    })
}

/// Collapses resident parts that lie on no superpages yet; returns whether all of them now do. Returns `true` if the
/// kernel has no MADV_COLLAPSE (before 6.1).
fn is_collapsed(start: usize, length: usize, page: usize) -> bool {
    // MADV_COLLAPSE fails where nothing is resident, which is not an error.
    let is_on = |at| advice::collapse(at, page) || pagemap::is_untouched(at, page);
    !advice::collapse(start, 0) || (start..start + length).step_by(page).all(is_on)
}

/// Copies the part of the extent in `[first, last)` to `fresh`, which is zero: all pages of a file, and touched pages
/// of anonymous memory.
///
/// Code and constants are as in the file (the caller checked), so each superpage's original is unmapped once it is
/// copied. Otherwise the process would have all of it twice until the copy takes its place, and its peak would say so.
pub fn copy(extent: &Extent, first: usize, last: usize, page: usize, fresh: usize) {
    let (from, to) = (first.max(extent.start), last.min(extent.end));
    let file_end = extent.file_end.clamp(from, to);
    for at in (first..file_end).step_by(page) {
        let (at, end) = (at.max(from), (at + page).min(file_end));
        copy_range(at, end, first, fresh);
        if !extent.is_written {
            // SAFETY: clean pages of a file; the next access maps them again. The kernel refuses locked ones.
            let _ = unsafe { raw::madvise(at, end - at, libc::MADV_DONTNEED) };
        }
    }
    let mut at = file_end;
    while at < to {
        let next = (at + 1).next_multiple_of(page).min(to);
        if !pagemap::is_untouched(at, next - at) {
            copy_touched(at, next, first, fresh);
        }
        at = next;
    }
}

fn copy_touched(from: usize, to: usize, first: usize, fresh: usize) {
    for at in (from..to).step_by(raw::base_page()) {
        if !pagemap::is_untouched(at, raw::base_page()) {
            copy_range(at, at + raw::base_page(), first, fresh);
        }
    }
}

fn copy_range(from: usize, to: usize, first: usize, fresh: usize) {
    // SAFETY: a readable part of the extent, and as much memory of ours.
    unsafe {
        let target = (fresh + (from - first)) as *mut u8;
        std::ptr::copy_nonoverlapping(from as *const u8, target, to - from);
    }
}

/// Whether `fresh` has the same contents as the extent between `first` and `last`, as after [`copy`].
pub fn holds(extent: &Extent, (first, last): (usize, usize), fresh: usize) -> bool {
    let (from, to) = (first.max(extent.start), last.min(extent.end));
    // SAFETY: a readable part of the extent, and a readable mapping of that length.
    unsafe {
        let own = std::slice::from_raw_parts(from as *const u8, to - from);
        own == std::slice::from_raw_parts((fresh + (from - first)) as *const u8, to - from)
    }
}
