//! What fragments the memory before a workload runs.
//!
//! Fragmenters are programs too: they map, touch and unmap, so any design carries them out and the
//! memory ends up as that design leaves it. Because Frag-L looks at the free memory after each step,
//! a [`Fragmenter`] is asked step by step with the [`PhysicalMemoryView`] it stands on; what no program can do
//! (frames that the kernel itself holds) it asks of the memory.

mod artifact;
mod free_blocks;
mod holes;
mod level;
mod machine;
mod pinned;

#[cfg(test)]
mod tests;

pub use artifact::{Artifact, Scale};
pub use free_blocks::{FreeBlocks, FreeLists, ORDERS};
pub use holes::Holes;
pub use level::{FragmentError, Fragmentation, Place};
pub use machine::Machine;
pub use pinned::Pinned;

pub use crate::memory::Mobility;

use trace::Block;

/// The physical memory under a fragmenter.
pub trait PhysicalMemoryView {
    /// Superpage-sized, aligned blocks of the machine.
    fn blocks(&self) -> u64;
    /// Superpages that could be allocated now: order 9 + 2 x order 10 of buddyinfo, as the artifact
    /// counts, or what the design's allocator has for the same question.
    fn free_superpages(&self) -> u64;
    /// Free frames.
    fn free_frames(&self) -> u64;
    /// Whether nothing of a block is used.
    fn is_whole(&self, block: u64) -> bool;
    /// Takes those of the frames `from..to` of a block that are free, for the kernel, for good; none that cannot be moved
    /// where only movable pages may be. Yields how many it took.
    fn occupy(&mut self, block: u64, from: u16, to: u16, mobility: Mobility) -> u64;
}

/// A program that fragments memory.
pub trait Fragmenter: Send {
    /// Replaces `block` by the program's next piece, which is to be carried out before the next call.
    /// `false`: it is done (and holds what it has), and the block is empty.
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool;

    /// How many regions it numbers, from its first on. The workload begins behind them.
    fn regions(&self) -> u32 {
        0
    }

    /// How many processes it numbers.
    fn processes(&self) -> u32 {
        0
    }
}
