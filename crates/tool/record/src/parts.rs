//! Parts of a process's memory for `space`: kinds of mappings, numbered regions, and the slots of a range within a
//! region. Pure.

use trace::SLOTS;

/// The kind of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Private anonymous memory.
    Anonymous,
    /// The heap.
    Heap,
    /// Shared memory, with the number of the object and an offset in pages.
    Shared(u64, u64),
    /// A private file mapping, or a read-only shared one.
    File(u64),
}

/// Access rights of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Rights {
    /// No access.
    None,
    /// Readable or executable.
    Read,
    /// Writable.
    Write,
}

/// A region with a number in the trace.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Region number in the address space.
    pub address: u64,
    /// Region number in the trace.
    pub number: u32,
    /// One bit per mapped page.
    pub mapped: [u64; 8],
}

impl Placed {
    /// Whether the page in `slot` is mapped.
    #[inline]
    pub fn is_mapped(&self, slot: u32) -> bool {
        self.mapped[(slot / 64) as usize] >> (slot % 64) & 1 == 1
    }
}

impl Kind {
    /// Whether memory of both kinds can be in one mapping.
    pub fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared(..), Self::Shared(..)) => true,
            _ => self == other,
        }
    }

    /// The kind of a mapping's part that starts `pages` pages after the mapping.
    pub fn from(self, pages: u64) -> Self {
        match self {
            Self::Shared(object, offset) => Self::Shared(object, offset + pages),
            other => other,
        }
    }
}

/// The slots of `region` inside a range of pages: the first, and one past the last.
pub fn slots(region: u64, begin: u64, end: u64) -> (u32, u32) {
    let first = region * u64::from(SLOTS);
    let slot = |page: u64| (page.clamp(first, first + u64::from(SLOTS)) - first) as u32;
    (slot(begin), slot(end))
}

/// Calls `what` for every 64-slot word of `region` that overlaps the range, with the index of the word and a mask of
/// the slots.
pub fn each_bit(region: u64, begin: u64, end: u64, mut what: impl FnMut(usize, u64)) {
    let (mut slot, stop) = slots(region, begin, end);
    while slot < stop {
        let next = stop.min((slot | 63) + 1);
        what((slot / 64) as usize, u64::MAX >> (64 - (next - slot)) << (slot % 64));
        slot = next;
    }
}
