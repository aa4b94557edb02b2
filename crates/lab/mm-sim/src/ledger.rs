//! Where the cycles of a run went: one account per cause.

use std::ops::{AddAssign, Index};

use serde::{Deserialize, Serialize};

/// What cycles were spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program's own work, with the data's cache misses.
    Work,
    /// Waiting for the second-level TLB.
    SecondTlb,
    /// Waiting for page walks of base pages.
    WalkBase,
    /// Waiting for page walks of superpages, of any size.
    WalkLarge,
    /// Traps and the kernel's path of a fault, without what follows.
    Fault,
    /// Zeroing.
    Zero,
    /// Copying: collapsing base pages into a superpage, copy on write.
    Copy,
    /// Compaction: scanning and migrating.
    Compact,
    /// Reclaim: scanning, writing, reading back.
    Reclaim,
    /// Shootdowns of TLB entries.
    Shootdown,
    /// Waiting for locks.
    Lock,
    /// Making, splitting and removing mappings.
    Map,
    /// A daemon looking for work: page-table scans, sampling, queues.
    Scan,
    /// Reading file pages.
    Read,
}

impl Cause {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 14] = [
        Self::Work,
        Self::SecondTlb,
        Self::WalkBase,
        Self::WalkLarge,
        Self::Fault,
        Self::Zero,
        Self::Copy,
        Self::Compact,
        Self::Reclaim,
        Self::Shootdown,
        Self::Lock,
        Self::Map,
        Self::Scan,
        Self::Read,
    ];

    /// Its name in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::SecondTlb => "second-tlb",
            Self::WalkBase => "walk-base",
            Self::WalkLarge => "walk-large",
            Self::Fault => "fault",
            Self::Zero => "zero",
            Self::Copy => "copy",
            Self::Compact => "compact",
            Self::Reclaim => "reclaim",
            Self::Shootdown => "shootdown",
            Self::Lock => "lock",
            Self::Map => "map",
            Self::Scan => "scan",
            Self::Read => "read",
        }
    }
}

/// Cycles by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger([u64; Cause::ALL.len()]);

impl Ledger {
    /// Charges `cycles` to `cause`.
    #[inline]
    pub fn charge(&mut self, cause: Cause, cycles: u64) {
        self.0[cause as usize] += cycles;
    }
    /// Takes `cycles` of `cause` back.
    pub(crate) fn withdraw(&mut self, cause: Cause, cycles: u64) {
        self.0[cause as usize] -= cycles;
    }
    /// All cycles.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - earlier.0[at]))
    }
}

impl Index<Cause> for Ledger {
    type Output = u64;
    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause as usize]
    }
}

impl AddAssign<&Ledger> for Ledger {
    fn add_assign(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own += more;
        }
    }
}

impl Serialize for Ledger {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Cause::ALL.iter().map(|&cause| (cause.name(), self[cause])))
    }
}

impl<'de> Deserialize<'de> for Ledger {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = std::collections::BTreeMap::<Cause, u64>::deserialize(deserializer)?;
        let mut ledger = Self::default();
        for (cause, cycles) in map {
            ledger.charge(cause, cycles);
        }
        Ok(ledger)
    }
}
