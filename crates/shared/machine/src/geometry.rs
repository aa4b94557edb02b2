//! The shapes of TLBs and page-walk caches: entries, ways, which page sizes they hold.

use crate::{SIZES, Size};

/// A set-associative array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Entries in all.
    pub entries: u16,
    /// Entries of one set; as many as `entries`: fully associative.
    pub ways: u16,
}

impl Array {
    /// Its sets.
    pub const fn sets(self) -> u16 {
        self.entries / self.ways
    }
}

/// How a set is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Index {
    /// The page's number modulo the sets.
    #[default]
    Modulo,
    /// The exclusive or of the two lowest groups of as many bits as number the sets, of which there
    /// must be a power of two (Skylake's L2: Gras et al., TLBleed, USENIX Security 2018).
    Xor,
}

/// Which entry of a full set is evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used.
    #[default]
    Lru,
    /// By a tree of bits, each pointing away from the half used last; the ways must be a power of two.
    TreePlru,
}

/// One TLB array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlb {
    /// Its shape.
    pub array: Array,
    /// The page sizes it holds, by [`Size`].
    pub holds: [bool; SIZES],
    /// How a set is chosen.
    pub index: Index,
    /// Which entry is evicted.
    pub replacement: Replacement,
    /// Cycles that a hit here costs beyond a hit in the first level (0 there).
    pub cycles: u16,
}

impl Tlb {
    /// The bytes its entries translate, all of them of one size.
    pub const fn reach(&self, size: Size, base_page: u64) -> u64 {
        self.array.entries as u64 * (base_page << size.shift())
    }
    /// The set of the page number `number`, counted in pages of its own size.
    pub const fn set(&self, number: u32) -> u32 {
        let sets = self.array.sets() as u32;
        match self.index {
            Index::Modulo => number % sets,
            Index::Xor => (number ^ number >> sets.trailing_zeros()) & (sets - 1),
        }
    }
}

/// The caches of upper page-table entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkCaches {
    /// Of entries that point to a page table: one for each region.
    pub pde: Option<Array>,
    /// Of entries one level up: one for each 512 regions.
    pub pdpte: Option<Array>,
    /// Of entries one more level up.
    pub pml4e: Option<Array>,
}
