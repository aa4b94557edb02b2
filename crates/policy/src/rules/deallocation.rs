//! Event 5: an allocated physical superpage is freed, whole or in part.

use core::time::Duration;

/// The rules of physical deallocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Deallocation {
    /// When memory goes back.
    pub release: Release,
    /// Zero-filled base pages of superpages are given back under pressure.
    pub bloat: Option<BloatRecovery>,
}

/// When the frames of a superpage of which a part was freed go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Each with its own unmapping.
    AtOnce,
    /// A part only under memory pressure (Linux' deferred split queue); whole at once.
    UnderPressure,
    /// When all of them are free, or the reservation is broken (FreeBSD).
    WhenEmpty,
    /// As `WhenEmpty`, and a reservation that did not change for `after` has its pages moved elsewhere,
    /// by a daemon that runs `every` so often and moves up to `budget_pages` (Quicksilver).
    Inactive {
        /// The age from which a reservation is inactive.
        after: Duration,
        /// The daemon's period.
        every: Duration,
        /// Pages moved per pass, at most.
        budget_pages: u32,
    },
    /// To the pool they came from, never split (hugetlb).
    ToPool,
}

/// A daemon that splits superpages with zero-filled base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BloatRecovery {
    /// Its period.
    pub every: Duration,
    /// It starts below this per cent of free memory.
    pub below_percent: u8,
    /// It stops at this per cent.
    pub until_percent: u8,
    /// Superpages with more zero-filled base pages than this are split.
    pub more_zero_than: u16,
}
