//! The rules of a design: when, at what grain and where each of the five events in a superpage's life happens (Zhu,
//! Cox, Rixner 2020).
//!
//! Each event has one table: physical **allocation**, physical **preparation**, **mapping**, **unmapping**, physical
//! **deallocation**. Other tables describe what the events depend on. `design` reads these values from a file, and
//! [`crate::Policy`] interprets them.
//!
//! The defaults are what the fault paths of all Linux versions and modes have in common: one superpage size, and a
//! whole superpage at the first fault if one is free. Everything else is *off*: no daemon, no effort, no pool. Sources:
//! docs/sources/policies.md 3.1. If a sub-table is absent, its daemon does not exist. An empty sub-table has the
//! defaults declared below.

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
        /// Allocation: a free physical superpage is acquired.
        allocation: Allocation = Allocation::default(), "allocation";
        /// Preparation: its initial contents are produced.
        preparation: Preparation = Preparation::default(), "preparation";
        /// Mapping: a virtual superpage is mapped to it.
        mapping: Mapping = Mapping::default(), "mapping";
        /// Unmapping: the mapping is destroyed.
        unmapping: Unmapping = Unmapping::default(), "unmapping";
        /// Deallocation: the physical superpage is freed, whole or in part.
        deallocation: Deallocation = Deallocation::default(), "deallocation";
        /// Management of physical memory: mobility, compaction, reclaim.
        memory: Memory = Memory::default(), "memory";
        /// How concurrent faults are serialized.
        fault: Fault = Fault::default(), "fault";
        /// Costs and gains of superpages, used by conditions.
        estimate: Option<Estimate> = None, "estimate";
        /// A profile of the program's TLB misses from an earlier run.
        profile: Option<Profile> = None, "profile";
    }
}

// Event 1: a free physical superpage is acquired.

rules! {
    /// The rules of physical allocation.
    pub struct Allocation {
        /// The event at which a program gets a physical superpage.
        trigger: Trigger = Trigger::FirstFault, "trigger";
        /// The condition under which a fault maps a page of a given size. Without a condition a fault always does, if
        /// the page fits.
        when: Option<Condition> = None, "when";
        /// What an allocation is.
        form: Form = Form::Superpage, "form";
        /// The available sizes, ascending: the size of a page table's superpage (2M), smaller ones (mTHP, the sizes of
        /// Navarro et al.) and larger ones (Trident). A fault, and a scan with a condition, take the largest size that
        /// fits and satisfies the condition.
        sizes: Vec<ByteSize> = alloc::vec![ByteSize::mib(2)], "sizes";
        /// Which mappings may have superpages.
        eligible: Eligible = Eligible::Always, "eligible";
        /// Effort of a fault to get a superpage.
        effort: Effort = Effort::None, "effort";
        /// Effort of a fault in a mapping that was advised (MADV_HUGEPAGE).
        effort_advised: Effort = Effort::None, "effort-advised";
        /// How far a superpage may reach past the end of the mapping.
        growth: Growth = Growth::Within, "growth";
        /// What happens if no superpage is available.
        shortage: Shortage = Shortage::BasePage, "shortage";
        /// Whether a read of untouched memory maps a shared zero superpage.
        zero_page: bool = false, "zero-page";
        /// Whether reservations are broken, least recently changed first, when base pages run out.
        break_reservations: bool = false, "break-reservations";
    }
}

