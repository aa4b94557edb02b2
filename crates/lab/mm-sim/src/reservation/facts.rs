//! What can be asked of the table and of a reservation.

use crate::memory::Frame;

use super::record::Record;
use super::{Flags, Key, Population, ReservationId, Reservations, SUPERPAGE_ORDER, population};

impl Reservations {
    /// The virtual extent it serves.
    #[inline]
    pub fn key(&self, id: ReservationId) -> Key {
        let record = &self.records[id.at()];
        Key { page: record.page, order: record.order }
    }

    /// Its block's first frame.
    #[inline]
    pub fn base(&self, id: ReservationId) -> Frame {
        Frame(self.records[id.at()].base)
    }

    /// Which of its pages are populated, a bit each: of 512 at a time.
    #[inline]
    pub fn population(&self, id: ReservationId, part: u32) -> &Population {
        self.map(id, part << SUPERPAGE_ORDER).0
    }

    /// How many of its pages are populated.
    #[inline]
    pub fn popcnt(&self, id: ReservationId) -> u32 {
        self.records[id.at()].count
    }

    /// Whether the page in `slot` is populated.
    #[inline]
    pub fn is_populated(&self, id: ReservationId, slot: u32) -> bool {
        let (map, slot) = self.map(id, slot);
        population::is_set(map, slot)
    }

    /// How many pages from `slot` on are not populated, up to 512 pages' end.
    #[inline]
    pub fn clear_ahead(&self, id: ReservationId, slot: u32) -> u32 {
        let pages = self.records[id.at()].capacity().min(1 << SUPERPAGE_ORDER) as u16;
        let (map, slot) = self.map(id, slot);
        u32::from(population::next(map, slot, pages, true) - slot)
    }

    /// When a page of it was populated or depopulated last.
    #[inline]
    pub fn last_change(&self, id: ReservationId) -> u64 {
        self.records[id.at()].changed
    }

    /// Its flags.
    #[inline]
    pub fn flags(&self, id: ReservationId) -> Flags {
        self.records[id.at()].flags
    }

    /// Sets a flag for the daemons: [`Flags::BAD`] or [`Flags::NEEDS_MIGRATION`].
    pub fn mark(&mut self, id: ReservationId, flag: Flags) {
        debug_assert!(flag == Flags::BAD || flag == Flags::NEEDS_MIGRATION);
        self.records[id.at()].flags.set(flag);
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Frames that are reserved and not populated. FreeBSD counts them as free memory.
    pub fn clear_frames(&self) -> u64 {
        self.clear_frames
    }

    /// Memory that the table itself uses, in bytes.
    pub fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>() + self.by_page.bytes() + self.by_frame.bytes()
    }
}
