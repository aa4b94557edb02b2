//! Counts of a TLB. [`crate::Machine::walk_cycles`] converts the difference of two tallies to cycles.

use std::ops::{AddAssign, Sub};

use crate::{SIZES, Size};

/// Where a look-up hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In the first-level TLB.
    L1,
    /// In the second-level TLB.
    L2,
    /// In no TLB: a page walk.
    Walk,
}

/// Length of an array indexed by the number of page-table entries that one walk reads (at most 5).
pub const READS: usize = 6;

/// Counts since the creation of the TLB, with the corresponding `perf` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Look-ups, by page size.
    pub lookups: [u64; SIZES],
    /// Second-level hits (`dtlb_load_misses.stlb_hit`), by page size.
    pub l2_hits: [u64; SIZES],
    /// Walks (`dtlb_load_misses.walk_completed`), by page size and by the number of page-table entries read, excluding
    /// entries found in page-walk caches. Index 0 is unused.
    pub walks: [[u64; READS]; SIZES],
    /// Near walks by page size: the leaf entry is in a cache line that an earlier walk read recently. A line holds
    /// eight entries, so seven of eight walks of a sequential pass are near.
    pub near: [u64; SIZES],
}

impl Tally {
    /// Number of look-ups.
    pub fn total(&self) -> u64 {
        self.lookups.iter().sum()
    }
    /// Number of walks.
    pub fn all_walks(&self) -> u64 {
        Size::ALL.iter().map(|&size| self.walks_of(size)).sum()
    }
    /// Number of walks for pages of one size.
    pub fn walks_of(&self, size: Size) -> u64 {
        self.walks[size as usize].iter().sum()
    }
    /// The walks for base pages alone.
    pub fn of_base(&self) -> Self {
        let mut base = Self { walks: self.walks, near: self.near, ..Self::default() };
        for size in [Size::Large, Size::Huge] {
            base.walks[size as usize] = [0; READS];
            base.near[size as usize] = 0;
        }
        base
    }
    /// Number of second-level hits.
    pub fn all_l2_hits(&self) -> u64 {
        self.l2_hits.iter().sum()
    }
    /// Number of first-level hits.
    pub fn l1_hits(&self) -> u64 {
        self.total() - self.all_l2_hits() - self.all_walks()
    }
    /// Number of page-table entries read by all walks.
    pub fn reads(&self) -> u64 {
        let rows = self.walks.iter().flat_map(|row| row.iter().enumerate());
        rows.map(|(reads, walks)| reads as u64 * walks).sum()
    }
}

impl Sub for Tally {
    type Output = Self;

    /// Returns the counts since an earlier tally.
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
