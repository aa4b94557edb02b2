//! The reservation table: physical superpages that are kept together for a virtual extent and
//! populated page by page (docs/sources/policies.md 3.2, 3.5 and 3.6). Larger ones than a superpage of 512 base pages have a map
//! of their pages for each 512.
//!
//! The simulated system owns one [`Reservations`] and is its only caller. The table knows no frames'
//! contents, no page tables and no allocator: it is given what is populated, and answers with what the
//! caller must hand back to the allocator.
//!
//! Life of a reservation: [`create`](Reservations::create)d over a free block, no page populated;
//! populated and depopulated page by page, which keeps it on the queue of the partly populated, least
//! recently changed first; off the queue while it is full; gone when its last page leaves, when it is
//! broken, preempted or removed.
//!
//! Times are virtual, in any unit (the system uses cycles), and never go back.

mod breaking;
mod change;
mod facts;
mod index;
mod maps;
mod obtainable;
mod population;
mod queue;
mod record;
mod verify;

pub use breaking::{Broken, Preempted};
pub(crate) use population::set_run;
pub use population::{Population, clear_runs};
pub use record::{Flags, Key, ReservationId};

use prefetch_index::prefetch_index;

use crate::memory::Frame;

use self::index::Index;
use self::maps::Maps;
use self::obtainable::Obtainable;
use self::queue::Queues;
use self::record::Record;

/// The superpage of 512 base pages: the largest reservation whose pages one map has.
pub const SUPERPAGE_ORDER: u8 = 9;

/// How a table works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A reservation moves to its queue's tail at most once in this time (FreeBSD `PARTPOPSLOP` = 1
    /// tick, `vm_reserv.c`). At least 1.
    pub tick: u64,
    /// Queues of partly populated reservations: one per node (FreeBSD), or one (Quicksilver).
    pub queues: u8,
    /// The orders of all sizes, ascending, if reservations are preempted by obtainable size (Navarro et
    /// al.). Empty: they are not, and [`Reservations::preempt`] finds none.
    pub preemption_sizes: Vec<u8>,
}

/// What populating did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populated {
    /// The first page, or the first run of pages, of the reservation.
    First,
    /// So many pages are populated now.
    Partly(u32),
    /// All of them are: it may be mapped as a superpage.
    Full,
}

/// What depopulating did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depopulated {
    /// So many pages are populated still. The frames stay reserved.
    Partly(u32),
    /// None is: the reservation is gone, and the caller frees the whole block.
    Empty {
        /// The block's first frame.
        base: Frame,
        /// The block's order.
        order: u8,
    },
}

/// What became of a reservation under a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renamed {
    /// It serves the new extent.
    Moved,
    /// The new extent has a reservation: this one is found by its frames only, takes no new pages, and
    /// wants its pages moved (Quicksilver's NEEDMIGRATE after a shadow object's collapse).
    Displaced,
}

/// All reservations of a machine.
#[derive(Debug)]
pub struct Reservations {
    /// The queues' ends, then the reservations; free records are chained.
    records: Vec<Record>,
    queues: Queues,
    by_page: Index,
    by_frame: Index,
    obtainable: Option<Obtainable>,
    /// The populated pages of reservations that are larger than a superpage.
    larger: Maps,
    tick: u64,
    /// When the present tick began.
    tick_began: u64,
    live: u32,
    /// Reserved frames that are not populated.
    clear_frames: u64,
}

impl Reservations {
    /// An empty table.
    pub fn new(config: &Config) -> Self {
        let mut records = Vec::new();
        let queues = Queues::new(&mut records, config.queues.max(1));
        let sizes = &config.preemption_sizes;
        Self {
            records,
            queues,
            by_page: Index::default(),
            by_frame: Index::default(),
            obtainable: (!sizes.is_empty()).then(|| Obtainable::new(sizes)),
            larger: Maps::default(),
            tick: config.tick.max(1),
            tick_began: 0,
            live: 0,
            clear_frames: 0,
        }
    }

    /// Reserves the free block at `base` for `key`, with no page populated yet. Its queue is `queue`.
    ///
    /// The caller has taken the block from the allocator, and has checked that the extent holds no
    /// resident page and [`overlaps`](Self::overlaps) no reservation.
    pub fn create(&mut self, key: Key, base: Frame, queue: u8, now: u64) -> ReservationId {
        debug_assert!(key.order > 0 && !self.overlaps(key));
        let id = self.insert(Record::new(key, base, queue, now));
        self.by_page.insert(key.page, key.order, id);
        id
    }

    /// Enters a record in the slab and the index of frames.
    fn insert(&mut self, record: Record) -> ReservationId {
        let (order, base) = (record.order, record.base);
        self.clear_frames += u64::from(record.capacity() - record.count);
        self.live += 1;
        let id = self.queues.take_record(&mut self.records, record);
        self.larger.begin(id, order);
        self.by_frame.insert(base, order, id);
        id
    }

    /// The reservation whose extent covers `page`.
    #[inline]
    pub fn find(&self, page: u32) -> Option<ReservationId> {
        self.by_page.find(page)
    }

    /// Brings its record into the host's caches: two lines.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: Option<ReservationId>) {
        if let Some(id) = id {
            prefetch_index(&self.records, id.at());
            prefetch_index(&self.records, id.at() + 1);
        }
    }

    /// The reservation whose block holds `frame`.
    #[inline]
    pub fn at(&self, frame: Frame) -> Option<ReservationId> {
        self.by_frame.find(frame.0)
    }

    /// Whether any reservation's extent has a page in common with `key`'s.
    pub fn overlaps(&self, key: Key) -> bool {
        self.by_page.overlaps(key.page, key.order)
    }

    /// Forgets a reservation; its frames are the caller's business.
    pub fn remove(&mut self, id: ReservationId) {
        let record = &self.records[id.at()];
        self.clear_frames -= u64::from(record.capacity() - record.count);
        self.live -= 1;
        if !record.flags.has(Flags::DISPLACED) {
            self.by_page.remove(record.page, record.order);
        }
        self.by_frame.remove(record.base, record.order);
        self.larger.end(id, record.order);
        if let Some(obtainable) = &mut self.obtainable {
            obtainable.forget(id.at(), record);
        }
        if record.flags.has(Flags::QUEUED) {
            self.queues.unlink(&mut self.records, id);
        }
        self.queues.free_record(&mut self.records, id);
    }

    /// Gives a reservation to another extent of the same order (a shadow object's collapse:
    /// `vm_reserv_rename`).
    pub fn rename(&mut self, id: ReservationId, page: u32) -> Renamed {
        let key = Key { page, order: self.key(id).order };
        let record = &mut self.records[id.at()];
        if !record.flags.has(Flags::DISPLACED) {
            self.by_page.remove(record.page, record.order);
        }
        record.page = page;
        if self.by_page.overlaps(key.page, key.order) {
            record.flags.set(Flags::DISPLACED);
            record.flags.set(Flags::NEEDS_MIGRATION);
            return Renamed::Displaced;
        }
        record.flags.clear(Flags::DISPLACED);
        record.flags.set(Flags::TRANSFERRED);
        self.by_page.insert(key.page, key.order, id);
        Renamed::Moved
    }
}
