//! Makes page tables before the first touch, if a smaller superpage size (mTHP) was requested and larger ones are
//! enabled, too. The kernel tries the largest size only where there is no page table yet (`__handle_mm_fault`,
//! mm/memory.c).
//!
//! A read maps the zero page and its page table; the zero page is discarded, and the table stays, because less than its
//! whole range was discarded. This does not prevent larger superpages from khugepaged, or from a touch after the
//! program has discarded memory with its page table (Linux 6.14 and later).
//!
//! # Safety
//! Only base pages that were not present are discarded, of memory that no other code uses yet: it was just mapped, or
//! there is one thread and nothing was touched.
//! See docs/decisions/contiguity.md#4 and docs/decisions/contiguity.md#5.

use super::machine;
use crate::executor::advice;
use crate::{filter, pagemap, raw};

/// Makes page tables for `[start, start + length)` if a smaller size was requested and larger ones are enabled.
/// `false`: advice would map larger superpages, so the range must not be advised. The memory is new except for resident
/// pages.
pub fn make_if_larger(start: usize, length: usize) -> bool {
    machine::larger_thp().is_none_or(|largest| make(start, length, largest))
}

/// Makes page tables for `[start, start + length)`, one for each `largest` superpage. Sets MADV_NOHUGEPAGE.
pub fn make(start: usize, length: usize, largest: usize) -> bool {
    let page = raw::base_page();
    if filter::may_be_in_place() {
        return false; // a filter may not permit these calls
    }
    // Tables take 1/512 of the memory. Make none for more memory than the machine has.
    if length < page || length > machine::total() || !make_one(start + length - page) {
        return false;
    }
    // Reading advised memory would map the huge zero page.
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
    // Swapped-out pages are not resident, but have contents.
    pagemap::is_resident(at) == Some(true)
        || !pagemap::is_untouched(at, page)
        // SAFETY: see "Safety" of this module.
        || unsafe {
            raw::madvise(at, page, libc::MADV_POPULATE_READ)
                .and_then(|()| raw::madvise(at, page, libc::MADV_DONTNEED))
                .is_ok()
        }
}
