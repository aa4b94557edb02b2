//! How steps write into a block: single accesses and runs, mixed freely.

use trace::{Access, BLOCK, Block};

/// Writing to a block. A block without runs keeps its counts empty, which readers like best.
pub(crate) trait Emit {
    /// Adds one access.
    fn one(&mut self, access: Access);
    /// Adds `count` accesses in a row; none if `count` is 0.
    fn run(&mut self, access: Access, count: u32);
    /// Whether the block should be handed over.
    fn is_full(&self) -> bool;
    /// Whether it holds accesses that have counts, so that a step without runs would be slowed.
    fn has_counts(&self) -> bool;
}

impl Emit for Block {
    #[inline]
    fn one(&mut self, access: Access) {
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
    fn is_full(&self) -> bool {
        self.accesses.len() + self.events.len() >= BLOCK
    }

    #[inline]
    fn has_counts(&self) -> bool {
        !self.counts.is_empty()
    }
}
