//! What a look-up must know of a page's size, side by side in one cache line; and tags.

use machine::{Machine, SIZES, Size};

use super::Placement;

/// What a look-up must know of a page's size.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Kind {
    /// log2 of an entry's base pages.
    pub(super) shift: u32,
    /// The top bits of its tags.
    pub(super) mark: u32,
    /// Where its entries are in the first level.
    pub(super) first: Placement,
    /// And in the second.
    pub(super) second: Placement,
    /// The page-table level of its leaf, 0 for base pages.
    pub(super) leaf: u8,
    /// Entries that a walk reads without walk caches.
    pub(super) full_walk: u8,
    /// The size of its entries: smaller than its own where the first level has no larger.
    pub(super) entry: Size,
}

impl Kind {
    pub(super) fn new(
        machine: &Machine,
        size: Size,
        first: &[Placement; SIZES],
        second: &[Placement; SIZES],
    ) -> Self {
        let entry = machine.entry_size(size);
        Self {
            shift: entry.shift(),
            mark: mark(entry),
            first: first[entry as usize],
            second: second[entry as usize],
            leaf: match size {
                Size::Base | Size::Cont => 0,
                Size::Large => 1,
                Size::Huge => 2,
            },
            full_walk: machine.full_walk(size),
            entry,
        }
    }
}

/// The top bits of tags: pages have 31 bits, so each size's numbers leave enough of them free, and
/// no tag of one size is one of another, nor all ones.
const fn mark(size: Size) -> u32 {
    match size {
        Size::Base => 0,
        Size::Large => 0b100 << 29,
        Size::Huge => 0b101 << 29,
        Size::Cont => 0b110 << 29,
    }
}

/// The tag of the entry that translates page `number`, counted in pages of this size.
pub(super) const fn tag(number: u32, size: Size) -> u32 {
    number | mark(size)
}
