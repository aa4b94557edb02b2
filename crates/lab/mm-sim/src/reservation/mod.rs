//! The reservation table. A reservation is a physical superpage that is reserved for a virtual extent and populated
//! page by page (docs/sources/policies.md 3.2, 3.5 and 3.6). Reservations above 512 base pages have one population map
//! per 512 pages.
//!
//! The simulated system owns one [`Reservations`] and is its only caller. The table knows no contents of frames, no
//! page tables and no allocator. The caller reports which pages are populated, and the table returns the frames that
//! the caller must free.
//!
//! Life of a reservation: [`create`](Reservations::create)d over a free block without populated pages. While partly
//! populated it is on a queue, least recently changed first; while full it is off the queue. It ends when its last page
//! is freed, or when it is broken, preempted or removed.
//!
//! Times are virtual, in any unit (the system uses cycles), and never decrease.

mod record;

pub(crate) use record::set_run;
pub use record::{Flags, Key, Population, ReservationId, clear_runs};

use std::collections::{BTreeMap, BTreeSet};

use prefetch_index::prefetch_index;

use crate::memory::Frame;
use record::{Index, Queues, Record, has_clear};

/// Order of the superpage of 512 base pages: the largest reservation with a single population map.
pub const SUPERPAGE_ORDER: u8 = 9;

/// Configuration of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Minimum time between two moves of a reservation to its queue's tail (FreeBSD `PARTPOPSLOP` = 1 tick,
    /// `vm_reserv.c`). At least 1.
    pub tick: u64,
    /// Number of queues of partly populated reservations: one per node (FreeBSD) or one in total (Quicksilver).
    pub queues: u8,
    /// Orders of all sizes, ascending, if reservations are preempted by obtainable size (Navarro et al.). Empty: no
    /// preemption, and [`Reservations::preempt`] returns `None`.
    pub preemption_sizes: Vec<u8>,
}

/// Result of populating pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populated {
    /// The first page or the first run of pages was populated.
    First,
    /// Number of populated pages.
    Partly(u32),
    /// All pages are populated: the reservation may be mapped as a superpage.
    Full,
}

/// Result of depopulating pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depopulated {
    /// Number of pages still populated. The frames stay reserved.
    Partly(u32),
    /// No page is populated: the reservation is removed, and the caller frees the whole block.
    Empty {
        /// The block's first frame.
        base: Frame,
        /// The block's order.
        order: u8,
    },
}

/// Outcome of renaming a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renamed {
    /// The reservation serves the new extent.
    Moved,
    /// The new extent already has a reservation. The renamed one can only be found by frame and takes no new pages, and
    /// its pages should be migrated (Quicksilver's NEEDMIGRATE after the collapse of a shadow object).
    Displaced,
}

/// All reservations of a machine.
#[derive(Debug)]
pub struct Reservations {
    /// The queues' sentinels, then the reservations. Free records form a list.
    records: Vec<Record>,
    queues: Queues,
    by_page: Index,
    by_frame: Index,
    obtainable: Option<Obtainable>,
    /// Population maps of reservations larger than a superpage.
    larger: Maps,
    tick: u64,
    /// Start of the current tick.
    tick_began: u64,
    live: u32,
    /// Number of reserved frames that are not populated.
    clear_frames: u64,
}

impl Reservations {
    /// Creates an empty table.
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

    /// Reserves the free block at `base` for `key` on queue `queue`, with no page populated.
    ///
    /// The caller must have allocated the block. The extent must contain no resident page and
    /// [`overlap`](Self::overlaps) no reservation.
    pub fn create(&mut self, key: Key, base: Frame, queue: u8, now: u64) -> ReservationId {
        debug_assert!(key.order > 0 && !self.overlaps(key));
        let id = self.insert(Record::new(key, base, queue, now));
        self.by_page.insert(key.page, key.order, id);
        id
    }

    /// Adds a record to the slab and to the index by frame.
    fn insert(&mut self, record: Record) -> ReservationId {
        let (order, base) = (record.order, record.base);
        self.clear_frames += u64::from(record.capacity() - record.count);
        self.live += 1;
        let id = self.queues.take_record(&mut self.records, record);
        self.larger.begin(id, order);
        self.by_frame.insert(base, order, id);
        id
    }

