//! Appending accesses and runs to a block, in any order. See docs/decisions/lab.md#4.

use std::ops::Range;

use trace::{Access, BLOCK, Block, Page};

use super::space::{Area, PAGE};

#[inline]
pub(crate) fn access(page: Page, writes: bool) -> Access {
    if writes { Access::write(page) } else { Access::read(page) }
}

/// Appends accesses to a block. A block without runs has no counts and is faster to read.
pub(crate) trait Emit {
    /// Adds one access.
    fn access(&mut self, access: Access);
    /// Adds `count` consecutive accesses to one page; none if `count` is 0.
    fn run(&mut self, access: Access, count: u32);
    /// Adds accesses to the bytes `range` of an area, one per `unit` bytes.
    fn bytes(&mut self, area: Area, range: Range<u64>, unit: u64, writes: bool);
    /// Whether the block is full and should be returned.
    fn is_full(&self) -> bool;
    /// Whether the block has counts. A step without runs is faster with a block without counts.
    fn has_counts(&self) -> bool;
}

impl Emit for Block {
    #[inline]
    fn access(&mut self, access: Access) {
        self.accesses.push(access);
        if !self.counts.is_empty() {
            self.counts.push(1);
        }
    }

    #[inline]
    fn run(&mut self, access: Access, count: u32) {
        if count == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.counts.resize(self.accesses.len(), 1);
        }
        self.accesses.push(access);
        self.counts.push(count);
    }

    #[inline]
    fn bytes(&mut self, area: Area, range: Range<u64>, unit: u64, writes: bool) {
        let mut start = range.start;
        while start < range.end {
            let end = ((start / PAGE + 1) * PAGE).min(range.end);
            self.run(access(area.page(start / PAGE), writes), (end - start).div_ceil(unit) as u32);
            start = end;
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.accesses.len() + self.events.len() >= BLOCK
    }

    #[inline]
    fn has_counts(&self) -> bool {
        !self.counts.is_empty()
    }
}