words! {
    /// The event at which a program gets a physical superpage.
    pub enum Trigger {
        /// No event: base pages only.
        Never = "never",
        /// The mmap call, which sets pages of a pool aside (hugetlb).
        Mmap = "mmap",
        /// The first fault in a virtual superpage.
        FirstFault = "first-fault",
        /// A background scan, later: the daemon of `[mapping.scan]`.
        Scan = "scan",
    }

    /// The form of an allocation.
    pub enum Form {
        /// A whole superpage, mapped as one page.
        Superpage = "superpage",
        /// A physical superpage reserved for a virtual superpage and populated page by page.
        Reservation = "reservation",
        /// A page from a pool that was filled beforehand.
        Pool = "pool",
    }

    /// Which mappings may have superpages.
    pub enum Eligible {
        /// Every anonymous mapping.
        Always = "always",
        /// Advised mappings.
        Advised = "advised",
    }

    /// The effort to get a superpage when none is free.
    pub enum Effort {
        /// Nothing.
        None = "none",
        /// Wake the background daemons, and fall back to a base page now.
        Wake = "wake",
        /// Asynchronous direct compaction, then reclaim, without retry. Give up if compaction is deferred. A fault tries
        /// it twice.
        Direct = "direct",
        /// As `direct`, then a second, synchronous compaction. A fault tries `direct` before.
        DirectRetry = "direct-retry",
        /// As in Linux 4.3: asynchronous compaction, reclaim, compaction again. Give up at once if compaction is
        /// deferred.
        Direct43 = "direct-4.3",
    }

    /// How far a superpage may reach past the end of the mapping.
    pub enum Growth {
        /// Not at all: the whole extent must lie in the mapping (Linux) or in the object at its current size (Navarro
        /// et al.).
        Within = "within",
        /// A superpage may extend past the end of anonymous memory, which may grow into it
        /// (FreeBSD).
        PastEnd = "past-end",
    }

    /// What happens if no superpage is available.
    pub enum Shortage {
        /// Fall back to a smaller size, finally to a base page.
        BasePage = "base-page",
        /// Preempt the reservation whose last allocation is oldest: it gives up its unused part
        /// (Navarro et al.).
        Preempt = "preempt",
        /// Refuse the mapping (hugetlb).
        Refuse = "refuse",
    }
}

// Event 5: an allocated physical superpage is freed, whole or in part.

rules! {
    /// The rules of physical deallocation.
    pub struct Deallocation {
        /// When memory is released. The default is Linux's since 4.5, which added a deferred split queue for THP.
        release: Release = Release::UnderPressure, "when";
        /// Recovery of zero-filled base pages of superpages under memory pressure.
        bloat: Option<BloatRecovery> = None, "bloat";
    }

    /// A daemon that splits superpages with zero-filled base pages. The defaults are HawkEye's:
    /// every 120 s, starting below 15 % of free memory and stopping at 30 %.
    #[derive(Copy, Eq)]
    pub struct BloatRecovery {
        /// Period of the daemon.
        every: Duration = Duration::from_secs(120), "every", PERIOD;
        /// Free memory below which recovery starts, per cent.
        below_percent: u8 = 15, "below-percent", PER_CENT;
        /// Free memory at which recovery stops, per cent.
        until_percent: u8 = 30, "until-percent";
        /// Number of zero-filled base pages above which a superpage is split.
        more_zero_than: u16 = 0, "more-zero-than";
    }
}

/// When the frames of a partly freed superpage are released. The words' texts are below, at [`choice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Each frame is released when its page is unmapped.
    AtOnce,
    /// Unmapped parts of a superpage are released under memory pressure (Linux' deferred split queue); a whole
    /// superpage is released at once.
    UnderPressure,
    /// The frames are released once all of them are free or the reservation is broken (FreeBSD).
    WhenEmpty,
    /// Like `WhenEmpty`. In addition a daemon migrates up to `budget_pages` pages per pass out of inactive reservations
    /// (Quicksilver).
    Inactive {
        /// A reservation that has not changed for this long is inactive.
        after: Duration,
        /// Period of the daemon.
        every: Duration,
        /// Maximum number of pages migrated per pass.
        budget_pages: u32,
    },
    /// Superpages return to their pool whole and are never split (hugetlb).
    ToPool,
}

/// Defaults of `when = "inactive"`: from Quicksilver's scripts.
const INACTIVE: Release = Release::Inactive {
    after: Duration::from_secs(5),
    every: Duration::from_secs(1),
    budget_pages: 262_144,
};

choice! {
    Release {
        /// Each frame is released when its page is unmapped.
        Self::AtOnce => "at-once" = Self::AtOnce,
        /// Unmapped parts of a superpage are released under memory pressure (Linux' deferred split queue); a whole
        /// superpage is released at once.
        Self::UnderPressure => "under-pressure" = Self::UnderPressure,
        /// The frames are released once all of them are free or the reservation is broken (FreeBSD).
        Self::WhenEmpty => "when-empty" = Self::WhenEmpty,
        /// As `when-empty`. In addition a daemon migrates pages out of inactive reservations (Quicksilver).
        Self::Inactive { .. } => "inactive" = INACTIVE,
        /// Superpages return to their pool whole and are never split (hugetlb).
        Self::ToPool => "to-pool" = Self::ToPool,
    }
}