    /// Returns the reservation whose extent covers `page`.
    #[inline]
    pub fn find(&self, page: u32) -> Option<ReservationId> {
        self.by_page.find(page)
    }

    /// Prefetches the reservation's record, which spans two lines, into the host's caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: Option<ReservationId>) {
        if let Some(id) = id {
            prefetch_index(&self.records, id.at());
            prefetch_index(&self.records, id.at() + 1);
        }
    }

    /// Returns the reservation whose block contains `frame`.
    #[inline]
    pub fn at(&self, frame: Frame) -> Option<ReservationId> {
        self.by_frame.find(frame.0)
    }

    /// Returns whether any reservation's extent overlaps that of `key`.
    pub fn overlaps(&self, key: Key) -> bool {
        self.by_page.overlaps(key.page, key.order)
    }

    /// Removes a reservation. The caller frees its frames.
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

    /// Moves a reservation to another extent of the same order, as the collapse of a shadow object does
    /// (`vm_reserv_rename`).
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

// Populating and depopulating, for each fault and each free.

impl Reservations {
    /// Marks the page in `slot` populated. The page must not be populated.
    #[inline]
    pub fn populate(&mut self, id: ReservationId, slot: u32, now: u64) -> Populated {
        debug_assert!(slot < self.records[id.at()].capacity() && !self.is_populated(id, slot));
        let (map, slot) = self.map_mut(id, slot);
        map[usize::from(slot >> 6)] |= 1 << (slot & 63);
        self.populated(id, 1, now)
    }

