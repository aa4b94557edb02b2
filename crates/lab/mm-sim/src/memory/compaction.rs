//! Compaction: migrates pages from low pageblocks to free frames in high ones (Linux' mm/compaction.c, as of 6.5;
//! docs/sources/policies.md 3.1).
//!
//! The sections of this file: requests and outcomes, for one zone after the other; deferral after a failure; evacuation
//! of one pageblock or a run of them; isolation of pages; the fragmentation score for proactive compaction; one run
//! over one zone, with both scanners and batches of 32.
//!
//! Not modelled: per-CPU lists (memory has none), lock contention (a budget replaces it), and the order of free lists.

use super::layout::{Owner, is_movable};
use super::physical::pageblocks;
use super::statistics::Level;
use super::zone::{SKIP, WHOLE, Zone};
use super::{Frame, Memory, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER, Residents};

/// Orders above this are "costly": they get a larger reserve, and compaction consults the fragmentation index
/// (Linux' PAGE_ALLOC_COSTLY_ORDER).
pub(crate) const COSTLY_ORDER: u8 = 3;

/// Compaction settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum deferral shift (Linux' COMPACT_MAX_DEFER_SHIFT).
    pub defer_shift: u8,
    /// Fragmentation index up to which a failure is attributed to lack of memory (vm.extfrag_threshold).
    pub extfrag_threshold: i32,
    /// vm.compaction_proactiveness.
    pub proactiveness: u8,
    /// Whether the free lists are searched for partly free pageblocks first (Linux since 5.1).
    pub fast_search: bool,
}

impl Default for Settings {
    /// Linux' defaults (docs/sources/policies.md 3.1).
    fn default() -> Self {
        Self { defer_shift: 6, extfrag_threshold: 500, proactiveness: 20, fast_search: true }
    }
}

/// How hard a run tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A direct run only takes pageblocks of its own mobility, and leaves a pageblock at the first failure.
    Async,
    /// Takes all pageblocks and skips pages that cannot be migrated.
    SyncLight,
    /// As `SyncLight`, but ignores deferral (Linux' full priority).
    Sync,
}

/// Caller of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// An allocation, in the fault path or khugepaged.
    Direct,
    /// kcompactd, woken for an allocation of some order.
    Daemon,
    /// kcompactd in proactive compaction, until the fragmentation score is low.
    Proactive,
    /// Ingens' periodic compaction, which ends after a batch.
    Periodic,
}

/// A compaction request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The node; a direct run continues with other nodes' zones.
    pub node: usize,
    /// The wanted order.
    pub order: u8,
    /// Mobility of the wanted pages.
    pub mobility: Mobility,
    /// How hard the run tries.
    pub mode: Mode,
    /// Whether to scan the whole zone from its ends, ignoring skip hints of pageblocks.
    pub whole: bool,
    /// Caller.
    pub caller: Caller,
    /// Maximum number of pages to migrate; at the limit the run ends as contended.
    pub budget: Option<u64>,
}

impl Request {
    /// Creates the request of a page fault.
    pub const fn direct(node: usize, order: u8, mobility: Mobility, mode: Mode) -> Self {
        Self { node, order, mobility, mode, whole: false, caller: Caller::Direct, budget: None }
    }
    /// Creates the request of kcompactd woken for an order.
    pub const fn daemon(node: usize, order: u8) -> Self {
        let direct = Self::direct(node, order, Mobility::Movable, Mode::SyncLight);
        Self { caller: Caller::Daemon, ..direct }
    }
    /// Creates the request of Ingens' periodic compaction: one batch, whatever is free and however often a run failed
    /// (linux-4.3-ingens/mm/compaction.c: `compact_pgdat_periodic`, `osa_cc_counts`).
    pub const fn periodic(node: usize) -> Self {
        Self { caller: Caller::Periodic, mode: Mode::Sync, ..Self::daemon(node, 9) }
    }
    /// Creates the request of proactive kcompactd.
    pub const fn proactive(node: usize) -> Self {
        Self { caller: Caller::Proactive, whole: true, ..Self::daemon(node, 9) }
    }
}

