//! Compaction: pages are migrated out of low pageblocks into free frames of high ones (Linux' mm/compaction.c,
//! as of 6.5; docs/sources/policies.md 3.1).
//!
//! | file | what it owns |
//! |---|---|
//! | `mod` | what is asked and answered; the zones in turn |
//! | `deferral` | how long compaction is left alone after it failed |
//! | `run` | one run over one zone: both scanners, batches of 32 |
//! | `isolate` | what a run takes from a pageblock |
//! | `proactive` | the fragmentation score that wakes and stops kcompactd |
//! | `evacuate` | emptying one pageblock, or a run of them |
//!
//! Not modelled: per-CPU lists (there are none), lock contention (a budget stands for it), and the free
//! scanner's quick search of free lists (it goes down pageblock by pageblock).

mod deferral;
mod evacuate;
mod isolate;
mod proactive;
mod run;

pub use evacuate::{Evacuation, evacuate, evacuate_run};

use self::deferral::Deferral;
use self::run::Run;
use super::statistics::Level;
use super::zone::SKIP;
use super::{Frame, Memory, Mobility, Residents};

/// Orders above this are "costly": they get a larger reserve, and the fragmentation index is asked
/// (Linux' PAGE_ALLOC_COSTLY_ORDER).
pub(crate) const COSTLY_ORDER: u8 = 3;

/// How compaction is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The largest shift of the deferral (Linux' COMPACT_MAX_DEFER_SHIFT).
    pub defer_shift: u8,
    /// Up to this fragmentation index a failure is put down to a lack of memory (vm.extfrag_threshold).
    pub extfrag_threshold: i32,
    /// vm.compaction_proactiveness.
    pub proactiveness: u8,
    /// Whether partly free pageblocks are looked up on the free lists first (Linux since 5.1).
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
    /// A direct run takes pageblocks of its own mobility only, and leaves one at the first failure.
    Async,
    /// All pageblocks; failures are passed over.
    SyncLight,
    /// The same, and deferral is ignored (Linux' full priority).
    Sync,
}

/// Who compacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// An allocation, in the fault path or khugepaged.
    Direct,
    /// kcompactd, for an order that somebody wanted.
    Daemon,
    /// kcompactd, until the fragmentation score is low.
    Proactive,
}

/// What is asked of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The node; a direct run goes on to other nodes' zones.
    pub node: usize,
    /// The order that is needed.
    pub order: u8,
    /// For pages of this mobility.
    pub mobility: Mobility,
    /// How hard.
    pub mode: Mode,
    /// The whole zone, from its ends, whatever was noted about pageblocks.
    pub whole: bool,
    /// By whom.
    pub caller: Caller,
    /// Pages that may be migrated; then the run ends as contended.
    pub budget: Option<u64>,
}

impl Request {
    /// What a page fault asks for.
    pub const fn direct(node: usize, order: u8, mobility: Mobility, mode: Mode) -> Self {
        Self { node, order, mobility, mode, whole: false, caller: Caller::Direct, budget: None }
    }
    /// What kcompactd does when it was woken for an order.
    pub const fn daemon(node: usize, order: u8) -> Self {
        let direct = Self::direct(node, order, Mobility::Movable, Mode::SyncLight);
        Self { caller: Caller::Daemon, ..direct }
    }
    /// What kcompactd does when the fragmentation score is high.
    pub const fn proactive(node: usize) -> Self {
        Self { caller: Caller::Proactive, whole: true, ..Self::daemon(node, 9) }
    }
}

/// How a run ended, from least to most done (Linux' `enum compact_result`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// No zone was fit for it: too little memory is free, or fragmentation is not what is wrong.
    Skipped,
    /// It failed lately and is left alone.
    Deferred,
    /// The whole zone was gone through, without success.
    Complete,
    /// The scanners met, but they had not begun at the ends.
    Partial,
    /// It was broken off: no free frames to move to, or the budget is spent.
    Contended,
    /// A block of the order is free, or can be claimed.
    Success,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub result: Outcome,
    /// Pages moved.
    pub migrated: u64,
    /// Pages that refused to move.
    pub failed: u64,
    /// Frames that the migration scanner looked at.
    pub scanned: u64,
    /// Frames that the free scanner looked at.
    pub free_scanned: u64,
}

impl Report {
    pub(crate) const NOTHING: Self =
        Self { result: Outcome::Skipped, migrated: 0, failed: 0, scanned: 0, free_scanned: 0 };

    fn add(&mut self, other: Self) {
        self.result = self.result.max(other.result);
        self.migrated += other.migrated;
        self.failed += other.failed;
        self.scanned += other.scanned;
        self.free_scanned += other.free_scanned;
    }
}

/// What compaction remembers between its runs.
#[derive(Debug, Clone)]
pub struct Compaction {
    settings: Settings,
    zones: Vec<Memo>,
    /// How often it was asked whether one meets a lock.
    asked: u64,
}

/// What it remembers of a zone.
#[derive(Debug, Clone)]
struct Memo {
    /// The pageblock where the next migration scan begins, for asynchronous and other runs.
    migrate: [usize; 2],
    /// The pageblock where the next free scan begins, downwards.
    free: usize,
    deferral: Deferral,
    /// The hints on pageblocks are to be forgotten when the page daemon goes to sleep.
    flush: bool,
}

impl Memo {
    fn new(pageblocks: usize) -> Self {
        let free = pageblocks.saturating_sub(1);
        Self { migrate: [0; 2], free, deferral: Deferral::default(), flush: false }
    }
}

impl Compaction {
    /// Nothing was compacted yet.
    pub fn new(memory: &Memory, settings: Settings) -> Self {
        let zones = memory.zones.iter().map(|zone| Memo::new(zone.blocks.len())).collect();
        Self { settings, zones, asked: 0 }
    }

    /// Whether the next run meets somebody else's lock: so many in 1000 do, spread evenly.
    /// See docs/decisions/lab-model.md#2.
    pub(crate) fn is_contended(&mut self, permille: u16) -> bool {
        let each = u64::from(permille);
        self.asked += 1;
        self.asked * each / 1000 != (self.asked - 1) * each / 1000
    }

    /// Compacts zone after zone until one has what is asked for (`try_to_compact_pages`).
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
                    if request.mode != Mode::Async && request.caller != Caller::Proactive =>
                {
                    deferral.failed(request.order, self.settings.defer_shift);
                }
                _ => {}
            }
        }
        memory.check();
        report
    }

    /// A daemon compacts its own node's zones; an allocation all that it may use.
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
        if request.caller != Caller::Proactive
            && let Some(result) = self.unsuitable(memory, zone, request)
        {
            return Report { result, ..Report::NOTHING };
        }
        if self.zones[zone].deferral.restarts(request.order, self.settings.defer_shift) {
            self.forget(memory, zone);
        }
        Run::new(memory, zone, &mut self.zones[zone], self.settings, request).go(residents)
    }

    /// Why a zone is not to be compacted (`compaction_suitable`): the block is there already; too little is
    /// free to move pages to (twice the block beyond the watermark); or, for costly orders, the
    /// fragmentation index says that memory lacks, not contiguity.
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

    /// An allocation of this order succeeded: its zone is not deferred any more
    /// (`compaction_defer_reset`).
    pub fn allocated(&mut self, memory: &Memory, frame: Frame, order: u8) {
        self.zones[memory.zone_of(frame)].deferral.reset(order, true);
    }

    /// The page daemon goes to sleep: what was noted about pageblocks is forgotten, if a direct run
    /// went through a zone since (`reset_isolation_suitable`).
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
