//! The queues of partly populated reservations, least recently changed at the head, and the slab's
//! free records. Links are places in the slab; each queue is a ring through a record of its own.

use crate::memory::Frame;

use super::record::Record;
use super::{Flags, Key, ReservationId, Reservations};

/// The queues' ends are the first records of the slab, so that no link is ever empty.
#[derive(Debug)]
pub(super) struct Queues {
    pub count: u8,
    lengths: Vec<u32>,
    /// The first free record, 0: none.
    free: u32,
}

impl Queues {
    pub fn new(records: &mut Vec<Record>, count: u8) -> Self {
        for queue in 0..count {
            let mut end = Record::new(Key { page: 0, order: 0 }, Frame(0), queue, 0);
            (end.newer, end.older) = (u32::from(queue), u32::from(queue));
            end.flags = Flags::NONE;
            records.push(end);
        }
        Self { count, lengths: vec![0; usize::from(count)], free: 0 }
    }

    pub fn length(&self, queue: u8) -> u32 {
        self.lengths[usize::from(queue)]
    }

    pub fn take_record(&mut self, records: &mut Vec<Record>, record: Record) -> ReservationId {
        debug_assert!(record.queue < self.count);
        if self.free == 0 {
            records.push(record);
            return ReservationId::new(records.len() as u32 - 1);
        }
        let id = ReservationId::new(self.free);
        self.free = records[id.at()].newer;
        records[id.at()] = record;
        id
    }

    pub fn free_record(&mut self, records: &mut [Record], id: ReservationId) {
        let record = &mut records[id.at()];
        record.flags = Flags::NONE;
        record.newer = self.free;
        self.free = id.0.get();
    }

    pub fn push_newest(&mut self, records: &mut [Record], id: ReservationId) {
        let end = records[id.at()].queue;
        let last = records[usize::from(end)].older;
        records[last as usize].newer = id.0.get();
        records[usize::from(end)].older = id.0.get();
        let record = &mut records[id.at()];
        (record.older, record.newer) = (last, u32::from(end));
        record.flags.set(Flags::QUEUED);
        self.lengths[usize::from(end)] += 1;
    }

    pub fn unlink(&mut self, records: &mut [Record], id: ReservationId) {
        let record = &mut records[id.at()];
        record.flags.clear(Flags::QUEUED);
        let (older, newer, queue) = (record.older, record.newer, record.queue);
        records[older as usize].newer = newer;
        records[newer as usize].older = older;
        self.lengths[usize::from(queue)] -= 1;
    }
}

impl Reservations {
    /// How many partly populated reservations `queue` has.
    pub fn partly_populated(&self, queue: u8) -> u32 {
        self.queues.length(queue)
    }

    /// The next on the queue that changed later than `than`; the least recently changed for `None`.
    pub fn newer(&self, queue: u8, than: Option<ReservationId>) -> Option<ReservationId> {
        let at = than.map_or(usize::from(queue), ReservationId::at);
        self.queued(self.records[at].newer)
    }

    /// The next on the queue that changed earlier than `than`; the most recently changed for `None`.
    pub fn older(&self, queue: u8, than: Option<ReservationId>) -> Option<ReservationId> {
        let at = than.map_or(usize::from(queue), ReservationId::at);
        self.queued(self.records[at].older)
    }

    /// The reservation at a link's place, unless it is the queue's end.
    fn queued(&self, at: u32) -> Option<ReservationId> {
        (at >= u32::from(self.queues.count)).then(|| ReservationId::new(at))
    }

    /// The least recently changed reservation whose pages should be moved away: it did not change for
    /// more than `after`, or is marked [`Flags::NEEDS_MIGRATION`] (Quicksilver's reclaim pass). The first
    /// active one ends the search, as the queue is ordered by time.
    ///
    /// `passed`: the last one that was looked at and stayed where it is, as its pages could not be
    /// moved. A daemon's pass begins with `None`, and keeps the `passed` it had after a success.
    pub fn oldest_inactive(
        &self,
        queue: u8,
        passed: Option<ReservationId>,
        now: u64,
        after: u64,
    ) -> Option<ReservationId> {
        let id = self.newer(queue, passed)?;
        let record = &self.records[id.at()];
        let inactive = now.saturating_sub(record.changed) > after;
        (inactive || record.flags.has(Flags::NEEDS_MIGRATION)).then_some(id)
    }

    /// The most recently changed plain reservation with at least `at_least` pages, older than
    /// `than` (Quicksilver's asynchronous prepopulation looks from the tail to the head). The caller
    /// asks for the next before it fills one, since filling moves it.
    pub fn newest_partial(
        &self,
        queue: u8,
        than: Option<ReservationId>,
        at_least: u16,
    ) -> Option<ReservationId> {
        let mut id = self.older(queue, than)?;
        loop {
            let record = &self.records[id.at()];
            if record.count >= at_least.into() && record.flags.is_plain() {
                return Some(id);
            }
            id = self.older(queue, Some(id))?;
        }
    }
}