/// Result of a run, ordered by progress (Linux' `enum compact_result`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// No zone was suitable: too little free memory, or the cause is not fragmentation.
    Skipped,
    /// Deferred after a recent failure.
    Deferred,
    /// The whole zone was scanned without success.
    Complete,
    /// The scanners met, but the run had not started at the zone's ends.
    Partial,
    /// Aborted: no free target frame was left, or the budget was used up.
    Contended,
    /// A block of the order is free, or the request can claim one.
    Success,
}

/// Results of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Outcome.
    pub result: Outcome,
    /// Pages migrated.
    pub migrated: u64,
    /// Pages that could not be migrated.
    pub failed: u64,
    /// Frames that either scanner looked at: a free block, and a pageblock that is left out, are passed by one look. See
    /// docs/decisions/lab-model.md#22.
    pub looked_at: u64,
}

impl Report {
    pub(crate) const NOTHING: Self =
        Self { result: Outcome::Skipped, migrated: 0, failed: 0, looked_at: 0 };

    fn add(&mut self, other: Self) {
        self.result = self.result.max(other.result);
        self.migrated += other.migrated;
        self.failed += other.failed;
        self.looked_at += other.looked_at;
    }
}

/// Compaction state kept between runs.
#[derive(Debug, Clone)]
pub struct Compaction {
    settings: Settings,
    zones: Vec<Memo>,
    /// Number of calls of [`Self::is_contended`].
    asked: u64,
}

#[derive(Debug, Clone)]
struct Memo {
    /// Pageblock at which the next migration scan starts, for asynchronous runs and for others.
    migrate: [usize; 2],
    /// Pageblock at which the next free scan starts, downwards.
    free: usize,
    deferral: Deferral,
    /// Whether to reset skip hints of pageblocks when kswapd goes to sleep.
    flush: bool,
}

impl Memo {
    fn new(pageblocks: usize) -> Self {
        let free = pageblocks.saturating_sub(1);
        Self { migrate: [0; 2], free, deferral: Deferral::default(), flush: false }
    }
}

impl Compaction {
    /// Creates the state before any compaction.
    pub fn new(memory: &Memory, settings: Settings) -> Self {
        let zones = memory.zones.iter().map(|zone| Memo::new(zone.blocks.len())).collect();
        Self { settings, zones, asked: 0 }
    }

    /// Changes the settings; the state between runs stays.
    pub(crate) fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns whether the next run finds a lock contended: `permille` of every 1000 runs do, evenly spread. See
    /// docs/decisions/lab-model.md#2.
    pub(crate) fn is_contended(&mut self, permille: u16) -> bool {
        let each = u64::from(permille);
        self.asked += 1;
        self.asked * each / 1000 != (self.asked - 1) * each / 1000
    }

    /// Compacts one zone after the other until a zone satisfies the request (`try_to_compact_pages`).
    pub fn compact(
        &mut self,
        memory: &mut Memory,
        residents: &mut impl Residents,
        request: Request,
    ) -> Report {
        let mut report = Report::NOTHING;
        for zone in self.zones_for(memory, request) {
            let deferral = &mut self.zones[zone].deferral;
            let patient = request.mode != Mode::Sync && request.caller != Caller::Proactive;
            if patient && deferral.defers(request.order, self.settings.defer_shift) {
                report.add(Report { result: Outcome::Deferred, ..Report::NOTHING });
                continue;
            }
            let done = self.compact_zone(memory, residents, zone, request);
            report.add(done);
            let deferral = &mut self.zones[zone].deferral;
            match done.result {
                Outcome::Success => {
                    deferral.reset(request.order, false);
                    if request.caller == Caller::Direct {
                        break;
                    }
                }
                Outcome::Complete | Outcome::Partial
                    if request.mode != Mode::Async
                        && !matches!(request.caller, Caller::Proactive | Caller::Periodic) =>
                {
                    deferral.failed(request.order, self.settings.defer_shift);
                }
                _ => {}
            }
        }
        memory.check();
        report
    }

