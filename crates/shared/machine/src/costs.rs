//! `Costs`: what the kernel's work costs on one machine, in nanoseconds.
//!
//! Numbers live in `machines/*.toml`, each with its source and how far to trust it.

use units::ByteSize;

/// A cost in nanoseconds.
pub type Nanoseconds = f64;

/// What the kernel's work costs. All but `zero` are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// A fault that maps one base page, from the trap to the return, without zeroing it, without
    /// waiting for a lock and without making a page of the page table.
    pub fault_base: Nanoseconds,
    /// A fault that maps a superpage, without zeroing it.
    pub fault_superpage: Nanoseconds,
    /// A page that a fault maps beside the one that was touched.
    pub fault_around_page: Nanoseconds,
    /// A system call that does nothing.
    pub system_call: Nanoseconds,
    /// Zeroing, by stores and by bytes per call.
    pub zero: Zeroing,
    /// Copying one base page.
    pub copy_page: Nanoseconds,
    /// Migrating one base page with everything but the shootdown: isolating it, unmapping it through
    /// the reverse map, copying, mapping it again.
    pub migrate_page: Nanoseconds,
    /// Collapsing base pages into a superpage, or splitting one, without copies and zeroing.
    pub collapse: Nanoseconds,
    /// Changing a mapping's size in place.
    pub promote: Nanoseconds,
    /// A TLB shootdown on the processor that asks for it.
    pub shootdown: Nanoseconds,
    /// What each further processor adds to it.
    pub shootdown_per_cpu: Nanoseconds,
    /// Unmapping and freeing one base page.
    pub unmap_page: Nanoseconds,
    /// Unmapping and freeing one superpage.
    pub unmap_superpage: Nanoseconds,
    /// Making one page of a page table, zeroed.
    pub table_page: Nanoseconds,
    /// Looking at one page in a scan (khugepaged, compaction, access bits).
    pub scan_page: Nanoseconds,
    /// Reclaiming one clean page of a file.
    pub reclaim_page: Nanoseconds,
    /// Taking and releasing a lock that nobody holds.
    pub lock: Nanoseconds,
    /// What a lock's or a counter's cache line costs when another processor had it last.
    pub line_transfer: Nanoseconds,
    /// Switching to another process or a daemon, without what the emptied TLB costs.
    pub context_switch: Nanoseconds,
}

/// How long 2 MiB take to be zeroed, by the kind of stores and by the bytes zeroed per call.
#[derive(Debug, Clone, PartialEq)]
pub struct Zeroing {
    /// Through the caches: microseconds for 2 MiB, in calls of 4 KiB, of 32 KiB, of 2 MiB.
    pub temporal: [f64; 3],
    /// Past the caches, likewise.
    pub non_temporal: [f64; 3],
}

/// The kind of stores that zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Through the caches.
    Temporal,
    /// Past the caches.
    NonTemporal,
}

/// The bytes per call that the three columns of [`Zeroing`] stand for (Quicksilver, slide 17).
pub const BULKS: [u64; 3] = [4 << 10, 32 << 10, 2 << 20];

impl Zeroing {
    /// Nanoseconds to zero `size` in calls of `bulk` bytes (at most `size`). Between the columns the
    /// time is taken to be linear in the logarithm of the bytes per call (inferred); beyond them it
    /// is that of the nearest. A base page of 4 KiB costs 1/512 of the first column.
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
    /// Every cost but zeroing, with its key.
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
