//! `Kind`: what a look-up needs to know about a page size, in one cache line. Also the tags of
//! entries.

use machine::{Machine, SIZES, Size};

use super::Placement;

/// What a look-up needs to know about a page size.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Kind {
    /// log2 of the number of base pages per TLB entry.
    pub(super) shift: u32,
    /// The top bits of the tags of this size.
    pub(super) mark: u32,
    /// Where the first level has entries of this size.
    pub(super) first: Placement,
    /// Where the second level has entries of this size.
    pub(super) second: Placement,
    /// Page-table level of the leaf entry; 0 for base pages.
    pub(super) leaf: u8,
    /// Number of page-table entries that a walk reads without walk caches.
    pub(super) full_walk: u8,
    /// Size of the TLB entries. Smaller than the page if the TLB cannot hold pages of this size.
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

/// The top bits of the tags of a size. Base page numbers have 31 bits, and numbers of larger pages
/// fewer, so these bits are free. Tags of different sizes differ, and none is `EMPTY`.
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