    /// Returns the zones to compact: the daemon's own node, or, for an allocation, all zones it may use.
    fn zones_for(&self, memory: &Memory, request: Request) -> Vec<usize> {
        let list = memory.zonelist(request.node, request.mobility);
        let own = |zone: &usize| {
            request.caller == Caller::Direct || memory.zones[*zone].node == request.node
        };
        list.iter().copied().filter(own).collect()
    }

    fn compact_zone(
        &mut self,
        memory: &mut Memory,
        residents: &mut impl Residents,
        zone: usize,
        request: Request,
    ) -> Report {
        if !matches!(request.caller, Caller::Proactive | Caller::Periodic)
            && let Some(result) = self.unsuitable(memory, zone, request)
        {
            return Report { result, ..Report::NOTHING };
        }
        if self.zones[zone].deferral.restarts(request.order, self.settings.defer_shift) {
            self.forget(memory, zone);
        }
        Run::new(memory, zone, &mut self.zones[zone], self.settings, request).go(residents)
    }

    /// Returns why not to compact a zone (`compaction_suitable`): a block is free already; fewer frames are free than
    /// the watermark plus twice the block; or, for costly orders, the fragmentation index blames lack of memory.
    fn unsuitable(&self, memory: &Memory, zone: usize, request: Request) -> Option<Outcome> {
        let order = request.order;
        let watermarks = memory.zone_watermarks(zone);
        let level = if order > COSTLY_ORDER { watermarks.low } else { watermarks.min };
        let contiguity = memory.zones[zone].contiguity(order);
        if memory.zone_allows(zone, Level::Low, order, request.mobility) {
            return Some(Outcome::Success);
        }
        if contiguity.free < level + (2 << order) {
            return Some(Outcome::Skipped);
        }
        let index = contiguity.fragmentation_index(order);
        let lacking = (0..=self.settings.extfrag_threshold).contains(&index);
        (order > COSTLY_ORDER && lacking).then_some(Outcome::Skipped)
    }

    /// Resets a zone's deferral after a successful allocation of this order (`compaction_defer_reset`).
    pub fn allocated(&mut self, memory: &Memory, frame: Frame, order: u8) {
        self.zones[memory.zone_of(frame)].deferral.reset(order, true);
    }

    /// Resets skip hints of pageblocks when kswapd goes to sleep, if a direct run has scanned a zone since the last
    /// reset (`reset_isolation_suitable`).
    pub fn reset_hints(&mut self, memory: &mut Memory, node: usize) {
        for zone in 0..self.zones.len() {
            if memory.zones[zone].node == node && self.zones[zone].flush {
                self.forget(memory, zone);
            }
        }
    }

    fn forget(&mut self, memory: &mut Memory, zone: usize) {
        let blocks = &mut memory.zones[zone].blocks;
        blocks.iter_mut().for_each(|block| block.flags &= !SKIP);
        let memo = &mut self.zones[zone];
        *memo = Memo { deferral: memo.deferral, ..Memo::new(blocks.len()) };
    }
}

// Deferral: exponential back-off of compaction in a zone after failures (Linux' `compact_defer_shift`).

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Deferral {
    /// Attempts since the last failed run.
    considered: u32,
    /// log2 of the number of attempts per run.
    shift: u8,
    /// The smallest order that failed. Smaller orders are not deferred.
    failed: u8,
}

impl Deferral {
    /// Counts an attempt. Returns whether to skip it (`compaction_deferred`).
    fn defers(&mut self, order: u8, most: u8) -> bool {
        if order < self.failed {
            return false;
        }
        let limit = 1 << self.shift.min(most);
        self.considered += 1;
        if self.considered >= limit {
            self.considered = limit;
            return false;
        }
        true
    }

    /// Records a run that scanned its whole zone without success (`defer_compaction`).
    fn failed(&mut self, order: u8, most: u8) {
        self.considered = 0;
        self.shift = (self.shift + 1).min(most);
        self.failed = self.failed.min(order);
    }

