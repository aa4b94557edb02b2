//! Event 3: a virtual superpage is mapped to a prepared physical superpage.

use core::time::Duration;

use super::Effort;
use crate::Condition;

/// The rules of mapping creation.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// When a fault maps a superpage.
    pub when: MapWhen,
    /// What is asked of the pages' dirty state for an in-place mapping.
    pub clean_pages: CleanPages,
    /// A background scan that makes superpages.
    pub scan: Option<Scan>,
}

impl Mapping {
    /// How accesses are sampled.
    pub fn sampling(&self) -> Option<&Sampling> {
        self.scan.as_ref()?.sampling.as_ref()
    }
}

/// When a fault maps a superpage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapWhen {
    /// Never: only the scan does, or nothing.
    Never,
    /// At once, with its preparation.
    WithPreparation,
    /// In place, when all its pages are prepared and mapped alike.
    Prepared,
}

/// What is asked of the dirty state of the pages under an in-place superpage mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanPages {
    /// All dirty (mapped writable) or all clean (mapped read-only); mixed: none (FreeBSD).
    Uniform,
    /// Clean pages of anonymous memory count as dirty (Quicksilver's `vm.relax`).
    Relaxed,
}

/// A daemon that collapses base pages into superpages, out of place.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// Time between passes.
    pub every: Duration,
    /// Virtual superpages visited (round robin) or made (other orders) per pass, at most.
    pub regions: u32,
    /// Time to wait after a superpage could not be had.
    pub after_failure: Duration,
    /// The fewest populated pages of a candidate.
    pub least_present: u16,
    /// The most swapped-out pages of a candidate (512: no limit).
    pub most_swapped: u16,
    /// A candidate has a page that was referenced lately.
    pub referenced: bool,
    /// The order in which candidates are taken.
    pub order: ScanOrder,
    /// A candidate becomes a page of a size only where this holds. `None`: wherever it qualifies.
    pub when: Option<Condition>,
    /// What may be done to get a free superpage.
    pub effort: Effort,
    /// A collapse keeps the address space's faults out while it copies (Linux: mmap_sem for writing).
    pub exclusive: bool,
    /// The share of one CPU that it may use, per cent (0: no limit).
    pub cpu_percent: u8,
    /// How accesses are sampled, where the order needs it.
    pub sampling: Option<Sampling>,
}

/// The order in which a scan takes candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanOrder {
    /// By address, address space after address space (khugepaged).
    Address,
    /// As their population crossed `least_present`, until none is left, however many they are; then by
    /// address (Ingens).
    Crossing,
    /// The highest bin of recent access coverage over all address spaces (HawkEye-G).
    Coverage,
    /// The most TLB misses over all address spaces (Elastic Translations).
    Misses,
    /// The address space with the largest translation overhead, its highest bin first (HawkEye-PMU).
    Overhead,
}

/// How a daemon learns which pages are accessed.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Least time from counting the accessed bits to clearing them for the next sample.
    pub every: Duration,
    /// Time from clearing the accessed bits to counting them.
    pub window: Duration,
    /// Weight of the newest sample in the moving average, per cent.
    pub newest_percent: u8,
}