impl Key for Release {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        keys.key(name, none, Slot::Word(self));
        match self {
            Self::Inactive { after, every, budget_pages } => {
                keys.about("A reservation that has not changed for this long is inactive.");
                after.visit("after", WAIT, keys);
                keys.about("Period of the daemon that empties inactive reservations.");
                every.visit("every", PERIOD, keys);
                keys.about("Maximum number of base pages migrated per pass.");
                budget_pages.visit("budget-pages", ONE_OR_MORE, keys);
            }
            _ => keys.only_with(&["after", "every", "budget-pages"], "when = \"inactive\""),
        }
    }
}

// Inputs of conditions: the costs of superpages, and a profile of the program.

rules! {
    /// The terms from which conditions compute the facts `benefit` and `cost` (by default CBMM's, mm/estimator.c:
    /// mm_estimate_huge_page_promote_cost_benefit).
    #[derive(Copy, Eq)]
    pub struct Estimate {
        /// Cost of a TLB miss, in cycles.
        miss_cycles: u64 = 50, "miss-cycles", CYCLES;
        /// Cost of preparing a superpage that is not zeroed yet, in cycles.
        prepare_cycles: u64 = 100 * 2000, "prepare-cycles", CYCLES;
        /// Cost of getting a superpage when none is free, in cycles.
        shortage_cycles: u64 = 1 << 32, "shortage-cycles", CYCLES;
    }

    /// A program's TLB misses, for each span of its memory.
    #[derive(Eq)]
    pub struct Profile {
        /// The spans by address, without overlap: for each the offsets of its first byte and of the first byte after it,
        /// from the start of the program's memory, and its TLB misses per superpage in 10 s. Memory outside all spans has
        /// no misses.
        spans: Vec<Span> = Vec::new(), "spans";
    }
}

/// A span of a program's memory. Offsets are from the start of the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte of the span.
    pub from: ByteSize,
    /// Offset of the first byte after the span.
    pub to: ByteSize,
    /// Number of TLB misses per superpage and unit of time. CBMM's unit is 10 s (MM_ECON_LTU).
    pub misses: u64,
}

impl Profile {
    /// Number of TLB misses per unit of time of the superpage at `offset`.
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
        /// Which pages must be dirty for an in-place mapping.
        clean_pages: CleanPages = CleanPages::Uniform, "clean-pages";
        /// Whether an in-place mapping requires that every page was accessed, also those that a fault on another page
        /// mapped.
        needs_accessed: bool = false, "needs-accessed";
        /// A background scan that makes superpages.
        scan: Option<Scan> = None, "scan";
    }

    /// A daemon that collapses base pages into superpages by copying. The defaults are khugepaged's: pages_to_scan
    /// 4096, scan_sleep 10 s, alloc_sleep 60 s, max_ptes_none 511.
    pub struct Scan {
        /// Time between passes.
        every: Duration = Duration::from_secs(10), "every", PERIOD;
        /// Maximum number of virtual superpages per pass: visited ones (round robin), or made ones (other orders).
        regions: u32 = 8, "regions", ONE_OR_MORE;
        /// Time to wait after a pass found no free superpage.
        after_failure: Duration = Duration::from_secs(60), "after-failure", WAIT;
        /// Minimum number of populated base pages of a candidate.
        least_present: u16 = 1, "least-present";
        /// Maximum number of swapped-out base pages of a candidate (Linux: max_ptes_swap 64).
        most_swapped: u16 = 512, "most-swapped", limit(0, 512, "must be 0 to 512 (no limit)");
        /// Whether a candidate must have a recently referenced page.
        referenced: bool = true, "referenced";
        /// The order in which the scan takes candidates.
        order: ScanOrder = ScanOrder::Address, "order";
        /// The condition under which a candidate becomes a page of a given size. Without a condition it does whenever it
        /// qualifies.
        when: Option<Condition> = None, "when";
        /// Effort to get a free superpage.
        effort: Effort = Effort::DirectRetry, "effort";
        /// Whether faults in the address space wait while a collapse copies (Linux: collapse_huge_page holds mmap_sem
        /// for writing).
        exclusive: bool = true, "exclusive";
        /// Maximum share of one CPU, per cent.
        cpu_percent: u8 = 0, "cpu-percent", limit(0, 100, "must be 0 (no limit) to 100");
        /// Access sampling, for orders that need it.
        sampling: Option<Sampling> = None, "sampling";
    }

    /// How a daemon samples page accesses. The defaults are HawkEye's: at least 5 s between samples, windows of 1 s,
    /// and a weight of 40 % for the newest sample.
    pub struct Sampling {
        /// Minimum time from counting the accessed bits to clearing them for the next sample.
        every: Duration = Duration::from_secs(5), "every", PERIOD;
        /// Time from clearing the accessed bits to counting them.
        window: Duration = Duration::from_secs(1), "window", PERIOD;
        /// Weight of the newest sample in the moving average, per cent.
        newest_percent: u8 = 40, "newest-percent", PER_CENT;
    }
}