    /// Records a successful run or, with `allocated`, a successful allocation (`compaction_defer_reset`).
    fn reset(&mut self, order: u8, allocated: bool) {
        if allocated {
            self.considered = 0;
            self.shift = 0;
        }
        if order >= self.failed {
            self.failed = order + 1;
        }
    }

    /// Returns whether this attempt follows the longest deferral, so that skip hints are stale
    /// (`compaction_restarting`).
    fn restarts(&self, order: u8, most: u8) -> bool {
        order >= self.failed && self.shift >= most && self.considered >= 1 << self.shift
    }
}

// Evacuation: migrates all pages of a pageblock or a run of pageblocks (Linux' `alloc_contig_range`, FreeBSD's
// `vm_page_reclaim_contig`, which Quicksilver calls for inactive reservations).

/// Result of evacuating a pageblock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// Pages migrated.
    pub moved: u32,
    /// Frames whose pages stay: unmovable, failed to migrate, or no target frame was free.
    pub stay: u32,
    /// Frames that were free and are now held.
    pub taken: u32,
}

/// Migrates every page out of the pageblock at `block`. Afterwards none of its frames is free. Free and emptied frames
/// are held without an owner, like those that a reservation held before. If `stay` is 0, the caller holds the pageblock
/// as one block of order 9. Otherwise the caller may free the held frames ([`Memory::free_unowned`]).
pub fn evacuate(memory: &mut Memory, residents: &mut impl Residents, block: Frame) -> Evacuation {
    let frames = (block.0..block.0 + PAGEBLOCK).map(Frame);
    let mut report = Evacuation::default();
    for frame in frames.clone() {
        report.taken += u32::from(memory.is_free(frame) && memory.claim(frame, 0));
    }
    let node = memory.node(block);
    for from in frames {
        let owner = memory.owner(from);
        if owner == Owner::None {
            continue;
        }
        let to =
            if owner.movable() { memory.allocate(0, Mobility::Movable, node, false) } else { None };
        let Some(to) = to else {
            report.stay += 1;
            continue;
        };
        if residents.moved(owner, from, to.frame) {
            memory.set_owner(to.frame, owner);
            memory.set_owner(from, Owner::None);
            report.moved += 1;
        } else {
            memory.free(to.frame, 0);
            report.stay += 1;
        }
    }
    report
}

/// Frees a run of 2^`order` aligned, contiguous frames on a node, larger than a pageblock: evacuates runs in ascending
/// order until one is empty (`alloc_contig_pages`). Returns all moved pages, and the pages that stay in the last run.
pub fn evacuate_run(
    memory: &mut Memory,
    residents: &mut impl Residents,
    order: u8,
    node: usize,
) -> Evacuation {
    let mut report = Evacuation::default();
    for run in memory.movable_runs(order, node) {
        report.stay = 0;
        // Claims all free frames first, so no page moves into another pageblock of the run.
        for frame in run.clone().map(Frame) {
            report.taken += u32::from(memory.is_free(frame) && memory.claim(frame, 0));
        }
        for block in pageblocks(&run) {
            let done = evacuate(memory, residents, block);
            report.moved += done.moved;
            report.stay += done.stay;
        }
        pageblocks(&run).for_each(|block| memory.free_unowned(block));
        if report.stay == 0 {
            break;
        }
    }
    report
}

// Isolation: takes pages to migrate and free target frames from pageblocks.

enum Isolated {
    /// A batch was isolated; it is empty if the pageblock has no pages to migrate.
    Batch,
    /// The scanners met.
    Met,
}

