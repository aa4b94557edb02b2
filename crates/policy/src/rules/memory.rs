//! Beside the five events: how physical memory is kept, and how faults are serialised.

use core::time::Duration;

/// How physical memory is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Pages are grouped by mobility into blocks of superpage size (Gorman).
    pub grouping: bool,
    /// How contiguity is won back.
    pub reclaim: Reclaim,
    /// Background compaction on demand (kcompactd).
    pub background_compaction: bool,
    /// Proactive compaction, 0 (off) to 100 (Linux `compaction_proactiveness`).
    pub proactiveness: u8,
    /// Superpage-sized blocks that a daemon compacts at each pass, and the time between passes (Ingens).
    pub periodic_compaction: Option<(u32, Duration)>,
    /// The largest shift of compaction's deferral: after failures 2^shift attempts are skipped.
    pub defer_shift: u8,
    /// How many of 1000 compactions give up because a lock or the CPU was wanted elsewhere (Linux'
    /// COMPACT_CONTENDED).
    pub contended_permille: u16,
    /// Pages that such a compaction has moved in vain.
    pub contended_pages: u32,
    /// Superpages of the pool, for [`super::Form::Pool`]. `None`: as many as the workload maps.
    pub pool_pages: Option<u64>,
    /// A superpage is always to be had, already zeroed, at no cost: no system, but the upper bound of all.
    pub ideal: bool,
}

/// How contiguity is won back when none is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaim {
    /// Not at all.
    None,
    /// By migrating pages.
    Compaction,
    /// By reclaiming the aligned block around an old page (Gorman's Age-Biased reclaim).
    Lumpy,
}

/// How concurrent faults of one address space are serialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The locks a fault takes.
    pub locking: Locking,
    /// How resident pages are counted.
    pub resident: ResidentCount,
}

/// The locks a page fault takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// The address space's lock shared, and one lock over its page tables.
    PageTable,
    /// As `PageTable`, with a lock per page-table page.
    SplitPageTable,
    /// The address space's lock shared; entries are written by compare-and-exchange (Lameter).
    AtomicEntries,
    /// A lock per mapping (Linux since 6.4).
    PerVma,
}

/// How resident pages are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidentCount {
    /// Under the page-table lock.
    Locked,
    /// By an atomic shared by all threads.
    Atomic,
    /// Per thread, summed on demand.
    Split,
}