    /// Marks `pages` pages from `start` on populated, as one change. They must lie within one group of 512, and none
    /// may be populated.
    pub fn populate_run(
        &mut self,
        id: ReservationId,
        start: u32,
        pages: u32,
        now: u64,
    ) -> Populated {
        debug_assert!(start + pages <= self.records[id.at()].capacity() && pages > 0);
        let (map, start) = self.map_mut(id, start);
        debug_assert_eq!(record::count_in(map, start, pages as u16), 0);
        record::set_run(map, start, pages as u16);
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

    /// Marks the page in `slot` free. The page must be populated.
    #[inline]
    pub fn depopulate(&mut self, id: ReservationId, slot: u32, now: u64) -> Depopulated {
        self.depopulate_run(id, slot, 1, now)
    }

    /// Marks `pages` pages from `start` on free, as one change. They must lie within one group of 512, and all must be
    /// populated.
    pub fn depopulate_run(
        &mut self,
        id: ReservationId,
        start: u32,
        pages: u32,
        now: u64,
    ) -> Depopulated {
        debug_assert!(start + pages <= self.records[id.at()].capacity() && pages > 0);
        let (map, start) = self.map_mut(id, start);
        debug_assert_eq!(u32::from(record::count_in(map, start, pages as u16)), pages);
        record::clear_run(map, start, pages as u16);
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

    /// Requeues a reservation that now has `count` populated pages: off the queue if full, else at the tail, at most
    /// once per tick (`vm_reserv_populate`, `vm_reserv_depopulate`).
    ///
    /// If a reservation fills up and loses a page within one tick, the kernel leaves it off the queue until its next
    /// change (`vm_reserv_depopulate`, sys/vm/vm_reserv.c). The table queues it at once.
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

impl Reservations {
    /// Returns the virtual extent of a reservation.
    #[inline]
    pub fn key(&self, id: ReservationId) -> Key {
        let record = &self.records[id.at()];
        Key { page: record.page, order: record.order }
    }

    /// Returns the first frame of the reservation's block.
    #[inline]
    pub fn base(&self, id: ReservationId) -> Frame {
        Frame(self.records[id.at()].base)
    }

    /// Returns the population map of the `part`-th 512 pages.
    #[inline]
    pub fn population(&self, id: ReservationId, part: u32) -> &Population {
        self.map(id, part << SUPERPAGE_ORDER).0
    }

    /// Returns the number of populated pages.
    #[inline]
    pub fn popcnt(&self, id: ReservationId) -> u32 {
        self.records[id.at()].count
    }

    /// Returns whether the page in `slot` is populated.
    #[inline]
    pub fn is_populated(&self, id: ReservationId, slot: u32) -> bool {
        let (map, slot) = self.map(id, slot);
        record::is_set(map, slot)
    }

    /// Returns the number of consecutive unpopulated pages from `slot` on, up to the end of the 512 pages.
    #[inline]
    pub fn clear_ahead(&self, id: ReservationId, slot: u32) -> u32 {
        let pages = self.records[id.at()].capacity().min(1 << SUPERPAGE_ORDER) as u16;
        let (map, slot) = self.map(id, slot);
        u32::from(record::next(map, slot, pages, true) - slot)
    }

    /// Returns the time of the last change of population, in cycles.
    #[inline]
    pub fn last_change(&self, id: ReservationId) -> u64 {
        self.records[id.at()].changed
    }

    /// Returns the reservation's flags.
    #[inline]
    pub fn flags(&self, id: ReservationId) -> Flags {
        self.records[id.at()].flags
    }

    /// Sets a flag for the daemons: [`Flags::BAD`] or [`Flags::NEEDS_MIGRATION`].
    pub fn mark(&mut self, id: ReservationId, flag: Flags) {
        debug_assert!(flag == Flags::BAD || flag == Flags::NEEDS_MIGRATION);
        self.records[id.at()].flags.set(flag);
    }

    /// Returns the number of reservations.
    pub fn len(&self) -> u32 {
        self.live
    }

    /// Returns whether there are no reservations.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the number of reserved frames that are not populated. FreeBSD counts them as free memory.
    pub fn clear_frames(&self) -> u64 {
        self.clear_frames
    }

    /// Returns the memory use of the table itself, in bytes.
    pub fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>() + self.by_page.bytes() + self.by_frame.bytes()
    }
}

// The reservation lists of Navarro et al. (OSDI 2002), one per size except the largest. A reservation is on the list of
// the largest extent that it could yield. Lists are sorted by last allocation.

const NOWHERE: u8 = u8::MAX;

/// List position of a reservation, one per record of the slab.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Time of the last allocation from the reservation, as the number of allocations from the whole table before it.
    stamp: u64,
    list: u8,
}

/// The lists. Reservations are identified by their first frame, which is deterministic.
#[derive(Debug)]
struct Obtainable {
    /// Order 0 and the orders of all sizes, ascending.
    orders: Vec<u8>,
    /// Stamp and first frame, by index in `orders`.
    lists: Vec<BTreeSet<(u64, u32)>>,
    places: Vec<Place>,
    clock: u64,
}

impl Obtainable {
    pub fn new(sizes: &[u8]) -> Self {
        let mut orders: Vec<u8> = sizes.iter().copied().chain([0]).collect();
        orders.sort_unstable();
        orders.dedup();
        let lists = vec![BTreeSet::new(); orders.len()];
        Self { orders, lists, places: Vec::new(), clock: 0 }
    }

    /// Records that pages of `record` were populated.
    pub fn allocated(&mut self, at: usize, record: &Record) {
        self.clock += 1;
        let list = self.list_of(record);
        let stamp = self.clock;
        self.put(at, record.base, Place { stamp, list });
    }

    /// Records that some pages of `record` were freed and others are left.
    pub fn freed(&mut self, at: usize, record: &Record) {
        let list = self.list_of(record);
        self.put(at, record.base, Place { stamp: self.stamp(at), list });
    }

    /// Adds a `record` that was split from a reservation with this stamp.
    pub fn inherit(&mut self, at: usize, record: &Record, stamp: u64) {
        let list = self.list_of(record);
        self.put(at, record.base, Place { stamp, list });
    }

    /// Removes `record`.
    pub fn forget(&mut self, at: usize, record: &Record) {
        self.put(at, record.base, Place { stamp: 0, list: NOWHERE });
    }

    /// Returns the time of the last allocation.
    pub fn stamp(&self, at: usize) -> u64 {
        self.places.get(at).map_or(0, |place| place.stamp)
    }

