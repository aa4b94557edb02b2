//! `Near`: remembers which cache lines of leaf entries recent walks read. Both TLB types have one.

use machine::Size;

/// Number of lines remembered: half of a 32 KiB first-level data cache; data fill the other half.
const LINES: usize = 256;

/// A direct-mapped cache of the numbers of lines of leaf entries.
#[derive(Debug, Clone)]
pub(crate) struct Near(Box<[u32; LINES]>);

impl Default for Near {
    fn default() -> Self {
        Self(Box::new([u32::MAX; LINES]))
    }
}

impl Near {
    /// Records a read of the leaf entry of `page`; returns whether its line was remembered.
    #[inline(always)]
    pub(crate) fn read(&mut self, page: u32, size: Size) -> bool {
        // A line has eight entries. The top bits hold the level, so lines of different levels differ.
        let leaf = match size {
            Size::Base | Size::Cont => 0,
            Size::Large => 9,
            Size::Huge => 18,
        };
        let line = page >> (leaf + 3) | leaf << 27;
        // Use a Fibonacci hash, because a program's arrays are often powers of two apart.
        let slot = &mut self.0[(line.wrapping_mul(0x9e37_79b9) >> 24) as usize];
        let near = *slot == line;
        *slot = line;
        near
    }
}
