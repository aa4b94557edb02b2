//! One run of compaction over one zone: the migration scanner goes up, the free scanner down, until
//! there is what was asked for or they meet (`compact_zone`).

use super::isolate::Isolated;
use super::{COSTLY_ORDER, Caller, Memo, Mode, Outcome, Report, Request, Settings};
use crate::memory::zone::SKIP;
use crate::memory::{Frame, Memory, Mobility, Owner, PAGEBLOCK, Residents};

/// Pages taken per batch (Linux' COMPACT_CLUSTER_MAX).
pub(super) const BATCH: usize = 32;

/// A run. Positions are frames counted from the zone's start.
pub(super) struct Run<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) zone: usize,
    pub(super) memo: &'a mut Memo,
    settings: Settings,
    pub(super) request: Request,
    /// The next frame that the migration scanner looks at.
    pub(super) migrate: u32,
    /// The pageblock that the free scanner is in, and where in it it goes on.
    pub(super) free: (usize, u32),
    /// It began at the zone's start.
    whole: bool,
    /// Free frames that were taken and not yet filled.
    pub(super) spare: Vec<Frame>,
    /// Pages that are to be migrated.
    pub(super) batch: Vec<Frame>,
    /// Searches of the free lists that found nothing.
    fruitless: u32,
    /// The lowest pageblock that such a search jumped to: the scan goes on there afterwards.
    jumped: Option<usize>,
    pub(super) report: Report,
}

impl<'a> Run<'a> {
    pub(super) fn new(
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

    /// Goes on until it is finished.
    pub(super) fn go(mut self, residents: &mut impl Residents) -> Report {
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

    /// Whether the scanners are in the same pageblock, or past each other.
    pub(super) fn met(&self) -> bool {
        self.free.0 <= (self.migrate / PAGEBLOCK) as usize
    }

    /// Whether it is finished, and how (`__compact_finished`). A pageblock is always finished first.
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
        if self.request.whole || !self.migrate.is_multiple_of(PAGEBLOCK) {
            return None;
        }
        let mobility = self.memory.list_of(self.request.mobility);
        zone.suits(mobility, self.request.order).then_some(Outcome::Success)
    }

    /// Moves the batch to spare frames. Pages that cannot be moved stay; an asynchronous direct run then leaves
    /// the rest of the block that it wanted to free.
    fn migrate_batch(&mut self, residents: &mut impl Residents) -> Option<Outcome> {
        let mut refused = 0;
        for at in 0..self.batch.len() {
            let from = self.batch[at];
            if self.request.budget.is_some_and(|budget| self.report.migrated >= budget) {
                self.batch.clear();
                return Some(Outcome::Contended);
            }
            let Some(to) = self.spare_frame(self.batch.len() - at) else {
                // The free scanner found nothing before it met the other one.
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

    /// Whether one page that stays makes the rest of its block not worth moving.
    pub(super) fn gives_up(&self) -> bool {
        self.request.caller == Caller::Direct && self.request.mode == Mode::Async
    }

    /// The pageblock to migrate from next, for a request that wants a large block: one below the middle between
    /// the scanners (later: the first eighth) that has free blocks nearly as large already
    /// (`fast_find_migrateblock`). `None`: go on in order.
    pub(super) fn search(&mut self) -> Option<usize> {
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

    /// Gives the spare frames back; the next free scan begins where the highest of them was.
    fn release(&mut self) {
        let Some(&highest) = self.spare.iter().max() else { return };
        let block = self.memory.zones[self.zone].block_of(highest);
        self.memo.free = self.memo.free.max(block);
        for frame in self.spare.drain(..) {
            self.memory.free(frame, 0);
        }
    }
}
