//! What a key means that a file leaves out: the one place where defaults are.
//!
//! They are Linux's fault path as far as it is common to all its versions and modes (one superpage
//! size, given at the first fault if one is free, whole) and otherwise *off*: no daemon, no effort,
//! no pool. Sources: docs/sources/policies.md 3.1. A sub-table that is absent is a daemon that
//! does not exist; one that is present but empty has the numbers below.

use core::time::Duration;

use units::ByteSize;

use super::*;

impl Default for Rules {
    fn default() -> Self {
        Self {
            allocation: Allocation::default(),
            preparation: Preparation::default(),
            mapping: Mapping {
                when: MapWhen::WithPreparation,
                clean_pages: CleanPages::Uniform,
                scan: None,
            },
            unmapping: Unmapping {
                partial_free: true,
                partial_protect: true,
                clean_write_demotes: false,
                when: None,
                scan: None,
            },
            // What Linux does since its THP have a deferred split queue (4.5).
            deallocation: Deallocation { release: Release::UnderPressure, bloat: None },
            memory: Memory::default(),
            // Linux since 6.4, and since per-thread counters of resident pages (2.6.34).
            fault: Fault { locking: Locking::PerVma, resident: ResidentCount::Split },
            estimate: None,
            profile: None,
        }
    }
}

impl Default for Allocation {
    fn default() -> Self {
        Self {
            trigger: Trigger::FirstFault,
            when: None,
            form: Form::Superpage,
            sizes: alloc::vec![ByteSize::mib(2)],
            eligible: Eligible::Always,
            effort: Effort::None,
            effort_advised: Effort::None,
            growth: Growth::Within,
            shortage: Shortage::BasePage,
            zero_page: false,
            break_reservations: false,
        }
    }
}

impl Default for Preparation {
    fn default() -> Self {
        Self {
            grain: Grain::Superpage,
            fill_at: None,
            stores: ZeroStores::Temporal,
            // clear_huge_page goes page by page.
            bulk: ByteSize::kib(4),
            background: None,
            prezero: None,
            prefault: Prefault::None,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            grouping: true,
            reclaim: Reclaim::Compaction,
            background_compaction: false,
            proactiveness: 0,
            periodic_compaction: None,
            defer_shift: 6, // COMPACT_MAX_DEFER_SHIFT
            // What is known of it was fitted, for Linux 4.3 only.
            contended_permille: 0,
            contended_pages: 0,
            pool_pages: None,
            ideal: false,
        }
    }
}

impl Default for Scan {
    /// khugepaged's: pages_to_scan 4096, scan_sleep 10 s, alloc_sleep 60 s, max_ptes_none 511.
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            regions: 8,
            after_failure: Duration::from_secs(60),
            least_present: 1,
            most_swapped: 512, // no limit; Linux: max_ptes_swap 64
            referenced: true,
            order: ScanOrder::Address,
            when: None,
            effort: Effort::DirectRetry,
            exclusive: true, // collapse_huge_page holds mmap_sem for writing (code)
            cpu_percent: 0,
            sampling: None,
        }
    }
}

impl Default for Watch {
    /// HugeScope's artifact: SP_INTERVAL 3000 ms between scans, ten samples of SAMPLE_PERIOD 600 ms in each, of the
    /// superpages that it found hot: at least 500 (ss_work.h; hmmv/ept_scanner.c: huge_page_split_select).
    fn default() -> Self {
        Self {
            every: Duration::from_secs(9),
            window: Duration::from_secs(6),
            superpages: 500,
            below_percent: 100,
        }
    }
}

impl Default for Estimate {
    /// CBMM's (mm/estimator.c: mm_estimate_huge_page_promote_cost_benefit).
    fn default() -> Self {
        Self { miss_cycles: 50, prepare_cycles: 100 * 2000, shortage_cycles: 1 << 32 }
    }
}

impl Default for Sampling {
    /// HawkEye's: at least 5 s between samples, 1 s to count, new samples weigh 4 of 10.
    fn default() -> Self {
        Self { every: Duration::from_secs(5), window: Duration::from_secs(1), newest_percent: 40 }
    }
}

impl Default for BackgroundFill {
    /// The settings of Quicksilver's async-64 script.
    fn default() -> Self {
        Self { at: 64, every: Duration::from_secs(1), budget_pages: 200_000 }
    }
}

impl Default for Prezero {
    /// HawkEye's: ten blocks of order 10, then a second's sleep, without end.
    fn default() -> Self {
        Self {
            order: 10,
            blocks: 10,
            every: Duration::from_secs(1),
            start_permille: 1000,
            stop_permille: 1000,
            stores: ZeroStores::NonTemporal,
        }
    }
}

impl Default for BloatRecovery {
    /// HawkEye's: every 120 s, from less than 15 % free until 30 % are.
    fn default() -> Self {
        Self {
            every: Duration::from_secs(120),
            below_percent: 15,
            until_percent: 30,
            more_zero_than: 0,
        }
    }
}

/// The parameters of `when = "inactive"`: Quicksilver's scripts.
pub const INACTIVE: Release = Release::Inactive {
    after: Duration::from_secs(5),
    every: Duration::from_secs(1),
    budget_pages: 262_144,
};

/// Pages on each side that `kind = "resident"` maps: FreeBSD's.
pub const RESIDENT: Prefault = Prefault::Resident(4);

/// The largest order that `kind = "doubling"` reaches: Lameter's best for programs with much memory.
pub const DOUBLING: Prefault = Prefault::Doubling(4);

/// The parameters of `[memory.periodic-compaction]`: Ingens', as its authors' successors tuned it.
pub const PERIODIC: (u32, Duration) = (20, Duration::from_millis(100));
