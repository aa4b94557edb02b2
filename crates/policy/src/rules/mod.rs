//! The rules of a design: when each of the five events in a superpage's life happens, at what grain, in which place
//! (Zhu, Cox, Rixner 2020).
//!
//! Physical **allocation**, physical **preparation**, **mapping**, **unmapping**, physical **deallocation**: one
//! module each, and one for what surrounds them. Plain values that `design` reads from a file; what they mean is
//! [`crate::Policy`]'s.
//!
//! What a file leaves out is Linux's fault path as far as it is common to all its versions and modes (one superpage
//! size, given at the first fault if one is free, whole) and otherwise *off*: no daemon, no effort, no pool. Sources:
//! docs/sources/policies.md 3.1. A sub-table that is absent is a daemon that does not exist; one that is present but
//! empty has the numbers of its declaration.

pub mod table;

use alloc::vec::Vec;
use core::time::Duration;

use units::ByteSize;

use crate::Condition;
use table::{
    CYCLES, Key, Keys, Limit, ONE_OR_MORE, PER_CENT, PERIOD, Slot, WAIT, choice, limit, rules,
    words,
};

rules! {
    /// All rules of a design.
    pub struct Rules {
        /// A free physical superpage is acquired.
        allocation: Allocation = Allocation::default(), "allocation";
        /// Its initial contents are produced.
        preparation: Preparation = Preparation::default(), "preparation";
        /// A virtual superpage is mapped to it.
        mapping: Mapping = Mapping::default(), "mapping";
        /// The mapping is destroyed.
        unmapping: Unmapping = Unmapping::default(), "unmapping";
        /// The physical superpage is freed, whole or in part.
        deallocation: Deallocation = Deallocation::default(), "deallocation";
        /// How the physical memory below is kept: mobility, compaction, reclaim.
        memory: Memory = Memory::default(), "memory";
        /// How concurrent faults are serialised.
        fault: Fault = Fault::default(), "fault";
        /// What superpages cost and gain, for conditions.
        estimate: Option<Estimate> = None, "estimate";
        /// Where the program misses the TLB, known beforehand.
        profile: Option<Profile> = None, "profile";
    }
}

// Event 1: a free physical superpage is acquired.

rules! {
    /// The rules of physical allocation.
    pub struct Allocation {
        /// What makes a program get a superpage.
        trigger: Trigger = Trigger::FirstFault, "trigger";
        /// A fault maps a page of a size only where this holds. `None`: wherever one fits.
        when: Option<Condition> = None, "when";
        /// What it gets.
        form: Form = Form::Superpage, "form";
        /// The sizes that may be had, ascending: the page table's superpage, smaller ones (mTHP, the sizes of Navarro
        /// et al.) and larger ones (Trident). A fault, and a scan with a condition, take the largest that fits and is
        /// worth it.
        sizes: Vec<ByteSize> = alloc::vec![ByteSize::mib(2)], "sizes";
        /// Which mappings may have superpages.
        eligible: Eligible = Eligible::Always, "eligible";
        /// What a fault may do to get one.
        effort: Effort = Effort::None, "effort";
        /// What a fault may do in a mapping that was advised (MADV_HUGEPAGE).
        effort_advised: Effort = Effort::None, "effort-advised";
        /// How far a superpage may reach past the end of what is mapped.
        growth: Growth = Growth::Within, "growth";
        /// What happens where no superpage can be had.
        shortage: Shortage = Shortage::BasePage, "shortage";
        /// A read of untouched memory maps a shared superpage of zeros.
        zero_page: bool = false, "zero-page";
        /// Reservations are broken, least recently changed first, when base pages run out.
        break_reservations: bool = false, "break-reservations";
    }
}

