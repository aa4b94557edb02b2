//! Putting superpages under memory in use, in place.
//!
//! # Safety
//! As the module: one thread. What is copied does not change before the copy takes its place,
//! because the only code that runs is ours, and our own memory is not among it.
//! See docs/decisions/segments.md#2.

use policy::live::{self, Event, Facts};
use policy::{Action, How};

use super::image::Extent;
use crate::counters::Reason;
use crate::executor::{self, advice};
use crate::table::{self, Range};
use crate::{api, files, pagemap, raw, sizes, source};

/// Pool pages under `[first, last)`: from a mount of hugetlbfs if there is one and `in_mount` asks
/// for it, as libhugetlbfs had them, whose users look for the mount's path in /proc.
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
    // If the table has no room the program's calls about parts of these pages fail, as the kernel
    // has it; nothing else is lost.
    table::add(Range { start: first, end: last, page, shared: false });
    Ok(())
}

/// Transparent superpages under `[first, last)`.
pub fn to_thp(extent: &Extent, first: usize, last: usize, page: usize) -> Result<(), Reason> {
    // What is bss throughout stays the memory it is. Where a superpage holds data too, or sticks
    // out of the extent, a fresh one takes its place.
    let copied_to = extent.file_end.next_multiple_of(page).clamp(first, last);
    let inside = extent.end - extent.end % page;
    let advised_to = inside.clamp(copied_to, last);
    for (kind, start, end) in [
        (live::Kind::Segment, first, copied_to),
        (live::Kind::Segment, advised_to, last),
        (live::Kind::Bss, copied_to, advised_to),
    ] {
        if start < end {
            let part = Part { extent, page, start, end, advised: (start, end) };
            part.provide(kind, true).1?;
        }
    }
    Ok(())
}

/// The file's own superpages under `[first, last)` of code, as far as the kernel has some or makes them;
/// how many bytes have them, or will when they are first read.
///
/// What is not cached yet is read in superpages then, where the filesystem has large folios (ext4, XFS,
/// tmpfs). What is cached in small pages stays so, unless MADV_COLLAPSE can change it (tmpfs, or
/// `CONFIG_READ_ONLY_THP_FOR_FS`): other processes use them too, so they are never dropped. The whole mapping
/// is advised, so that it stays one: a program may look for its code in /proc/self/maps.
pub fn to_file(extent: &Extent, first: usize, last: usize, page: usize) -> usize {
    let advised = (extent.start, extent.end);
    let part = Part { extent, page, start: first, end: last, advised };
    part.provide(live::Kind::Segment, false).0
}

/// Part of an extent that is to lie on superpages, and what is advised for that.
struct Part<'a> {
    extent: &'a Extent,
    page: usize,
    start: usize,
    end: usize,
    advised: (usize, usize),
}

impl Part<'_> {
    /// Runs the policy's loop for one segment. Returns the bytes on superpages, and the first refusal.
    fn provide(&self, kind: live::Kind, may_copy: bool) -> (usize, Result<(), Reason>) {
        let (start, end) = self.advised;
        let extent = self.extent;
        let is_whole = sizes::pmd_size() == Some(self.page);
        let facts = &mut Facts {
            kind,
            may_copy,
            // MADV_COLLAPSE would not mind (6.18).
            is_off: files::is_thp_off(),
            has_file: is_whole && !extent.is_written && extent.is_congruent,
            ..executor::facts(start, end - start, self.page)
        };
        let (mut why, mut on) = (Reason::ThpOff, 0);
        let action = executor::ask(Event::Loaded, facts, |action, facts| {
            let is_done = match action {
                Action::Advise { bytes, .. } => advice::superpages(start, bytes as usize),
                Action::MakeSuperpage { how: How::Collapse, .. } => {
                    on = self.collapse(facts);
                    on == self.end - self.start
                }
                Action::MakeSuperpage { .. } => {
                    let copied = to_copy(extent, self.start, self.end, self.page);
                    copied.inspect_err(|reason| why = *reason).is_ok()
                }
                _ => return None,
            };
            Some((executor::done_if(is_done), 0))
        });
        (on, if action == Action::Nothing { Ok(()) } else { Err(why) })
    }

    /// Superpages of what is there, or of the file; the bytes that lie on some, or will when they are touched. What the
    /// file has not in memory is read now if the choice is between that and a copy.
    fn collapse(&self, facts: &Facts) -> usize {
        let page = self.page;
        let is_on = |at: &usize| match facts.kind {
            live::Kind::Bss => pagemap::is_untouched(*at, page) || advice::collapse(*at, page),
            _ => !facts.may_copy && !is_cached(*at) || is_file_huge(*at, page),
        };
        (self.start..self.end).step_by(page).filter(is_on).count() * page
    }
}

/// Whether the kernel has the file's page that is mapped at `at` in memory. It says so only to who may
/// write the file or owns it, and to others that it has.
fn is_cached(at: usize) -> bool {
    pagemap::is_resident(at) != Some(false)
}

/// Whether the file's own superpage is, or can be, mapped at `at`. It serves better than a copy:
/// nothing is copied, all processes share it, and profilers see the file's name.
///
/// The kernel can make one of any file that is not being written (`CONFIG_READ_ONLY_THP_FOR_FS`,
/// by MADV_COLLAPSE), or finds it made where a filesystem with large folios had the file read
/// in such pieces.
fn is_file_huge(at: usize, page: usize) -> bool {
    // SAFETY: a readable byte of the mapping.
    let _ = unsafe { std::ptr::read_volatile(at as *const u8) };
    pagemap::is_huge(at, at + page) || advice::collapse(at, page)
}

/// Copies `[first, last)` into anonymous memory on superpages, which then takes its place. If there
/// are none to be had, nothing changes: base pages of our own would be worse than the file's.
fn to_copy(extent: &Extent, first: usize, last: usize, page: usize) -> Result<(), Reason> {
    let (length, file_end) = (last - first, extent.file_end);
    source::replace_by_copy(first, length, page, extent.protection, file_end, |fresh| {
        copy(extent, first, last, page, fresh);
        is_collapsed(fresh, last - first, page)
    })
}

/// Whether all that is there lies on superpages: the faults made them, or the kernel makes them now.
/// A kernel that cannot be told to (before 6.1) is believed.
fn is_collapsed(start: usize, length: usize, page: usize) -> bool {
    // Where nothing is it fails, and nothing is wrong.
    let is_on = |at| advice::collapse(at, page) || pagemap::is_untouched(at, page);
    !advice::collapse(start, 0) || (start..start + length).step_by(page).all(is_on)
}

/// Copies what is in the part of the extent at `[first, last)` to `fresh`, which is zero: all that
/// is a file's, and of anonymous memory what was touched.
pub fn copy(extent: &Extent, first: usize, last: usize, page: usize, fresh: usize) {
    let (from, to) = (first.max(extent.start), last.min(extent.end));
    let file_end = extent.file_end.clamp(from, to);
    copy_range(from, file_end, first, fresh);
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

/// Whether `fresh` holds what the extent does between `first` and `last`, as [`copy`] would have left it.
pub fn holds(extent: &Extent, (first, last): (usize, usize), fresh: usize) -> bool {
    let (from, to) = (first.max(extent.start), last.min(extent.end));
    // SAFETY: a readable part of the extent, and a readable mapping of that length.
    unsafe {
        let own = std::slice::from_raw_parts(from as *const u8, to - from);
        own == std::slice::from_raw_parts((fresh + (from - first)) as *const u8, to - from)
    }
}