impl Run<'_> {
    /// Isolates up to 32 pages from the next suitable pageblock (`isolate_migratepages`).
    fn isolate_batch(&mut self) -> Isolated {
        while !self.met() {
            let mut block = (self.migrate / PAGEBLOCK) as usize;
            let begins = self.migrate.is_multiple_of(PAGEBLOCK);
            if begins {
                let found = self.search();
                block = found.unwrap_or((self.migrate / PAGEBLOCK) as usize);
                self.migrate = block as u32 * PAGEBLOCK;
                if found.is_none() && self.met() {
                    break;
                }
                let skipped = found.is_none() && !self.request.whole && self.flagged(block, SKIP);
                if skipped || !self.is_source(block) {
                    self.report.looked_at += 1;
                    self.migrate += PAGEBLOCK;
                    continue;
                }
            }
            self.isolate_from(block);
            if self.migrate.is_multiple_of(PAGEBLOCK) && self.batch.is_empty() {
                self.memory.zones[self.zone].blocks[block].flags |= SKIP;
                self.remember(block + 1);
            }
            return Isolated::Batch;
        }
        Isolated::Met
    }

    fn flagged(&self, block: usize, flag: u8) -> bool {
        self.memory.zones[self.zone].blocks[block].flags & flag != 0
    }

    /// Returns whether a pageblock is a migration source (`suitable_migration_source`). An asynchronous direct run
    /// takes only its own mobility, because its allocation must be able to use the freed block. Superpages stay.
    fn is_source(&self, block: usize) -> bool {
        let record = &self.memory.zones[self.zone].blocks[block];
        if record.flags & WHOLE != 0 || record.is_wholly_free() {
            return false;
        }
        let picky = self.request.caller == Caller::Direct && self.request.mode == Mode::Async;
        !picky || record.mobility == self.memory.list_of(self.request.mobility)
    }

    /// Lets later runs start after a pageblock in which nothing was found (`update_cached_migrate`).
    fn remember(&mut self, block: usize) {
        let starts = &mut self.memo.migrate;
        starts[0] = starts[0].max(block);
        if self.request.mode != Mode::Async {
            starts[1] = starts[1].max(block);
        }
    }

    /// Isolates pages of a pageblock from the scanner's position on (`isolate_migratepages_block`). An asynchronous
    /// direct run puts back the pages of a block of the wanted order if one of them cannot be moved.
    fn isolate_from(&mut self, block: usize) {
        let zone = &self.memory.zones[self.zone];
        let base = (zone.first + block) << PAGEBLOCK_ORDER;
        let step = 1 << self.request.order.min(PAGEBLOCK_ORDER);
        let mut slot = self.migrate % PAGEBLOCK;
        let mut kept = 0;
        while slot < PAGEBLOCK && self.batch.len() < BATCH {
            if slot.is_multiple_of(step) {
                kept = self.batch.len();
            }
            self.report.looked_at += 1;
            if let Some(order) = zone.order_around(block, slot) {
                slot = ((slot >> order << order) + (1 << order)).min(PAGEBLOCK);
                continue;
            }
            let word = self.memory.owners[base + slot as usize];
            if is_movable(word) {
                self.batch.push(Frame(base as u32 + slot));
            } else if self.gives_up() {
                self.batch.truncate(kept);
                slot = slot / step * step + step;
                continue;
            }
            slot += 1;
        }
        self.migrate = block as u32 * PAGEBLOCK + slot;
    }

    fn spare_frame(&mut self, wanted: usize) -> Option<Frame> {
        if self.spare.is_empty() {
            self.isolate_free(wanted);
        }
        self.spare.pop()
    }

    /// Isolates free blocks from the free lists, the largest first, until `wanted` frames are available: those in the
    /// upper quarter between the scanners (`fast_isolate_freepages`). The order of the lists is not modelled: of the
    /// suitable blocks the first above the quarter's middle is taken.
    fn isolate_listed(&mut self, wanted: usize) {
        let here = (self.migrate / PAGEBLOCK) as usize;
        let from = self.free.0 - self.free.0.saturating_sub(here) / 8;
        self.memory.zones[self.zone].settle();
        for order in (0..self.request.order.min(PAGEBLOCK_ORDER)).rev() {
            if self.spare.len() >= wanted {
                break;
            }
            let zone = &self.memory.zones[self.zone];
            let listed = &zone.index[Mobility::Movable.index()][order as usize];
            let Some(block) = listed.from(from).next() else { continue };
            let slots = (0..PAGEBLOCK).step_by(1 << order);
            let free = |slot: &u32| zone.order_around(block, *slot) == Some(order);
            let Some(slot) = slots.into_iter().find(free) else { continue };
            self.isolate_block(block, slot, order);
        }
    }

    /// Isolates the free block of `order` at a slot of a pageblock.
    fn isolate_block(&mut self, block: usize, slot: u32, order: u8) {
        let zone = &mut self.memory.zones[self.zone];
        zone.claim(block, slot, order);
        let start = zone.frame(block, slot).0;
        self.spare.extend((start..start + (1 << order)).map(Frame));
        self.report.looked_at += 1;
    }

    /// Isolates free frames from the free lists, then downwards from the zone's end, until `wanted` are available
    /// (`isolate_freepages`).
    fn isolate_free(&mut self, wanted: usize) {
        if self.settings.fast_search && !self.request.whole && !self.met() {
            self.isolate_listed(wanted);
        }
        while !self.met() && self.spare.len() < wanted {
            let (block, from) = self.free;
            if !self.is_target(block) {
                self.report.looked_at += 1;
                self.free = (block - 1, 0);
                continue;
            }
            let done = self.isolate_free_from(block, from, wanted);
            if done < PAGEBLOCK {
                self.free.1 = done;
                break;
            }
            self.memory.zones[self.zone].blocks[block].flags |= SKIP;
            self.memo.free = self.memo.free.min(block - 1);
            self.free = (block - 1, 0);
        }
        // Sorts descending: the lowest frames are used first.
        self.spare.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Returns whether a pageblock is a migration target (`suitable_migration_target`): movable and not wholly free.
    fn is_target(&self, block: usize) -> bool {
        let record = &self.memory.zones[self.zone].blocks[block];
        let skipped = !self.request.whole && record.flags & SKIP != 0 && self.free.1 == 0;
        !skipped
            && record.free > 0
            && !record.is_wholly_free()
            && record.mobility == Mobility::Movable
    }

    /// Isolates the free blocks of a pageblock, ascending. Returns the slot where the scan continues.
    fn isolate_free_from(&mut self, block: usize, from: u32, wanted: usize) -> u32 {
        let mut slot = from;
        while slot < PAGEBLOCK && self.spare.len() < wanted {
            let Some(order) = self.memory.zones[self.zone].order_around(block, slot) else {
                self.report.looked_at += 1;
                slot += 1;
                continue;
            };
            let order = order.min(slot.trailing_zeros() as u8).min(PAGEBLOCK_ORDER);
            self.isolate_block(block, slot, order);
            slot += 1 << order;
        }
        slot
    }
}