words! {
    /// What makes a program get a physical superpage.
    pub enum Trigger {
        /// Nothing: base pages only.
        Never = "never",
        /// The mapping itself: pages of a pool are set aside (hugetlb).
        Mmap = "mmap",
        /// The first fault in a virtual superpage.
        FirstFault = "first-fault",
        /// A background scan, later (see [`crate::rules::Scan`]).
        Scan = "scan",
    }

    /// What is acquired.
    pub enum Form {
        /// A superpage, whole, mapped as one.
        Superpage = "superpage",
        /// A superpage kept together for a virtual superpage, populated page by page.
        Reservation = "reservation",
        /// A page of a pool that was set aside beforehand.
        Pool = "pool",
    }

    /// Which mappings may have superpages.
    pub enum Eligible {
        /// Every anonymous mapping.
        Always = "always",
        /// Those advised.
        Advised = "advised",
    }

    /// What may be done to get a free superpage when none is free.
    pub enum Effort {
        /// Nothing.
        None = "none",
        /// Wake the background daemons, take one only if it is free now.
        Wake = "wake",
        /// Compact and reclaim at once, asynchronously, without retry; gives up if compaction is deferred.
        Direct = "direct",
        /// As `Direct`, with a second, synchronous attempt.
        DirectRetry = "direct-retry",
        /// As Linux 4.3: an asynchronous compaction, reclaim, another; gives up at once if deferred.
        Direct43 = "direct-4.3",
    }

    /// How far a superpage may reach past the end of what is mapped.
    pub enum Growth {
        /// Not at all: the whole window must lie in the mapping (Linux; Navarro et al.: in the object as it is now).
        Within = "within",
        /// Anonymous memory may grow into it (FreeBSD).
        PastEnd = "past-end",
    }

    /// What happens where no superpage can be had.
    pub enum Shortage {
        /// A smaller size, at last a base page.
        BasePage = "base-page",
        /// The reservation whose last allocation is oldest gives up its free part (Navarro et al.).
        Preempt = "preempt",
        /// The mapping is refused (hugetlb).
        Refuse = "refuse",
    }
}

// Event 5: an allocated physical superpage is freed, whole or in part.

rules! {
    /// The rules of physical deallocation.
    pub struct Deallocation {
        /// When memory goes back. By default as Linux, since its THP have a deferred split queue (4.5).
        release: Release = Release::UnderPressure, "when";
        /// Zero-filled base pages of superpages are given back under pressure.
        bloat: Option<BloatRecovery> = None, "bloat";
    }

    /// A daemon that splits superpages with zero-filled base pages.
    /// By default as HawkEye: every 120 s, from less than 15 % free until 30 % are.
    #[derive(Copy, Eq)]
    pub struct BloatRecovery {
        /// Its period.
        every: Duration = Duration::from_secs(120), "every", PERIOD;
        /// It starts below this per cent of free memory.
        below_percent: u8 = 15, "below-percent", PER_CENT;
        /// It stops at this per cent.
        until_percent: u8 = 30, "until-percent";
        /// Superpages with more zero-filled base pages than this are split.
        more_zero_than: u16 = 0, "more-zero-than";
    }
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

/// The parameters of `when = "inactive"`: Quicksilver's scripts.
const INACTIVE: Release = Release::Inactive {
    after: Duration::from_secs(5),
    every: Duration::from_secs(1),
    budget_pages: 262_144,
};

choice! {
    Release {
        Self::AtOnce => "at-once" = Self::AtOnce,
        Self::UnderPressure => "under-pressure" = Self::UnderPressure,
        Self::WhenEmpty => "when-empty" = Self::WhenEmpty,
        Self::Inactive { .. } => "inactive" = INACTIVE,
        Self::ToPool => "to-pool" = Self::ToPool,
    }
}

impl Key for Release {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        keys.key(name, none, Slot::Word(self));
        match self {
            Self::Inactive { after, every, budget_pages } => {
                after.visit("after", WAIT, keys);
                every.visit("every", PERIOD, keys);
                budget_pages.visit("budget-pages", ONE_OR_MORE, keys);
            }
            _ => keys.only_with(&["after", "every", "budget-pages"], "when = \"inactive\""),
        }
    }
}

// What conditions know beforehand: the prices of superpages, and a profile of the program.

