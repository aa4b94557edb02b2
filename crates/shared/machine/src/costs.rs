//! `Costs`: costs of a machine's kernel operations, in nanoseconds.
//!
//! The values are in `machines/*.toml`, each with its source and a confidence label.

use units::ByteSize;

/// A cost in nanoseconds.
pub type Nanoseconds = f64;

/// Costs of kernel operations. All fields except `zero` are in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// A fault that maps one base page, from trap to return, without zeroing, lock contention, or allocating a
    /// page-table page.
    pub fault_base: Nanoseconds,
    /// A fault that maps a superpage, without zeroing it.
    pub fault_superpage: Nanoseconds,
    /// Mapping one more page by fault-around.
    pub fault_around_page: Nanoseconds,
    /// An empty system call.
    pub system_call: Nanoseconds,
    /// Zeroing 2 MiB, by kind of store and by bytes per call (in microseconds).
    pub zero: Zeroing,
    /// Copying one base page.
    pub copy_page: Nanoseconds,
    /// Migrating one base page without the shootdown: isolation, unmapping through the reverse map, copy, remapping.
    pub migrate_page: Nanoseconds,
    /// Collapsing base pages into a superpage, or splitting one, without copies and zeroing.
    pub collapse: Nanoseconds,
    /// Changing the page size of a mapping in place.
    pub promote: Nanoseconds,
    /// A TLB shootdown on the initiating CPU.
    pub shootdown: Nanoseconds,
    /// Cost of a shootdown per additional CPU.
    pub shootdown_per_cpu: Nanoseconds,
    /// Unmapping and freeing one base page.
    pub unmap_page: Nanoseconds,
    /// Unmapping and freeing one superpage.
    pub unmap_superpage: Nanoseconds,
    /// Allocating and zeroing one page-table page.
    pub table_page: Nanoseconds,
    /// Scanning one page (khugepaged, compaction, accessed bits).
    pub scan_page: Nanoseconds,
    /// Reclaiming one clean file page.
    pub reclaim_page: Nanoseconds,
    /// Acquiring and releasing an uncontended lock.
    pub lock: Nanoseconds,
    /// Transfer of a lock's or counter's cache line from another CPU.
    pub line_transfer: Nanoseconds,
    /// Switching to another process or a daemon, without the cost of TLB misses afterwards.
    pub context_switch: Nanoseconds,
}

/// Time to zero 2 MiB, by kind of store and bytes zeroed per call.
#[derive(Debug, Clone, PartialEq)]
pub struct Zeroing {
    /// Temporal stores: microseconds for 2 MiB, in calls of 4 KiB, 32 KiB and 2 MiB.
    pub temporal: [f64; 3],
    /// Non-temporal stores: microseconds for 2 MiB, in the same three kinds of calls.
    pub non_temporal: [f64; 3],
}

/// Kind of stores for zeroing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches (temporal).
    Temporal,
    /// Past the caches (non-temporal).
    NonTemporal,
}

/// Bytes per call of the three columns of [`Zeroing`] (Quicksilver, slide 17).
pub const BULKS: [u64; 3] = [4 << 10, 32 << 10, 2 << 20];

impl Zeroing {
    /// Nanoseconds to zero `size` in calls of `bulk` bytes (at most `size`). Between the columns, the time is
    /// interpolated linearly in the logarithm of the bytes per call (inferred); beyond them, the time of the nearest
    /// column is used. A base page of 4 KiB costs 1/512 of the first column.
    pub fn time(&self, stores: Stores, bulk: ByteSize, size: ByteSize) -> Nanoseconds {
        let column = match stores {
            Stores::Temporal => &self.temporal,
            Stores::NonTemporal => &self.non_temporal,
        };
        let bulk = bulk.bytes().min(size.bytes()).clamp(BULKS[0], BULKS[2]);
        let at = usize::from(bulk > BULKS[1]);
        let (low, high) = (BULKS[at] as f64, BULKS[at + 1] as f64);
        let part = (bulk as f64 / low).log2() / (high / low).log2();
        let per_2m = column[at] + part * (column[at + 1] - column[at]);
        per_2m * 1000.0 * size.bytes() as f64 / BULKS[2] as f64
    }
}

impl Costs {
    /// Returns all costs except zeroing, in nanoseconds, with their keys.
    pub fn all(&self) -> [(&'static str, Nanoseconds); 18] {
        [
            ("fault-base", self.fault_base),
            ("fault-superpage", self.fault_superpage),
            ("fault-around-page", self.fault_around_page),
            ("system-call", self.system_call),
            ("copy-page", self.copy_page),
            ("migrate-page", self.migrate_page),
            ("collapse", self.collapse),
            ("promote", self.promote),
            ("shootdown", self.shootdown),
            ("shootdown-per-cpu", self.shootdown_per_cpu),
            ("unmap-page", self.unmap_page),
            ("unmap-superpage", self.unmap_superpage),
            ("table-page", self.table_page),
            ("scan-page", self.scan_page),
            ("reclaim-page", self.reclaim_page),
            ("lock", self.lock),
            ("line-transfer", self.line_transfer),
            ("context-switch", self.context_switch),
        ]
    }
}