// Fragmentation score, which starts proactive compaction (Linux since 5.9).

impl Zone {
    /// Returns the percentage of the zone's free memory that is not in superpages (`extfrag_for_order`).
    pub(crate) fn score(&self) -> u32 {
        let contiguity = self.contiguity(PAGEBLOCK_ORDER);
        if contiguity.free == 0 {
            return 0;
        }
        let usable = contiguity.suitable << PAGEBLOCK_ORDER;
        ((contiguity.free - usable) * 100 / contiguity.free) as u32
    }
}

impl Settings {
    /// Returns the scores at which proactive compaction stops and starts (`fragmentation_score_wmark`).
    pub(crate) const fn score_limits(self) -> (u32, u32) {
        let low = 100u32.saturating_sub(self.proactiveness as u32);
        let low = if low < 5 { 5 } else { low };
        let high = if low + 10 > 100 { 100 } else { low + 10 };
        (low, high)
    }
}

impl Compaction {
    /// Returns a node's fragmentation score, 0 to 100: the sum of the zones' scores weighted by size, each rounded down
    /// (`fragmentation_score_node`).
    pub fn score(&self, memory: &Memory, node: usize) -> u32 {
        let zones = || memory.zones.iter().filter(|zone| zone.node == node);
        let frames = |zone: &Zone| (zone.blocks.len() as u64) << PAGEBLOCK_ORDER;
        let all: u64 = zones().map(frames).sum();
        zones().map(|zone| (u64::from(zone.score()) * frames(zone) / (all + 1)) as u32).sum()
    }

