//! Advice about superpages, given where there is contiguous memory to follow it.
use crate::ledger::{self, Column, Kind, Reason};
use crate::raw;

/// Advises `[start, start + length)`; how many bytes are.
pub fn advise(kind: Kind, start: usize, length: usize) -> usize {
    // SAFETY: advice changes no contents.
    if unsafe { raw::madvise(start, length, libc::MADV_HUGEPAGE) }.is_ok() {
        ledger::count(kind, Column::Advised, length);
        length
    } else {
        ledger::because(Reason::ThpOff);
        ledger::count(kind, Column::FellBack, length);
        0
    }
}
