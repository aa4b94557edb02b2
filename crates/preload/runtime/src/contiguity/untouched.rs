//! Discards base pages that are resident only because another part of their superpage was touched.
//!
//! # Safety
//! Zero-filled pages are discarded while no thread can write to them, and read as zeroes again. See
//! docs/decisions/prepare.md#5.

use std::ffi::c_int;

use advisor::Action;
use advisor::Event;

use super::machine;
use crate::pagemap::{self, PAGE_IS_HUGE, PAGE_IS_PRESENT, Region};
use crate::settings::{self, Pages};
use crate::write_protect::{self, WriteProtect};
use crate::{executor, maps, raw};

/// Discards the base pages of private anonymous memory in `[start, end)` that are in superpages and hold only zeroes.
/// Call for a program whose userfaultfd handler must see faults on missing pages. Pages to which the program wrote
/// zeroes are discarded too, and the handler sees their faults.
///
/// Does nothing before Linux 6.7, which does not tell superpages from base pages (`PAGEMAP_SCAN`), or if other threads
/// cannot be blocked: the pages stay.
pub fn release(start: usize, end: usize) {
    if start >= end || matches!(settings::get().pages, Pages::None) {
        return;
    }
    let facts = executor::facts(start, end - start, machine::superpage());
    if executor::decide(Event::Shown, &facts) != Action::Release {
        return;
    }
    pagemap::with(|fd| {
        maps::each(|vma| {
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            let is_readable = vma.protection() & libc::PROT_READ != 0;
            if from < to && is_readable && vma.is_private() && vma.file == (0, 0) {
                release_of_mapping(fd, from, to);
            }
        })
    });
}

fn release_of_mapping(fd: c_int, start: usize, end: usize) -> Option<()> {
    // The kernel does not report superpages of smaller sizes.
    let wanted = match settings::get().pages {
        Pages::Thp(size) if size != 0 => PAGE_IS_PRESENT,
        _ => PAGE_IS_PRESENT | PAGE_IS_HUGE,
    };
    let mut from = start as u64;
    while from < end as u64 {
        let mut regions = [Region::default(); 16];
        let (count, walked) = pagemap::scan(fd, from, end as u64, wanted, &mut regions).ok()?;
        for region in &regions[..count] {
            release_zeroes(region.start as usize, region.end as usize)?;
        }
        from = walked.max(from + 1);
    }
    Some(())
}

/// Discards zero-filled pages of a present range. `None`: other threads cannot be blocked, or the kernel refuses.
fn release_zeroes(start: usize, end: usize) -> Option<()> {
    let guard = if write_protect::has_one_thread() { None } else { Some(WriteProtect::new()?) };
    if guard.as_ref().is_some_and(|guard| !guard.protect(start, end - start)) {
        return None;
    }
    let base = raw::base_page();
    let mut at = start;
    while at < end {
        // SAFETY: a readable mapping.
        let is_zero = |page: &usize| unsafe { raw::is_zero(*page, base) };
        let zeroes = (at..end).step_by(base).take_while(is_zero).count();
        if zeroes > 0 {
            // SAFETY: no thread writes, and the range reads as zeroes before and after.
            unsafe { raw::madvise(at, zeroes * base, libc::MADV_DONTNEED) }.ok()?;
        }
        at += (zeroes + 1) * base;
    }
    Some(())
}