    /// Returns whether kcompactd should compact a node proactively now (`should_proactive_compact_node`).
    pub fn is_wanted(&self, memory: &Memory, node: usize) -> bool {
        let (_, high) = self.settings.score_limits();
        self.settings.proactiveness > 0 && self.score(memory, node) > high
    }
}

// One run over one zone. The migration scanner moves up and the free scanner down, until the request is satisfied or
// the scanners meet (`compact_zone`).

/// Pages taken per batch (Linux' COMPACT_CLUSTER_MAX).
const BATCH: usize = 32;

/// A run. Positions are frames relative to the zone's start.
struct Run<'a> {
    memory: &'a mut Memory,
    zone: usize,
    memo: &'a mut Memo,
    settings: Settings,
    request: Request,
    /// The next frame of the migration scanner.
    migrate: u32,
    /// Pageblock of the free scanner, and its position in the pageblock.
    free: (usize, u32),
    /// Whether the run began at the zone's start.
    whole: bool,
    /// Isolated free frames, not yet filled.
    spare: Vec<Frame>,
    batch: Vec<Frame>,
    /// Number of free-list searches without success.
    fruitless: u32,
    /// The lowest pageblock that a search jumped to; the scan resumes there later.
    jumped: Option<usize>,
    report: Report,
}

impl<'a> Run<'a> {
    fn new(
        memory: &'a mut Memory,
        zone: usize,
        memo: &'a mut Memo,
        settings: Settings,
        request: Request,
    ) -> Self {
        let last = memory.zones[zone].blocks.len() - 1;
        let (first, free) = if request.whole {
            (0, last)
        } else {
            (memo.migrate[usize::from(request.mode != Mode::Async)], memo.free)
        };
        Self {
            memory,
            zone,
            memo,
            settings,
            request,
            migrate: first as u32 * PAGEBLOCK,
            free: (free, 0),
            whole: first == 0,
            spare: Vec::new(),
            batch: Vec::with_capacity(BATCH),
            fruitless: 0,
            jumped: None,
            report: Report::NOTHING,
        }
    }

    fn go(mut self, residents: &mut impl Residents) -> Report {
        self.report.result = loop {
            if let Some(result) = self.finished() {
                break result;
            }
            match self.isolate_batch() {
                Isolated::Met => continue,
                Isolated::Batch => {}
            }
            if let Some(result) = self.migrate_batch(residents) {
                break result;
            }
        };
        self.release();
        self.report
    }

    /// Returns whether the scanners are in the same pageblock or have passed each other.
    fn met(&self) -> bool {
        self.free.0 <= (self.migrate / PAGEBLOCK) as usize
    }

    /// Returns the outcome if the run is finished (`__compact_finished`). A run completes its pageblock first.
    fn finished(&mut self) -> Option<Outcome> {
        let zone = &self.memory.zones[self.zone];
        if self.met() {
            let blocks = zone.blocks.len();
            self.memo.migrate = [0; 2];
            self.memo.free = blocks - 1;
            self.memo.flush |= self.request.caller == Caller::Direct;
            return Some(if self.whole { Outcome::Complete } else { Outcome::Partial });
        }
        if self.request.caller == Caller::Proactive {
            let (low, _) = self.settings.score_limits();
            return (zone.score() <= low).then_some(Outcome::Success);
        }
        if self.request.caller == Caller::Periodic {
            return (self.report.migrated > 0).then_some(Outcome::Success);
        }
        if self.request.whole || !self.migrate.is_multiple_of(PAGEBLOCK) {
            return None;
        }
        let mobility = self.memory.list_of(self.request.mobility);
        zone.suits(mobility, self.request.order).then_some(Outcome::Success)
    }