impl Mapping {
    /// Access sampling, if configured.
    pub fn sampling(&self) -> Option<&Sampling> {
        self.scan.as_ref()?.sampling.as_ref()
    }
}

words! {
    /// When a fault maps a superpage.
    pub enum MapWhen {
        /// Never. Only the scan, if any, makes superpages.
        Never = "never",
        /// At the fault that prepares the superpage.
        WithPreparation = "with-preparation",
        /// In place, once all its pages are prepared and mapped with equal attributes.
        Prepared = "prepared",
    }

    /// Which pages must be dirty for an in-place superpage mapping.
    pub enum CleanPages {
        /// Either all pages must be dirty (the superpage is then writable) or none (it is then read-only). Otherwise no
        /// superpage is mapped (FreeBSD).
        Uniform = "uniform",
        /// Clean pages of anonymous memory count as dirty (Quicksilver's `vm.relax`).
        Relaxed = "relaxed",
    }

    /// The order in which a scan takes candidates.
    pub enum ScanOrder {
        /// By address, address space after address space (khugepaged).
        Address = "address",
        /// First the regions whose number of populated pages crossed `least-present`, in that order and without a limit
        /// on their number; then by address (Ingens).
        Crossing = "crossing",
        /// Highest bin of recent access coverage first, across all address spaces (HawkEye-G).
        Coverage = "coverage",
        /// Most TLB misses first, across all address spaces (Elastic Translations).
        Misses = "misses",
        /// The address space with the largest translation overhead first, and in it the highest bin first
        /// (HawkEye-PMU).
        Overhead = "overhead",
    }
}

// Outside the five events: management of physical memory, and serialization of faults.

rules! {
    /// How physical memory is managed.
    pub struct Memory {
        /// Whether pages are grouped by mobility into blocks of superpage size (Gorman).
        grouping: bool = true, "grouping";
        /// How contiguous memory is recovered.
        reclaim: Reclaim = Reclaim::Compaction, "reclaim";
        /// Whether background compaction runs on demand (kcompactd).
        background_compaction: bool = false, "background-compaction";
        /// Strength of proactive compaction (Linux
        /// `compaction_proactiveness`).
        proactiveness: u8 = 0, "proactiveness", limit(0, 100, "must be 0 (off) to 100");
        /// Maximum shift of compaction's deferral: after failures, compaction skips up to 2^shift
        /// attempts (COMPACT_MAX_DEFER_SHIFT).
        defer_shift: u8 = 6, "defer-shift", limit(0, 16, "must be 0 to 16 (2^16 attempts skipped)");
        /// Number of compactions in 1000 that give up because a lock or the CPU was contended (Linux'
        /// COMPACT_CONTENDED). The values are known only from a fit to Linux 4.3.
        contended_permille: u16 = 0, "contended-permille", limit(0, 1000, "must be 0 to 1000");
        /// Number of base pages that such a compaction migrates before it gives up.
        contended_pages: u32 = 0, "contended-pages", limit(0, 1 << 20, "must be at most 2^20");
        /// Number of superpages in the pool, for `form = "pool"`. Without: as many as the workload maps.
        pool_pages: Option<u64> = None, "pool-pages", limit(0, 1 << 40, "must be at most 2^40");
        /// Whether a zeroed superpage is always available at no cost. No real system has this; it is the upper bound of
        /// all designs.
        ideal: bool = false, "ideal";
        /// A daemon that compacts periodically, whether or not memory is needed (Ingens).
        periodic_compaction: Option<PeriodicCompaction> = None, "periodic-compaction";
    }

    /// Periodic background compaction. The defaults are Ingens', as tuned by its authors' successors.
    #[derive(Copy, Eq)]
    pub struct PeriodicCompaction {
        /// Number of batches per pass: up to 32 pages of a superpage-sized block, migrated.
        blocks: u32 = 20, "blocks", ONE_OR_MORE;
        /// Time between passes.
        every: Duration = Duration::from_millis(100), "every", PERIOD;
    }

    /// How concurrent faults of one address space are serialized. The defaults are those of Linux
    /// since 6.4 (locking) and since 2.6.34 (per-thread counters of resident pages).
    #[derive(Copy, Eq)]
    pub struct Fault {
        /// The locks a fault takes.
        locking: Locking = Locking::PerVma, "locking";
        /// How resident pages are counted.
        resident: ResidentCount = ResidentCount::Split, "rss";
    }
}