rules! {
    /// What `benefit` and `cost` are made of (by default CBMM's, mm/estimator.c:
    /// mm_estimate_huge_page_promote_cost_benefit).
    #[derive(Copy, Eq)]
    pub struct Estimate {
        /// Cycles that a TLB miss takes.
        miss_cycles: u64 = 50, "miss-cycles", CYCLES;
        /// Cycles that preparing a superpage takes, if it is not zeroed yet.
        prepare_cycles: u64 = 100 * 2000, "prepare-cycles", CYCLES;
        /// Cycles that getting one takes where none is free.
        shortage_cycles: u64 = 1 << 32, "shortage-cycles", CYCLES;
    }

    /// Where a program misses the TLB: of spans of its memory.
    #[derive(Eq)]
    pub struct Profile {
        /// By address, none over another. What lies in none has no misses.
        spans: Vec<Span> = Vec::new(), "spans";
    }
}

/// A span of a program's memory. Offsets are from the beginning of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub from: ByteSize,
    /// The byte after its last one.
    pub to: ByteSize,
    /// TLB misses of each superpage's worth of it in a unit of time. CBMM's unit is 10 s (MM_ECON_LTU).
    pub misses: u64,
}

impl Profile {
    /// The misses of a superpage's worth of memory at an offset.
    pub fn at(&self, offset: u64) -> u64 {
        let after = self.spans.partition_point(|span| span.from.bytes() <= offset);
        let span = after.checked_sub(1).map(|last| self.spans[last]);
        span.filter(|span| offset < span.to.bytes()).map_or(0, |span| span.misses)
    }
}

// Event 3: a virtual superpage is mapped to a prepared physical superpage.

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

// Beside the five events: how physical memory is kept, and how faults are serialised.

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
        /// Superpages of the pool, for [`crate::rules::Form::Pool`]. `None`: as many as the workload maps.
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

// Event 2: the initial contents of a physical superpage are produced.

rules! {
    /// The rules of physical preparation.
    pub struct Preparation {
        /// How much a fault prepares.
        grain: Grain = Grain::Superpage, "grain";
        /// A fault that finds at least this many pages populated prepares the rest at once.
        fill_at: Option<u16> = None, "fill-at";
        /// The stores that zero.
        stores: ZeroStores = ZeroStores::Temporal, "zeroing";
        /// Bytes zeroed by one call; a superpage is zeroed in steps of this size. clear_huge_page goes page by page.
        bulk: ByteSize = ByteSize::kib(4), "bulk";
        /// The rest is prepared in the background.
        background: Option<BackgroundFill> = None, "background";
        /// Free memory is zeroed before it is needed.
        prezero: Option<Prezero> = None, "prezero";
        /// Pages beside the faulting one are mapped as well.
        prefault: Prefault = Prefault::None, "prefault";
    }

    /// A daemon that completes partly populated reservations.
    /// By default as Quicksilver's async-64 script.
    #[derive(Copy, Eq)]
    pub struct BackgroundFill {
        /// From this many populated pages on.
        at: u16 = 64, "at";
        /// Its period.
        every: Duration = Duration::from_secs(1), "every", PERIOD;
        /// Pages filled per pass, at most.
        budget_pages: u32 = 200_000, "budget-pages", ONE_OR_MORE;
    }

    /// Zeroing free memory ahead of demand.
    /// By default as HawkEye: ten blocks of order 10, then a second's sleep, without end.
    #[derive(Copy, Eq)]
    pub struct Prezero {
        /// The order of the blocks that are zeroed.
        order: u8 = 10, "order", limit(0, 10, "must be 0 to 10 (4M), the buddy allocator's largest");
        /// Blocks per pass.
        blocks: u32 = 10, "blocks", ONE_OR_MORE;
        /// Time between passes.
        every: Duration = Duration::from_secs(1), "every", PERIOD;
        /// Start when less than this many per mille of the free memory is zeroed (1000: always).
        start_permille: u16 = 1000, "start-permille", limit(1, 1000, "must be 1 to 1000 (1000: always)");
        /// Stop at this many.
        stop_permille: u16 = 1000, "stop-permille";
        /// The stores it zeroes with (those of faults may differ: HawkEye's do).
        stores: ZeroStores = ZeroStores::NonTemporal, "zeroing";
    }
}

