//! What conditions know beforehand: the prices of superpages, and a profile of the program.

use alloc::vec::Vec;

use units::ByteSize;

use crate::rules::table::{CYCLES, rules};

rules! {
    /// What `benefit` and `cost` are made of (by default CBMM's, mm/estimator.c:
    /// mm_estimate_huge_page_promote_cost_benefit).
    #[derive(Copy, Eq)]
    pub struct Estimate {
        /// Cycles that a TLB miss takes.
        miss_cycles: u64 = 50, "miss-cycles", CYCLES;
        /// Cycles that preparing a superpage takes, if it is not zeroed yet.
        prepare_cycles: u64 = 100 * 2000, "prepare-cycles", CYCLES;
        /// Cycles that getting one takes where none is free.
        shortage_cycles: u64 = 1 << 32, "shortage-cycles", CYCLES;
    }

    /// Where a program misses the TLB: of spans of its memory.
    #[derive(Eq)]
    pub struct Profile {
        /// By address, none over another. What lies in none has no misses.
        spans: Vec<Span> = Vec::new(), "spans";
    }
}

/// A span of a program's memory. Offsets are from the beginning of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub from: ByteSize,
    /// The byte after its last one.
    pub to: ByteSize,
    /// TLB misses of each superpage's worth of it in a unit of time. CBMM's unit is 10 s (MM_ECON_LTU).
    pub misses: u64,
}

impl Profile {
    /// The misses of a superpage's worth of memory at an offset.
    pub fn at(&self, offset: u64) -> u64 {
        let after = self.spans.partition_point(|span| span.from.bytes() <= offset);
        let span = after.checked_sub(1).map(|last| self.spans[last]);
        span.filter(|span| offset < span.to.bytes()).map_or(0, |span| span.misses)
    }
}