    /// Returns the next smaller size below `order`, unless that is the base page.
    pub fn below(&self, order: u8) -> Option<u8> {
        self.orders.iter().copied().rev().find(|&size| size < order).filter(|&size| size > 0)
    }

    /// Returns the first frame of the reservation to preempt for an extent of this order.
    pub fn oldest(&self, order: u8) -> Option<u32> {
        let mut lists = self.orders.iter().zip(&self.lists).filter(|&(&size, _)| size >= order);
        lists.find_map(|(_, list)| list.first()).map(|&(_, base)| base)
    }

    /// Returns the list for the largest clear extent of `record`.
    fn list_of(&self, record: &Record) -> u8 {
        let smaller = self.orders.iter().rposition(|&size| match record.order > SUPERPAGE_ORDER {
            // Larger reservations come in one size only, so they yield base pages.
            true => size == 0 && record.count < record.capacity(),
            false => size < record.order && has_clear(&record.population, size, record.order),
        });
        smaller.map_or(NOWHERE, |list| list as u8)
    }

    fn put(&mut self, at: usize, base: u32, new: Place) {
        if at >= self.places.len() {
            self.places.resize(at + 1, Place { stamp: 0, list: NOWHERE });
        }
        let old = std::mem::replace(&mut self.places[at], new);
        if old.list != NOWHERE {
            self.lists[usize::from(old.list)].remove(&(old.stamp, base));
        }
        if new.list != NOWHERE {
            self.lists[usize::from(new.list)].insert((new.stamp, base));
        }
    }
}

// Breaking reservations: the oldest, one with a contiguous clear run, or by obtainable size.

/// Number of base pages of a superpage.
const SUPERPAGE: u32 = 1 << SUPERPAGE_ORDER;

/// A broken reservation. Its populated pages become ordinary pages. The caller frees its clear runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The reservation's extent.
    pub key: Key,
    /// First frame of the reservation's block.
    pub base: Frame,
    /// Population maps, one per 512 pages.
    pub maps: Vec<Population>,
    /// Number of populated pages.
    pub count: u32,
}

impl Broken {
    /// Returns the runs of frames to free, ascending: first frame and length, at most 512.
    pub fn free_runs(&self) -> impl Iterator<Item = (Frame, u16)> + '_ {
        let capacity = SUPERPAGE.min(1 << self.key.order) as u16;
        let bases = (self.base.0..).step_by(SUPERPAGE as usize);
        bases.zip(&self.maps).flat_map(move |(base, map)| {
            let runs = clear_runs(map, capacity);
            runs.map(move |(start, pages)| (Frame(base + u32::from(start)), pages))
        })
    }
}

/// Result of preempting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preempted {
    /// Runs of frames to free: first frame and length. At least one contains an aligned extent of the wanted order.
    pub free_runs: Vec<(Frame, u16)>,
    /// Number of reservations broken.
    pub broken: u32,
}

impl Reservations {
    /// Breaks a reservation, e.g. when its object is destroyed or memory is short.
    pub fn break_reservation(&mut self, id: ReservationId) -> Broken {
        let record = &self.records[id.at()];
        let broken = Broken {
            key: self.key(id),
            base: Frame(record.base),
            maps: self.maps(id).to_vec(),
            count: record.count,
        };
        self.remove(id);
        broken
    }

    /// Breaks the least recently changed partly populated reservation, when base pages run out
    /// (`vm_reserv_reclaim_inactive`).
    pub fn break_oldest(&mut self, queue: u8) -> Option<Broken> {
        let oldest = self.newer(queue, None)?;
        Some(self.break_reservation(oldest))
    }

