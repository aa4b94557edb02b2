//! How far threads' arenas need no look: a limit for each 64 MiB of address space that an arena grows in.
//!
//! # Safety
//! Atomics only.
//! See docs/decisions/heap.md#2.

use std::sync::atomic::AtomicUsize;

/// `HEAP_MAX_SIZE`: what a thread's arena grows in, aligned to its size.
pub const SPAN: usize = 64 << 20;
/// How often an arena that is not backed is looked at.
pub const STEP: usize = 2 << 20;

/// What lies below needs no look, by the number of a span: of that one of several spans which came first. 0: of none.
static THREADS: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];

/// The limit of the span that holds `address`.
#[inline(always)]
pub fn slot(address: usize) -> &'static AtomicUsize {
    &THREADS[address / SPAN % THREADS.len()]
}

/// Whether what ends at `end` needs no look, as the slot of its span has it. Spans whose numbers are 1024 apart have the same
/// slot: of those that came later none is looked at, or each would be taken for a new one whenever it follows another.
#[inline(always)]
pub fn is_below(limit: usize, end: usize) -> bool {
    // A limit may be its span's end.
    end <= limit || limit != 0 && (limit - 1) / SPAN != end / SPAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_share_a_slot_do_not_take_it_from_each_other() {
        let (first, apart) = (5 * SPAN, THREADS.len() * SPAN);
        assert!(std::ptr::eq(slot(first), slot(first + apart)));
        for other in [first + apart, first + 3 * apart] {
            for limit in [first + 1, first + STEP, first + SPAN - STEP, first + SPAN] {
                assert!(is_below(limit, other + STEP), "{limit:#x}: below it");
                assert!(is_below(other + limit - first, first + STEP), "{limit:#x}: above it");
                // Its own.
                assert!(is_below(limit, limit) && is_below(limit, first + 1));
                assert!(limit == first + SPAN || !is_below(limit, limit + 1));
            }
        }
        assert!(!is_below(0, first + 1), "nobody's yet");
    }
}
