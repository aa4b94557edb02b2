//! What compaction and reclaim ask of those who use frames. The system implements it.

use super::{Frame, Owner};

/// Those who use frames: page tables, the page cache, pins.
///
/// The memory itself frees the old frame and sets owners; an implementation changes its own records.
/// It must not call the memory back.
pub trait Residents {
    /// A page is migrated; its mapping must follow. `false`: it cannot be moved now (it is locked or
    /// pinned); nothing changes.
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool;

    /// Whether it was referenced since it was last asked; the mark is cleared.
    fn referenced(&mut self, owner: Owner, frame: Frame) -> bool;

    /// It is to be evicted: unmapped, and written out if it must be.
    fn evicted(&mut self, owner: Owner, frame: Frame) -> Eviction;
}

/// What became of a page that was to be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// It was dropped: its contents are in a file, or nobody wants them.
    Freed,
    /// It was written to swap and dropped.
    Swapped,
    /// It stays: there is no swap, or it is locked.
    Refused,
}