    /// Returns the least recently changed reservation with `pages` consecutive clear pages (fewer than a superpage)
    /// that start at a multiple of `align`, and their first slot. The caller breaks it (`vm_reserv_reclaim_contig`).
    /// `align` is a power of two.
    pub fn oldest_for_run(
        &self,
        queue: u8,
        pages: u16,
        align: u16,
    ) -> Option<(ReservationId, u32)> {
        debug_assert!(align.is_power_of_two());
        let mut at = None;
        while let Some(id) = self.newer(queue, at) {
            let capacity = self.records[id.at()].capacity().min(SUPERPAGE) as u16;
            let parts = (0..).step_by(SUPERPAGE as usize).zip(self.maps(id));
            let mut runs =
                parts.flat_map(|(at, map)| clear_runs(map, capacity).map(move |run| (at, run)));
            let suitable = runs.find_map(|(at, (start, length))| {
                let first = start.next_multiple_of(align);
                (first + pages <= start + length).then_some(at + u32::from(first))
            });
            if let Some(slot) = suitable {
                return Some((id, slot));
            }
            at = Some(id);
        }
        None
    }

    /// Frees an extent of 2^`order` pages by preemption. Preempts the reservation with the oldest last allocation, from
    /// the list with the smallest sufficient obtainable extent (Navarro et al., OSDI 2002, docs/sources/policies.md
    /// 3.6).
    ///
    /// The reservation is split into extents of the next smaller size. Clear extents are freed. The others become
    /// reservations of that size with the same stamp, so they are preempted next if the extent needs more. The smallest
    /// size is split into base pages.
    pub fn preempt(&mut self, order: u8) -> Option<Preempted> {
        let mut yielded = Preempted { free_runs: Vec::new(), broken: 0 };
        loop {
            let base = self.obtainable.as_ref()?.oldest(order)?;
            let id = self.at(Frame(base)).expect("a listed reservation is live");
            self.split(id, &mut yielded.free_runs);
            yielded.broken += 1;
            let suffices = |&(first, pages): &(Frame, u16)| {
                let start = first.0.next_multiple_of(1 << order);
                start + (1 << order) <= first.0 + u32::from(pages)
            };
            if yielded.free_runs.iter().any(suffices) {
                return Some(yielded);
            }
        }
    }

    /// Splits a reservation into extents of the next smaller size.
    fn split(&mut self, id: ReservationId, free: &mut Vec<(Frame, u16)>) {
        let lists = self.obtainable.as_ref().expect("only a listed reservation is split");
        let (stamp, smaller) = (lists.stamp(id.at()), lists.below(self.key(id).order));
        let (queue, changed) = (self.records[id.at()].queue, self.last_change(id));
        let displaced = self.flags(id).has(Flags::DISPLACED);
        let broken = self.break_reservation(id);
        let Some(order) = smaller else {
            free.extend(broken.free_runs());
            return;
        };
        for start in (0..1u16 << broken.key.order).step_by(1 << order) {
            let base = Frame(broken.base.0 + u32::from(start));
            let key = Key { page: broken.key.page + u32::from(start), order };
            let part = part(&broken.maps[0], start, order);
            if part == [0; 8] {
                match free.last_mut() {
                    Some((first, pages)) if first.0 + u32::from(*pages) == base.0 => {
                        *pages += 1 << order;
                    }
                    _ => free.push((base, 1 << order)),
                }
                continue;
            }
            let mut record = Record::new(key, base, queue, changed);
            record.population = part;
            record.count = part.iter().map(|word| word.count_ones()).sum();
            if displaced {
                record.flags.set(Flags::DISPLACED);
            }
            let partly = record.count < record.capacity();
            let id = self.insert(record);
            if !displaced {
                self.by_page.insert(key.page, order, id);
            }
            if partly {
                self.queues.push_newest(&mut self.records, id);
            }
            if let Some(lists) = &mut self.obtainable {
                lists.inherit(id.at(), &self.records[id.at()], stamp);
            }
        }
    }
}

/// Returns the 2^`order` bits from `start` on, moved to the front.
fn part(map: &Population, start: u16, order: u8) -> Population {
    let mut part = [0; 8];
    for slot in 0..1u16 << order {
        if crate::reservation::record::is_set(map, start + slot) {
            part[usize::from(slot >> 6)] |= 1 << (slot & 63);
        }
    }
    part
}

// Invariants of the table, checked from scratch.

