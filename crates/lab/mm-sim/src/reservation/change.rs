//! Populating and depopulating: what happens at each fault and each free.

use crate::memory::Frame;

use super::{Depopulated, Flags, Populated, ReservationId, Reservations, population};

impl Reservations {
    /// Marks the page in `slot` populated. It was not.
    #[inline]
    pub fn populate(&mut self, id: ReservationId, slot: u32, now: u64) -> Populated {
        debug_assert!(slot < self.records[id.at()].capacity() && !self.is_populated(id, slot));
        let (map, slot) = self.map_mut(id, slot);
        map[usize::from(slot >> 6)] |= 1 << (slot & 63);
        self.populated(id, 1, now)
    }

    /// Marks `pages` populated from `start` on, all in one superpage's worth, as one change. None of them was.
    pub fn populate_run(
        &mut self,
        id: ReservationId,
        start: u32,
        pages: u32,
        now: u64,
    ) -> Populated {
        debug_assert!(start + pages <= self.records[id.at()].capacity() && pages > 0);
        let (map, start) = self.map_mut(id, start);
        debug_assert_eq!(population::count_in(map, start, pages as u16), 0);
        population::set_run(map, start, pages as u16);
        self.populated(id, pages, now)
    }

    fn populated(&mut self, id: ReservationId, pages: u32, now: u64) -> Populated {
        self.clear_frames -= u64::from(pages);
        let count = self.records[id.at()].count + pages;
        self.requeue(id, count, now);
        if let Some(obtainable) = &mut self.obtainable {
            obtainable.allocated(id.at(), &self.records[id.at()]);
        }
        match count {
            count if count == self.records[id.at()].capacity() => Populated::Full,
            count if count == pages => Populated::First,
            count => Populated::Partly(count),
        }
    }

    /// Marks the page in `slot` free. It was populated.
    #[inline]
    pub fn depopulate(&mut self, id: ReservationId, slot: u32, now: u64) -> Depopulated {
        self.depopulate_run(id, slot, 1, now)
    }

    /// Marks `pages` free from `start` on, all in one superpage's worth, as one change. All of them were populated.
    pub fn depopulate_run(
        &mut self,
        id: ReservationId,
        start: u32,
        pages: u32,
        now: u64,
    ) -> Depopulated {
        debug_assert!(start + pages <= self.records[id.at()].capacity() && pages > 0);
        let (map, start) = self.map_mut(id, start);
        debug_assert_eq!(u32::from(population::count_in(map, start, pages as u16)), pages);
        population::clear_run(map, start, pages as u16);
        self.clear_frames += u64::from(pages);
        let record = &mut self.records[id.at()];
        let count = record.count - pages;
        if count == 0 {
            record.count = 0;
            let (base, order) = (Frame(record.base), record.order);
            self.remove(id);
            return Depopulated::Empty { base, order };
        }
        self.requeue(id, count, now);
        if let Some(obtainable) = &mut self.obtainable {
            obtainable.freed(id.at(), &self.records[id.at()]);
        }
        Depopulated::Partly(count)
    }

    /// Puts a reservation that changed to `count` pages where it belongs: off the queue if it is full,
    /// else at the tail, once a tick (`vm_reserv_populate`, `vm_reserv_depopulate`).
    ///
    /// The kernel leaves one that filled up and lost a page within one tick off the queue until its next
    /// change (`vm_reserv_depopulate`, sys/vm/vm_reserv.c); here it is queued at once.
    #[inline]
    fn requeue(&mut self, id: ReservationId, count: u32, now: u64) {
        debug_assert!(now >= self.tick_began, "virtual time went back");
        if now - self.tick_began >= self.tick {
            self.tick_began = now - now % self.tick;
        }
        let record = &mut self.records[id.at()];
        let changed_this_tick = record.changed >= self.tick_began;
        record.changed = now;
        record.count = count;
        let (queued, full) = (record.flags.has(Flags::QUEUED), count == record.capacity());
        if queued && changed_this_tick && !full {
            return;
        }
        if queued {
            self.queues.unlink(&mut self.records, id);
        }
        if !full {
            self.queues.push_newest(&mut self.records, id);
        }
    }
}
