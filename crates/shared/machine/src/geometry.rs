//! Geometry of TLBs and page-walk caches: entries, ways, page sizes.

use crate::{SIZES, Size};

/// A set-associative array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Total number of entries.
    pub entries: u16,
    /// Associativity: the number of ways. Equal to `entries` if fully associative.
    pub ways: u16,
}

impl Array {
    /// Number of sets.
    pub const fn sets(self) -> u16 {
        self.entries / self.ways
    }
}

/// How a page number selects a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Index {
    /// Page number modulo the number of sets.
    #[default]
    Modulo,
    /// Exclusive or of the two lowest groups of index bits; the number of sets must be a power of two (Skylake's L2:
    /// Gras et al., TLBleed, USENIX Security 2018).
    Xor,
}

/// Replacement policy of a set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replacement {
    /// Least recently used.
    #[default]
    Lru,
    /// Tree-PLRU; the number of ways must be a power of two.
    TreePlru,
}

/// One TLB array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlb {
    /// Its geometry.
    pub array: Array,
    /// For each [`Size`], whether the array holds translations of pages of that size.
    pub holds: [bool; SIZES],
    /// How a page number selects a set.
    pub index: Index,
    /// Replacement policy.
    pub replacement: Replacement,
    /// Cycles that a hit costs more than a first-level hit (0 for the first level).
    pub cycles: u16,
}

impl Tlb {
    /// Number of bytes that the array can translate if all entries hold pages of one size.
    pub const fn reach(&self, size: Size, base_page: u64) -> u64 {
        self.array.entries as u64 * (base_page << size.shift())
    }
    /// Index of the set for page number `number`, counted in pages of the page's own size.
    pub const fn set(&self, number: u32) -> u32 {
        let sets = self.array.sets() as u32;
        match self.index {
            Index::Modulo => number % sets,
            Index::Xor => (number ^ number >> sets.trailing_zeros()) & (sets - 1),
        }
    }
}

/// Page-walk caches: caches of upper page-table entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkCaches {
    /// Cache of entries that point to a leaf table: one per region.
    pub pde: Option<Array>,
    /// Cache of entries one level higher: one per 512 regions.
    pub pdpte: Option<Array>,
    /// Cache of entries two levels higher.
    pub pml4e: Option<Array>,
}
