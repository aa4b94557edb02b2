//! Limits of threads' arenas below which allocations need no check: one limit for each 64 MiB that an arena grows in.
//!
//! # Safety
//! Atomics only.
//! See docs/decisions/heap.md#2.

use std::sync::atomic::AtomicUsize;

/// `HEAP_MAX_SIZE`: size and alignment of the area in which a thread's arena grows.
pub const SPAN: usize = 64 << 20;
/// Interval between checks of an arena that is not backed, in bytes of growth.
pub const STEP: usize = 2 << 20;

/// Direct-mapped cache of limits, indexed by span number mod 1024; the first span to claim a slot keeps it. 0:
/// empty.
static THREADS: [AtomicUsize; 1024] = [const { AtomicUsize::new(0) }; 1024];

/// The limit of the span that holds `address`.
#[inline(always)]
pub fn slot(address: usize) -> &'static AtomicUsize {
    &THREADS[address / SPAN % THREADS.len()]
}

/// Whether memory that ends at `end` is below its span's limit. Spans 1024 apart share a slot. Only the first is
/// checked; otherwise each would replace the other's limit.
#[inline(always)]
pub fn is_below(limit: usize, end: usize) -> bool {
    // A limit may equal the end of its span.
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
                // The limit of the span itself.
                assert!(is_below(limit, limit) && is_below(limit, first + 1));
                assert!(limit == first + SPAN || !is_below(limit, limit + 1));
            }
        }
        assert!(!is_below(0, first + 1), "nobody's yet");
    }
}
