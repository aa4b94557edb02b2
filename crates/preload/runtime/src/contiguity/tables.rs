//! Page tables before the first touch, where superpages of a smaller size (mTHP) were asked for and larger ones are
//! on as well: the kernel tries the largest only where there is no page table yet (`__handle_mm_fault`, mm/memory.c).
//!
//! A read brings the table and the page of zeroes; that one is given back, and the table stays, because
//! less than its whole range was discarded. What is not kept so: khugepaged may make larger ones later, and so may a
//! touch after the program has discarded memory with its table (Linux 6.14 and later).
//!
//! # Safety
//! Only base pages are discarded that are not there, of memory that nobody else uses yet: it was mapped just now, or there
//! is one thread and nothing was touched.
//! See docs/decisions/contiguity.md#4 and docs/decisions/contiguity.md#5.

use super::machine;
use crate::executor::advice;
use crate::{filter, pagemap, raw};

/// Makes page tables for `[start, start + length)` if a smaller size was requested and larger ones are enabled.
/// `false`: larger superpages would come, so those are not advised. The memory is new except for resident pages.
pub fn make_if_larger(start: usize, length: usize) -> bool {
    machine::larger_thp().is_none_or(|largest| make(start, length, largest))
}

/// Makes page tables for `[start, start + length)`, one for each `largest` superpage; takes back no other advice.
pub fn make(start: usize, length: usize, largest: usize) -> bool {
    let page = raw::base_page();
    if filter::may_be_in_place() {
        return false; // that takes calls that it may not know
    }
    // Tables take a 512th of the memory: not for more than there is.
    if length < page || length > machine::total() || !make_one(start + length - page) {
        return false;
    }
    // Reading advised memory would bring a superpage of zeroes.
    if !advice::base_pages(start, length) {
        return false;
    }
    let mut at = start;
    while at < start + length {
        if !make_one(at) {
            return false;
        }
        at = (at + 1).next_multiple_of(largest);
    }
    true
}

fn make_one(at: usize) -> bool {
    let page = raw::base_page();
    // What is paged out is not resident, and has contents.
    pagemap::is_resident(at) == Some(true)
        || !pagemap::is_untouched(at, page)
        // SAFETY: as the module says.
        || unsafe {
            raw::madvise(at, page, libc::MADV_POPULATE_READ)
                .and_then(|()| raw::madvise(at, page, libc::MADV_DONTNEED))
                .is_ok()
        }
}