words! {
    /// How contiguous memory is recovered when no free superpage is left.
    pub enum Reclaim {
        /// Not at all.
        None = "none",
        /// By migrating pages.
        Compaction = "compaction",
        /// By reclaiming the whole aligned block around an old page (Gorman's Age-Biased reclaim).
        Lumpy = "lumpy",
    }

    /// The locks a page fault takes.
    pub enum Locking {
        /// The address space's lock, shared, and one lock for all page tables.
        PageTable = "page-table",
        /// As `page-table`, but with one lock per page-table page.
        SplitPageTable = "split-page-table",
        /// The address space's lock, shared; entries are written by compare-and-exchange (Lameter).
        AtomicEntries = "atomic-entries",
        /// One lock per mapping (Linux since 6.4).
        PerVma = "per-vma",
    }

    /// How resident pages are counted.
    pub enum ResidentCount {
        /// Under the page-table lock.
        Locked = "locked",
        /// In an atomic counter shared by all threads.
        Atomic = "atomic",
        /// In per-thread counters, summed on demand.
        Split = "split",
        /// Not at all: readers count the page-table entries.
        OnDemand = "on-demand",
    }
}

// Event 2: the initial contents of a physical superpage are produced.

rules! {
    /// The rules of physical preparation.
    pub struct Preparation {
        /// How much a fault prepares.
        grain: Grain = Grain::Superpage, "grain";
        /// A fault that brings the number of a reservation's populated base pages to this value prepares the remaining
        /// pages at once. Without: none does.
        fill_at: Option<u16> = None, "fill-at";
        /// The stores that zero memory.
        stores: ZeroStores = ZeroStores::Temporal, "zeroing";
        /// Bytes zeroed per call: a superpage is zeroed in steps of this size. (Linux's clear_huge_page zeroes page by
        /// page.)
        bulk: ByteSize = ByteSize::kib(4), "bulk";
        /// Background preparation of the remaining pages.
        background: Option<BackgroundFill> = None, "background";
        /// Zeroing of free memory before it is needed.
        prezero: Option<Prezero> = None, "prezero";
        /// Pages that a fault maps in addition to the faulting page.
        prefault: Prefault = Prefault::None, "prefault";
    }

    /// A daemon that completes partly populated reservations. The defaults are those of
    /// Quicksilver's async-64 script.
    #[derive(Copy, Eq)]
    pub struct BackgroundFill {
        /// Minimum number of populated base pages of a reservation to complete.
        at: u16 = 64, "at";
        /// Period of the daemon.
        every: Duration = Duration::from_secs(1), "every", PERIOD;
        /// Maximum number of reservations completed per pass.
        budget_reservations: u32 = 200_000, "budget-reservations", ONE_OR_MORE;
    }

    /// Zeroing free memory before it is needed. The defaults are HawkEye's: ten blocks of order 10,
    /// then one second of sleep, repeated forever.
    #[derive(Copy, Eq)]
    pub struct Prezero {
        /// Order of the zeroed blocks: 2^order base pages.
        order: u8 = 10, "order", limit(0, 10, "must be 0 to 10 (4M), the buddy allocator's largest");
        /// Number of blocks per pass.
        blocks: u32 = 10, "blocks", ONE_OR_MORE;
        /// Time between passes.
        every: Duration = Duration::from_secs(1), "every", PERIOD;
        /// Zeroed share of free memory below which zeroing starts, per mille.
        start_permille: u16 = 1000, "start-permille", limit(1, 1000, "must be 1 to 1000 (1000: always)");
        /// Zeroed share of free memory at which zeroing stops, per mille.
        stop_permille: u16 = 1000, "stop-permille";
        /// The stores of prezeroing (faults may use other stores, as in HawkEye).
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
        /// Past the caches (movnti and similar instructions).
        NonTemporal = "non-temporal",
    }
}

