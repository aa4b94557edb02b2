//! The simulated machine's physical memory: frames, their owners, and how contiguity is recovered.
//!
//! A **pageblock** is 512 frames (Linux' name; Gorman's arena). Buddies merge at once, so the buddy
//! allocator's state *is* the set of free frames: a pageblock keeps a bitmap of its free frames and
//! which orders it has free blocks of, and per mobility and order a tree of bits over the
//! pageblocks finds the lowest. Allocation is address-ordered: the smallest order that suffices, and of
//! it the lowest address. Linux' lists are last-in-first-out, so there a frame that was just freed is
//! handed out again first (and is warm in the cache), and the history of frees decides which pageblocks
//! get mixed. Here low addresses fill up first, so memory is somewhat less scattered than Linux' after the same
//! history, and everything is deterministic.
//!
//! A pageblock costs 16 bytes (its record and its bits in the trees), 88 more while it is partly free (its bitmap and
//! counts), and 4 per frame that was in use by others than the kernel at boot.
//!
//! | file | what it owns |
//! |---|---|
//! | `layout` | machine shapes and layouts of memory; users of parts and owners of frames |
//! | `runs` | aligned runs of free frames, sets of pageblocks, fallback to another mobility type |
//! | `zone` | one zone's buddy allocator, and its zeroed free memory |
//! | `physical` | [`Memory`]: zones, owners, the calls of the system |
//! | `compaction` | migrating pages so that large blocks become free |
//! | `reclaim` | pages given up when memory is short; what compaction and reclaim ask of frame users |
//! | `statistics` | /proc/buddyinfo, the fragmentation indices and the watermarks |
//!
//! See docs/decisions/lab.md#2.

pub mod compaction;
mod layout;
mod physical;
mod reclaim;
mod runs;
mod statistics;
mod verify;
mod zone;

pub use layout::Owner;
pub use layout::PartUse;
pub use layout::{Claiming, NodeShape, Shape};
pub use layout::{Layout, LayoutError, Nodes, ParseNodesError};
pub use physical::{Allocated, Memory};
pub use reclaim::{Eviction, Residents};
pub use reclaim::{Reclaimed, lumpy, reclaim};
pub use statistics::{BuddyInfo, Level, Watermarks};
pub use zone::ZoneKind;

#[cfg(test)]
mod tests;

/// The largest order of a free block: two pageblocks (Linux' `MAX_PAGE_ORDER` on x86-64).
pub const MAX_ORDER: u8 = 10;
/// The order of a pageblock, and of a superpage (Linux' `pageblock_order` on x86-64).
pub const PAGEBLOCK_ORDER: u8 = 9;
/// Frames in a pageblock.
pub const PAGEBLOCK: u32 = 1 << PAGEBLOCK_ORDER;
/// Bytes of a frame in a [`Shape`]. A machine with larger base pages has a correspondingly smaller shape;
/// watermarks, which Linux computes from kilobytes, are then those of the smaller memory.
pub const FRAME_BYTES: u64 = 4096;

/// A page frame's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// The first frame of this frame's pageblock.
    pub const fn pageblock(self) -> Self {
        Self(self.0 & !(PAGEBLOCK - 1))
    }
    /// Index in the pageblock, 0 to 511.
    pub const fn slot(self) -> u32 {
        self.0 & (PAGEBLOCK - 1)
    }
}

/// Mobility of a page (Gorman and Healy, ISMM 2008; Linux' migrate types).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mobility {
    /// Migratable: memory of programs, page cache.
    Movable,
    /// Not migratable, but reclaimable: caches of the kernel.
    Reclaimable,
    /// Neither migratable nor reclaimable.
    Unmovable,
}

impl Mobility {
    /// All mobilities.
    pub const ALL: [Self; 3] = [Self::Movable, Self::Reclaimable, Self::Unmovable];

    /// Index in tables by mobility.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
