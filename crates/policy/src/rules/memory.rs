//! Beside the five events: how physical memory is kept, and how faults are serialised.

use core::time::Duration;

use crate::rules::table::{ONE_OR_MORE, PERIOD, limit, rules, words};

rules! {
    /// How physical memory is kept.
    pub struct Memory {
        /// Pages are grouped by mobility into blocks of superpage size (Gorman).
        grouping: bool = true, "grouping";
        /// How contiguity is won back.
        reclaim: Reclaim = Reclaim::Compaction, "reclaim";
        /// Background compaction on demand (kcompactd).
        background_compaction: bool = false, "background-compaction";
        /// Proactive compaction, 0 (off) to 100 (Linux `compaction_proactiveness`).
        proactiveness: u8 = 0, "proactiveness", limit(0, 100, "must be 0 (off) to 100");
        /// The largest shift of compaction's deferral: after failures 2^shift attempts are skipped
        /// (COMPACT_MAX_DEFER_SHIFT).
        defer_shift: u8 = 6, "defer-shift", limit(0, 16, "must be 0 to 16 (2^16 attempts skipped)");
        /// How many of 1000 compactions give up because a lock or the CPU was wanted elsewhere (Linux'
        /// COMPACT_CONTENDED). What is known of it was fitted, for Linux 4.3 only.
        contended_permille: u16 = 0, "contended-permille", limit(0, 1000, "must be 0 to 1000");
        /// Pages that such a compaction has moved in vain.
        contended_pages: u32 = 0, "contended-pages", limit(0, 1 << 20, "must be at most 2^20");
        /// Superpages of the pool, for [`super::Form::Pool`]. `None`: as many as the workload maps.
        pool_pages: Option<u64> = None, "pool-pages", limit(0, 1 << 40, "must be at most 2^40");
        /// A superpage is always to be had, already zeroed, at no cost: no system, but the upper bound of all.
        ideal: bool = false, "ideal";
        /// A daemon that compacts without being asked (Ingens).
        periodic_compaction: Option<PeriodicCompaction> = None, "periodic-compaction";
    }

    /// Compaction in the background, a little at each pass. By default as Ingens, as its authors' successors tuned it.
    #[derive(Copy, Eq)]
    pub struct PeriodicCompaction {
        /// Superpage-sized blocks that are compacted in a pass.
        blocks: u32 = 20, "blocks", ONE_OR_MORE;
        /// Time between passes.
        every: Duration = Duration::from_millis(100), "every", PERIOD;
    }

    /// How concurrent faults of one address space are serialised.
    /// By default as Linux since 6.4, and since per-thread counters of resident pages (2.6.34).
    #[derive(Copy, Eq)]
    pub struct Fault {
        /// The locks a fault takes.
        locking: Locking = Locking::PerVma, "locking";
        /// How resident pages are counted.
        resident: ResidentCount = ResidentCount::Split, "rss";
    }
}

words! {
    /// How contiguity is won back when none is free.
    pub enum Reclaim {
        /// Not at all.
        None = "none",
        /// By migrating pages.
        Compaction = "compaction",
        /// By reclaiming the aligned block around an old page (Gorman's Age-Biased reclaim).
        Lumpy = "lumpy",
    }

    /// The locks a page fault takes.
    pub enum Locking {
        /// The address space's lock shared, and one lock over its page tables.
        PageTable = "page-table",
        /// As `PageTable`, with a lock per page-table page.
        SplitPageTable = "split-page-table",
        /// The address space's lock shared; entries are written by compare-and-exchange (Lameter).
        AtomicEntries = "atomic-entries",
        /// A lock per mapping (Linux since 6.4).
        PerVma = "per-vma",
    }

    /// How resident pages are counted.
    pub enum ResidentCount {
        /// Under the page-table lock.
        Locked = "locked",
        /// By an atomic shared by all threads.
        Atomic = "atomic",
        /// Per thread, summed on demand.
        Split = "split",
        /// Not at all: who reads it counts the entries of the page tables.
        OnDemand = "on-demand",
    }
}
