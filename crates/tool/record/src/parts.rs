//! What a process's memory is made of, for `space` alone: kinds of mappings, numbered regions, and the pages
//! of a range within a region. Pure.

use trace::SLOTS;

/// What a mapping is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Private anonymous memory.
    Anonymous,
    /// The heap.
    Heap,
    /// Shared memory: whose, and how many pages from its begin.
    Shared(u64, u64),
    /// A file of which nobody sees what is written here.
    File(u64),
}

/// What may be done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Rights {
    /// Nothing.
    None,
    /// It is read (or executed).
    Read,
    /// It is written.
    Write,
}

/// A region that has a number.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Its number in the address space.
    pub address: u64,
    /// Its number in the stream.
    pub number: u32,
    /// One bit for each page that is mapped.
    pub mapped: [u64; 8],
}

impl Placed {
    /// Whether a page is mapped.
    #[inline]
    pub fn is_mapped(&self, slot: u32) -> bool {
        self.mapped[(slot / 64) as usize] >> (slot % 64) & 1 == 1
    }
}

impl Kind {
    /// Whether both may be of one mapping.
    pub fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared(..), Self::Shared(..)) => true,
            _ => self == other,
        }
    }

    /// The same, `pages` further on.
    pub fn from(self, pages: u64) -> Self {
        match self {
            Self::Shared(object, offset) => Self::Shared(object, offset + pages),
            other => other,
        }
    }
}

/// The slots of `region` that lie in a range of pages: the first, and one more than the last.
pub fn slots(region: u64, begin: u64, end: u64) -> (u32, u32) {
    let first = region * u64::from(SLOTS);
    let slot = |page: u64| (page.clamp(first, first + u64::from(SLOTS)) - first) as u32;
    (slot(begin), slot(end))
}

/// Calls `what` for every 64 slots of `region` of which some lie in a range: which 64, and which of them.
pub fn each_bit(region: u64, begin: u64, end: u64, mut what: impl FnMut(usize, u64)) {
    let (mut slot, stop) = slots(region, begin, end);
    while slot < stop {
        let next = stop.min((slot | 63) + 1);
        what((slot / 64) as usize, u64::MAX >> (64 - (next - slot)) << (slot % 64));
        slot = next;
    }
}