words! {
    /// How much a fault prepares.
    pub enum Grain {
        /// One base page.
        Page = "page",
        /// The whole superpage.
        Superpage = "superpage",
    }

    /// The kind of stores that zero memory.
    pub enum ZeroStores {
        /// Through the caches.
        Temporal = "temporal",
        /// Past the caches (movnti and its like).
        NonTemporal = "non-temporal",
    }
}

/// Which pages a fault maps beside the one that was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefault {
    /// None.
    None,
    /// Up to this many pages each side that are already in memory (FreeBSD).
    Resident(u8),
    /// Doubling batches while faults are sequential, up to 2^order (Lameter): of base pages, or of
    /// superpages where those are the grain.
    Doubling(u8),
}

choice! {
    Prefault {
        Self::None => "none" = Self::None,
        // FreeBSD's.
        Self::Resident(_) => "resident" = Self::Resident(4),
        // Lameter's best for programs with much memory.
        Self::Doubling(_) => "doubling" = Self::Doubling(4),
    }
}

/// A table of its own: the kind, and what goes with it.
impl Key for Prefault {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        const PAGES: Option<Limit> =
            limit(1, u64::MAX, "must be 1 or more; kind = \"none\" for none");
        const ORDER: Option<Limit> =
            limit(1, 9, "must be 1 to 9 (512 pages); kind = \"none\" for none");
        if keys.enter(name, true) {
            keys.key("kind", none, Slot::Word(self));
        }
        match self {
            Self::Resident(pages) => pages.visit("pages", PAGES, keys),
            _ => keys.only_with(&["pages"], "kind = \"resident\""),
        }
        match self {
            Self::Doubling(order) => order.visit("order", ORDER, keys),
            _ => keys.only_with(&["order"], "kind = \"doubling\""),
        }
        keys.leave();
    }
}

// Event 4: a superpage mapping is destroyed.

rules! {
    /// The rules of mapping destruction.
    #[derive(Eq)]
    pub struct Unmapping {
        /// What splits the mapping.
        on: SplitOn = SplitOn { free: true, protect: true }, "on";
        /// What a write to a clean, read-only superpage does.
        clean_write: CleanWrite = CleanWrite::Keep, "clean-write";
        /// Superpages that are watched and of which this holds are split.
        when: Option<Condition> = None, "when";
        /// How superpages are watched.
        scan: Option<Watch> = None, "scan";
    }

    /// A daemon that watches which base pages of superpages are accessed: for a while they are mapped by base pages, in
    /// place (HugeScope and FHPM point the superpage's entry to a table of its own).
    ///
    /// By default as HugeScope's artifact: SP_INTERVAL 3000 ms between scans, ten samples of SAMPLE_PERIOD 600 ms in each,
    /// of the superpages that it found hot: at least 500 (ss_work.h; hmmv/ept_scanner.c: huge_page_split_select).
    #[derive(Copy, Eq)]
    pub struct Watch {
        /// Time between passes.
        every: Duration = Duration::from_secs(9), "every", PERIOD;
        /// How long accesses are counted.
        window: Duration = Duration::from_secs(6), "window";
        /// Superpages watched in a pass, at most.
        superpages: u32 = 500, "superpages", ONE_OR_MORE;
        /// They are watched only while less than this per cent of memory is free (100: always).
        below_percent: u8 = 100, "below-percent", limit(1, 100, "must be 1 to 100 (100: always)");
    }
}

/// What splits a superpage mapping: a list, `on = ["partial-free", "partial-protect"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitOn {
    /// Freeing a part of it (always true of what exists; false: the call is refused).
    pub free: bool,
    /// Changing the protection of a part.
    pub protect: bool,
}

impl Key for SplitOn {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        let on = [&mut self.free, &mut self.protect];
        keys.key(name, none, Slot::Words(&["partial-free", "partial-protect"], on));
    }
}

words! {
    /// What a write to a clean, read-only superpage does.
    pub enum CleanWrite {
        /// It becomes writable.
        Keep = "keep",
        /// It is demoted to base pages (FreeBSD).
        Demote = "demote",
    }
}
