//! `Near`: which lines of leaf entries walks read shortly before. Both TLBs have one.

use machine::Size;

/// Lines that are remembered: half of a first-level data cache of 32 KiB, the rest being data.
const LINES: usize = 256;

/// A direct-mapped memory of lines of leaf entries.
#[derive(Debug, Clone)]
pub(crate) struct Near(Box<[u32; LINES]>);

impl Default for Near {
    fn default() -> Self {
        Self(Box::new([u32::MAX; LINES]))
    }
}

impl Near {
    /// Notes that the leaf entry of `page` was read; whether its line was there.
    #[inline(always)]
    pub(crate) fn read(&mut self, page: u32, size: Size) -> bool {
        // Eight entries to a line. The size is in the top bits: a line of one level is none of another.
        let leaf = match size {
            Size::Base | Size::Cont => 0,
            Size::Large => 9,
            Size::Huge => 18,
        };
        let line = page >> (leaf + 3) | leaf << 27;
        // By a Fibonacci hash: arrays of a program are often powers of two apart.
        let slot = &mut self.0[(line.wrapping_mul(0x9e37_79b9) >> 24) as usize];
        let near = *slot == line;
        *slot = line;
        near
    }
}