impl Reservations {
    /// Checks all redundant state: counts, queues, both indexes, the slab. Slow: for tests, and for debug builds at
    /// rare points.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn verify(&self) -> Result<(), String> {
        let (mut live, mut clear, mut queued) = (0, 0, 0);
        for (at, record) in self.records.iter().enumerate().skip(usize::from(self.queues.count)) {
            if !record.flags.has(Flags::LIVE) {
                continue;
            }
            let name = || format!("reservation of page {} at frame {}", record.page, record.base);
            let maps = self.maps(ReservationId::new(at as u32)).iter().flatten();
            let ones: u32 = maps.map(|word| word.count_ones()).sum();
            if ones != record.count || record.count > record.capacity() {
                return Err(format!("{}: {ones} bits, count {}", name(), record.count));
            }
            let partly = record.count > 0 && record.count < record.capacity();
            if record.flags.has(Flags::QUEUED) != partly {
                return Err(format!("{}: wrongly on or off the queue", name()));
            }
            if self.at(Frame(record.base)).map(|id| id.at()) != Some(at) {
                return Err(format!("{}: not found by its frame", name()));
            }
            let found = self.find(record.page).map(|id| id.at());
            if !record.flags.has(Flags::DISPLACED) && found != Some(at) {
                return Err(format!("{}: not found by its page", name()));
            }
            live += 1;
            clear += u64::from(record.capacity() - record.count);
            queued += u32::from(partly);
        }
        if (live, clear) != (self.live, self.clear_frames) {
            let (kept, frames) = (self.live, self.clear_frames);
            return Err(format!("{live} live with {clear} clear frames, kept {kept} and {frames}"));
        }
        let mut seen = 0;
        for queue in 0..self.queues.count {
            let (mut at, mut length) = (None, 0);
            while let Some(id) = self.newer(queue, at) {
                let ordered = at.is_none_or(|at| {
                    self.last_change(at) / self.tick <= self.last_change(id) / self.tick
                });
                // Splitting queues old parts at the tail.
                if !ordered && self.obtainable.is_none() {
                    return Err(format!("queue {queue} is not in the order of changes"));
                }
                (at, length) = (Some(id), length + 1);
            }
            if length != self.partly_populated(queue) {
                return Err(format!("queue {queue} holds {length}, kept another count"));
            }
            seen += length;
        }
        if seen != queued {
            return Err(format!("{seen} on the queues, {queued} partly populated"));
        }
        Ok(())
    }
}

// Population maps of reservations above 512 base pages: one map per 512 pages.

#[derive(Debug, Default)]
struct Maps(BTreeMap<ReservationId, Box<[Population]>>);

impl Maps {
    pub fn begin(&mut self, id: ReservationId, order: u8) {
        if order > SUPERPAGE_ORDER {
            self.0.insert(id, vec![[0; 8]; 1 << (order - SUPERPAGE_ORDER)].into());
        }
    }

    pub fn end(&mut self, id: ReservationId, order: u8) {
        if order > SUPERPAGE_ORDER {
            self.0.remove(&id);
        }
    }
}

impl Reservations {
    fn maps(&self, id: ReservationId) -> &[Population] {
        match self.larger.0.get(&id) {
            Some(maps) => maps,
            None => std::slice::from_ref(&self.records[id.at()].population),
        }
    }

    /// Returns the map that contains a slot, and the slot's index in the map.
    #[inline]
    fn map(&self, id: ReservationId, slot: u32) -> (&Population, u16) {
        let record = &self.records[id.at()];
        match record.order > SUPERPAGE_ORDER {
            false => (&record.population, slot as u16),
            true => (&self.maps(id)[(slot >> SUPERPAGE_ORDER) as usize], (slot & 511) as u16),
        }
    }

    #[inline]
    fn map_mut(&mut self, id: ReservationId, slot: u32) -> (&mut Population, u16) {
        let record = &mut self.records[id.at()];
        if record.order <= SUPERPAGE_ORDER {
            return (&mut record.population, slot as u16);
        }
        let maps = self.larger.0.get_mut(&id).expect("a larger reservation has maps");
        (&mut maps[(slot >> SUPERPAGE_ORDER) as usize], (slot & 511) as u16)
    }
}
