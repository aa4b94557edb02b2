//! Event 3: a virtual superpage is mapped to a prepared physical superpage.

use core::time::Duration;

use super::Effort;
use crate::Condition;
use crate::rules::table::{ONE_OR_MORE, PER_CENT, PERIOD, WAIT, limit, rules, words};

rules! {
    /// The rules of mapping creation.
    pub struct Mapping {
        /// When a fault maps a superpage.
        when: MapWhen = MapWhen::WithPreparation, "when";
        /// What is asked of the pages' dirty state for an in-place mapping.
        clean_pages: CleanPages = CleanPages::Uniform, "clean-pages";
        /// A page that a fault on another one mapped, and that was not used since, hinders an in-place mapping.
        needs_accessed: bool = false, "needs-accessed";
        /// A background scan that makes superpages.
        scan: Option<Scan> = None, "scan";
    }

    /// A daemon that collapses base pages into superpages, out of place.
    /// By default as khugepaged: pages_to_scan 4096, scan_sleep 10 s, alloc_sleep 60 s, max_ptes_none 511.
    pub struct Scan {
        /// Time between passes.
        every: Duration = Duration::from_secs(10), "every", PERIOD;
        /// Virtual superpages visited (round robin) or made (other orders) per pass, at most.
        regions: u32 = 8, "regions", ONE_OR_MORE;
        /// Time to wait after a superpage could not be had.
        after_failure: Duration = Duration::from_secs(60), "after-failure", WAIT;
        /// The fewest populated pages of a candidate.
        least_present: u16 = 1, "least-present";
        /// The most swapped-out pages of a candidate (512: no limit; Linux: max_ptes_swap 64).
        most_swapped: u16 = 512, "most-swapped", limit(0, 512, "must be 0 to 512 (no limit)");
        /// A candidate has a page that was referenced lately.
        referenced: bool = true, "referenced";
        /// The order in which candidates are taken.
        order: ScanOrder = ScanOrder::Address, "order";
        /// A candidate becomes a page of a size only where this holds. `None`: wherever it qualifies.
        when: Option<Condition> = None, "when";
        /// What may be done to get a free superpage.
        effort: Effort = Effort::DirectRetry, "effort";
        /// A collapse keeps the address space's faults out while it copies (Linux: collapse_huge_page holds
        /// mmap_sem for writing).
        exclusive: bool = true, "exclusive";
        /// The share of one CPU that it may use, per cent (0: no limit).
        cpu_percent: u8 = 0, "cpu-percent", limit(0, 100, "must be 0 (no limit) to 100");
        /// How accesses are sampled, where the order needs it.
        sampling: Option<Sampling> = None, "sampling";
    }

    /// How a daemon learns which pages are accessed.
    /// By default as HawkEye: at least 5 s between samples, 1 s to count, new samples weigh 4 of 10.
    pub struct Sampling {
        /// Least time from counting the accessed bits to clearing them for the next sample.
        every: Duration = Duration::from_secs(5), "every", PERIOD;
        /// Time from clearing the accessed bits to counting them.
        window: Duration = Duration::from_secs(1), "window", PERIOD;
        /// Weight of the newest sample in the moving average, per cent.
        newest_percent: u8 = 40, "newest-percent", PER_CENT;
    }
}

impl Mapping {
    /// How accesses are sampled.
    pub fn sampling(&self) -> Option<&Sampling> {
        self.scan.as_ref()?.sampling.as_ref()
    }
}

words! {
    /// When a fault maps a superpage.
    pub enum MapWhen {
        /// Never: only the scan does, or nothing.
        Never = "never",
        /// At once, with its preparation.
        WithPreparation = "with-preparation",
        /// In place, when all its pages are prepared and mapped alike.
        Prepared = "prepared",
    }

    /// What is asked of the dirty state of the pages under an in-place superpage mapping.
    pub enum CleanPages {
        /// All dirty (mapped writable) or all clean (mapped read-only); mixed: none (FreeBSD).
        Uniform = "uniform",
        /// Clean pages of anonymous memory count as dirty (Quicksilver's `vm.relax`).
        Relaxed = "relaxed",
    }

    /// The order in which a scan takes candidates.
    pub enum ScanOrder {
        /// By address, address space after address space (khugepaged).
        Address = "address",
        /// As their population crossed `least_present`, until none is left, however many they are; then by
        /// address (Ingens).
        Crossing = "crossing",
        /// The highest bin of recent access coverage over all address spaces (HawkEye-G).
        Coverage = "coverage",
        /// The most TLB misses over all address spaces (Elastic Translations).
        Misses = "misses",
        /// The address space with the largest translation overhead, its highest bin first (HawkEye-PMU).
        Overhead = "overhead",
    }
}
