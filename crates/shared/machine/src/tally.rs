//! What a TLB counted. The engine takes the difference of two tallies and has
//! [`crate::Machine::walk_cycles`] turn it into cycles.

use std::ops::{AddAssign, Sub};

use crate::{SIZES, Size};

/// Where a look-up found its translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In the first-level TLB.
    L1,
    /// In the second-level TLB.
    L2,
    /// Nowhere: the page table was walked.
    Walk,
}

/// The most page-table entries that one walk reads, and one more: the length of a row by entries read.
pub const READS: usize = 6;

/// Counts since the TLB was made. `perf`'s names for them stand with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Look-ups, by the size of the page.
    pub lookups: [u64; SIZES],
    /// Look-ups that the second level answered (`dtlb_load_misses.stlb_hit`), by size.
    pub l2_hits: [u64; SIZES],
    /// Walks (`dtlb_load_misses.walk_completed`), by size and by the number of page-table entries
    /// that were read: what the page-walk caches held is not read. Index 0 is unused.
    pub walks: [[u64; READS]; SIZES],
    /// Walks whose last entry lay in a cache line that a walk had read shortly before, by size: one
    /// line holds eight entries, so seven of eight walks of a sequential pass are near.
    pub near: [u64; SIZES],
}

impl Tally {
    /// All look-ups.
    pub fn total(&self) -> u64 {
        self.lookups.iter().sum()
    }
    /// All walks.
    pub fn all_walks(&self) -> u64 {
        Size::ALL.iter().map(|&size| self.walks_of(size)).sum()
    }
    /// Walks for pages of one size.
    pub fn walks_of(&self, size: Size) -> u64 {
        self.walks[size as usize].iter().sum()
    }
    /// Look-ups that the second level answered.
    pub fn all_l2_hits(&self) -> u64 {
        self.l2_hits.iter().sum()
    }
    /// Look-ups that the first level answered.
    pub fn l1_hits(&self) -> u64 {
        self.total() - self.all_l2_hits() - self.all_walks()
    }
    /// Page-table entries read by all walks.
    pub fn reads(&self) -> u64 {
        let rows = self.walks.iter().flat_map(|row| row.iter().enumerate());
        rows.map(|(reads, walks)| reads as u64 * walks).sum()
    }
}

impl Sub for Tally {
    type Output = Self;

    /// What was counted between an earlier tally and this one.
    fn sub(mut self, earlier: Self) -> Self {
        for s in 0..SIZES {
            self.lookups[s] -= earlier.lookups[s];
            self.l2_hits[s] -= earlier.l2_hits[s];
            self.near[s] -= earlier.near[s];
            for r in 0..READS {
                self.walks[s][r] -= earlier.walks[s][r];
            }
        }
        self
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for s in 0..SIZES {
            self.lookups[s] += other.lookups[s];
            self.l2_hits[s] += other.l2_hits[s];
            self.near[s] += other.near[s];
            for r in 0..READS {
                self.walks[s][r] += other.walks[s][r];
            }
        }
    }
}