    /// Migrates the batch to spare frames. Pages that cannot move stay. An asynchronous direct run then skips the rest
    /// of the block that it wanted to free.
    fn migrate_batch(&mut self, residents: &mut impl Residents) -> Option<Outcome> {
        let mut refused = 0;
        for at in 0..self.batch.len() {
            let from = self.batch[at];
            if self.request.budget.is_some_and(|budget| self.report.migrated >= budget) {
                self.batch.clear();
                return Some(Outcome::Contended);
            }
            let Some(to) = self.spare_frame(self.batch.len() - at) else {
                // The scanners met and no free frame is left.
                self.batch.clear();
                return None;
            };
            let owner = self.memory.owner(from);
            if residents.moved(owner, from, to) {
                self.memory.set_owner(to, owner);
                self.memory.set_owner(from, Owner::None);
                self.memory.free(from, 0);
                self.report.migrated += 1;
            } else {
                self.spare.push(to);
                refused += 1;
            }
        }
        self.batch.clear();
        self.report.failed += refused;
        if refused > 0 && self.gives_up() {
            let block = 1 << self.request.order;
            let next = (self.migrate - 1) / block * block + block;
            self.migrate = next.min(self.memory.zones[self.zone].blocks.len() as u32 * PAGEBLOCK);
        }
        None
    }

    /// Returns whether a page that stays makes migrating the rest of its block pointless.
    fn gives_up(&self) -> bool {
        self.request.caller == Caller::Direct && self.request.mode == Mode::Async
    }

    /// Returns the pageblock to migrate from next, for a request of a large block (`fast_find_migrateblock`). The
    /// pageblock has free blocks that are nearly large enough, and lies below the middle between the scanners (later:
    /// in the first eighth). `None`: continue in order.
    fn search(&mut self) -> Option<usize> {
        let order = self.request.order;
        let direct = self.request.caller == Caller::Direct;
        let suits = !self.request.whole && order > COSTLY_ORDER;
        if !self.settings.fast_search
            || !suits
            || direct && self.request.mobility != Mobility::Movable
        {
            return None;
        }
        let zone = &mut self.memory.zones[self.zone];
        zone.settle();
        let here = (self.migrate / PAGEBLOCK) as usize;
        let distance = (self.free.0 - here) >> if here == 0 { 1 } else { 3 };
        let end = here + distance;
        let mut left = (BATCH >> self.fruitless.min(15)) + 1;
        for order in (COSTLY_ORDER..order.min(9)).rev() {
            for block in zone.index[Mobility::Movable.index()][order as usize].from(0) {
                if block >= end || left == 0 {
                    break;
                }
                left -= 1;
                if zone.blocks[block].flags & SKIP == 0 {
                    zone.blocks[block].flags |= SKIP;
                    self.jumped = Some(self.jumped.map_or(here, |lowest| lowest.min(here)));
                    self.fruitless = 0;
                    return Some(block);
                }
            }
        }
        self.fruitless += 1;
        if let Some(lowest) = self.jumped.take() {
            self.migrate = lowest as u32 * PAGEBLOCK;
        }
        None
    }

    /// Frees the spare frames. The next free scan starts at the highest of them.
    fn release(&mut self) {
        let Some(&highest) = self.spare.iter().max() else { return };
        let block = self.memory.zones[self.zone].block_of(highest);
        self.memo.free = self.memo.free.max(block);
        for frame in self.spare.drain(..) {
            self.memory.free(frame, 0);
        }
    }
}

#[cfg(test)]
mod deferral_tests {
    use super::*;

    /// Counts attempts skipped between two runs when every run fails.
    #[test]
    fn doubles_up_to_64_attempts() {
        let mut deferral = Deferral::default();
        let skipped: Vec<u32> = (0..9)
            .map(|_| {
                let skipped = (0..).take_while(|_| deferral.defers(9, 6)).count();
                deferral.failed(9, 6);
                skipped as u32
            })
            .collect();
        // The last of each 2^k attempts runs.
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 63, 63]);
        assert!(!deferral.restarts(9, 6));
        while deferral.defers(9, 6) {}
        assert!(deferral.restarts(9, 6));
    }

    #[test]
    fn smaller_orders_than_the_failed_one_are_tried() {
        let mut deferral = Deferral::default();
        deferral.reset(9, false);
        assert!(!deferral.defers(9, 6));
        deferral.failed(9, 6);
        assert!(!deferral.defers(8, 6));
        assert!(deferral.defers(9, 6));
        deferral.reset(9, true);
        assert!(!deferral.defers(9, 6));
    }
}