/// The pages that a fault maps in addition to the touched one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefault {
    /// None.
    None,
    /// Up to this many resident pages on each side of the faulting page (FreeBSD).
    Resident(u8),
    /// While faults are sequential, batches that double up to 2^order pages (Lameter). The pages are superpages if the
    /// grain is `superpage`, base pages otherwise.
    Doubling(u8),
}

choice! {
    Prefault {
        /// None.
        Self::None => "none" = Self::None,
        // FreeBSD's value.
        /// Resident pages on each side of the faulting page (FreeBSD).
        Self::Resident(_) => "resident" = Self::Resident(4),
        // Lameter's best value for programs with much memory.
        /// While faults are sequential, batches that double (Lameter). The pages are superpages if the grain is
        /// `superpage`, base pages otherwise.
        Self::Doubling(_) => "doubling" = Self::Doubling(4),
    }
}

/// A table with a key for the kind, and the keys of that kind.
impl Key for Prefault {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        const PAGES: Option<Limit> =
            limit(1, u64::MAX, "must be 1 or more; kind = \"none\" for none");
        const ORDER: Option<Limit> =
            limit(1, 9, "must be 1 to 9 (512 pages); kind = \"none\" for none");
        if keys.enter(name, true) {
            keys.about("Which pages a fault maps besides the touched one.");
            keys.key("kind", none, Slot::Word(self));
        }
        match self {
            Self::Resident(pages) => {
                keys.about("Maximum number of resident base pages mapped on each side of the touched page.");
                pages.visit("pages", PAGES, keys);
            }
            _ => keys.only_with(&["pages"], "kind = \"resident\""),
        }
        match self {
            Self::Doubling(order) => {
                keys.about("Batches grow up to 2^order pages.");
                order.visit("order", ORDER, keys);
            }
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
        /// The calls that split a superpage mapping: freeing a part of it (`partial-free`; all existing designs do, and
        /// without the word the call is refused), changing the protection of a part (`partial-protect`).
        on: SplitOn = SplitOn { free: true, protect: true }, "on";
        /// What happens at a write to a clean, read-only superpage.
        clean_write: CleanWrite = CleanWrite::Keep, "clean-write";
        /// The condition under which a watched superpage is split.
        when: Option<Condition> = None, "when";
        /// How superpages are watched.
        scan: Option<Watch> = None, "scan";
    }

    /// A daemon that watches which base pages of superpages are accessed. For a while it maps the superpages by base
    /// pages, in place (HugeScope and FHPM point the superpage's entry to a private table).
    ///
    /// The defaults are those of HugeScope's artifact: SP_INTERVAL 3000 ms between scans, and ten samples of
    /// SAMPLE_PERIOD 600 ms in each scan. It samples the superpages that it found hot, at least 500 (ss_work.h;
    /// hmmv/ept_scanner.c: huge_page_split_select).
    #[derive(Copy, Eq)]
    pub struct Watch {
        /// Time between passes.
        every: Duration = Duration::from_secs(9), "every", PERIOD;
        /// Time during which accesses are counted.
        window: Duration = Duration::from_secs(6), "window";
        /// Maximum number of superpages watched per pass.
        superpages: u32 = 500, "superpages", ONE_OR_MORE;
        /// Free memory below which superpages are watched, per cent.
        below_percent: u8 = 100, "below-percent", limit(1, 100, "must be 1 to 100 (100: always)");
    }
}

/// The calls that split a superpage mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitOn {
    /// Freeing part of a superpage splits its mapping. True in all existing designs; if false, the
    /// call is refused.
    pub free: bool,
    /// Changing the protection of part of a superpage splits its mapping.
    pub protect: bool,
}

impl Key for SplitOn {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        let on = [&mut self.free, &mut self.protect];
        keys.key(name, none, Slot::Words(&["partial-free", "partial-protect"], on));
    }
}

words! {
    /// What happens at a write to a clean, read-only superpage.
    pub enum CleanWrite {
        /// The superpage becomes writable.
        Keep = "keep",
        /// The superpage is demoted to base pages (FreeBSD).
        Demote = "demote",
    }
}
