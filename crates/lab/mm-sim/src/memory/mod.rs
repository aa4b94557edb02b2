//! The simulated machine's physical memory: frames, their owners, and compaction.
//!
//! A **pageblock** is 512 frames (Linux' name; Gorman calls it an arena). Buddies merge at once, so the set of free
//! frames *is* the buddy allocator's state. A pageblock stores a bitmap of its free frames and the orders of its free
//! blocks. Per mobility and order, a tree of bits over the pageblocks finds the lowest one. Allocation is
//! address-ordered: it takes the smallest sufficient order, and of that order the lowest address. Linux' lists are
//! last-in-first-out: a freed frame is allocated again first (while warm in the cache), and the history of frees
//! decides which pageblocks become mixed. Here low addresses fill up first. So memory is deterministic, and somewhat
//! less scattered than Linux' after the same history.
//!
//! A pageblock costs 16 bytes (its record and its bits in the trees). A partly free one costs 88 bytes more (bitmap and
//! counts). Each frame that was ever used, except by the kernel at boot, costs 4 bytes.
//!
//! | file | what it owns |
//! |---|---|
//! | `layout` | machine shapes and layouts of memory; users of parts and owners of frames |
//! | `runs` | aligned runs of free frames, sets of pageblocks, fallback to another mobility type |
//! | `zone` | one zone's buddy allocator, and its zeroed free memory |
//! | `physical` | [`Memory`]: zones, owners, the calls of the system |
//! | `compaction` | migrating pages so that large blocks become free |
//! | `reclaim` | page reclaim; the trait through which compaction and reclaim call the users of frames |
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
/// Bytes of a frame in a [`Shape`]. A machine with larger base pages gets a proportionally smaller shape. Its
/// watermarks, which Linux computes from kilobytes, are those of the smaller memory.
pub const FRAME_BYTES: u64 = 4096;

/// A page frame's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame(pub u32);

impl Frame {
    /// Returns the first frame of this frame's pageblock.
    pub const fn pageblock(self) -> Self {
        Self(self.0 & !(PAGEBLOCK - 1))
    }
    /// Returns the frame's index in its pageblock, 0 to 511.
    pub const fn slot(self) -> u32 {
        self.0 & (PAGEBLOCK - 1)
    }
}

/// Mobility of a page (Gorman and Healy, ISMM 2008; Linux' migrate types).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mobility {
    /// Migratable: memory of programs, page cache.
    Movable,
    /// Not migratable but reclaimable: caches of the kernel.
    Reclaimable,
    /// Neither migratable nor reclaimable.
    Unmovable,
}

impl Mobility {
    /// All mobilities.
    pub const ALL: [Self; 3] = [Self::Movable, Self::Reclaimable, Self::Unmovable];

    /// Returns the index in tables by mobility.
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
