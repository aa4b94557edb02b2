//! What conditions know beforehand: the prices of superpages, and a profile of the program.

use alloc::vec::Vec;

use units::ByteSize;

/// What `benefit` and `cost` are made of (CBMM's constants by default).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Cycles that a TLB miss takes.
    pub miss_cycles: u64,
    /// Cycles that preparing a superpage takes, if it is not zeroed yet.
    pub prepare_cycles: u64,
    /// Cycles that getting one takes where none is free.
    pub shortage_cycles: u64,
}

/// Where a program misses the TLB: of spans of its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// By address, none over another. What lies in none has no misses.
    pub spans: Vec<Span>,
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
