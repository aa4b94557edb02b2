//! A reservation's record, 96 bytes. Only the table accesses records.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;

use super::{Reservations, SUPERPAGE_ORDER};
use crate::memory::Frame;

/// The virtual extent that a reservation serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// First page, a multiple of the extent's size.
    pub page: u32,
    /// log2 of the extent's number of pages.
    pub order: u8,
}

/// Identifies a live reservation. Ids are reused after a reservation is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub(super) NonZeroU32);

impl ReservationId {
    /// Returns the id of the record at an index. Index 0 is a queue's sentinel.
    #[inline]
    pub(super) fn new(at: u32) -> Self {
        Self(NonZeroU32::new(at).expect("place 0 is the first queue's end"))
    }
    #[inline]
    pub(super) fn at(self) -> usize {
        self.0.get() as usize
    }
}

/// Flags of a reservation (Quicksilver's names in brackets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The reservation is on a queue of partly populated ones (INPARTPOPQ).
    pub const QUEUED: Self = Self(1);
    /// The reservation came from another extent (TRANSFERRED).
    pub const TRANSFERRED: Self = Self(2);
    /// Its pages should be migrated regardless of its age (NEEDMIGRATE).
    pub const NEEDS_MIGRATION: Self = Self(4);
    /// Filling failed and is not retried (BADBOY).
    pub const BAD: Self = Self(8);
    /// Another reservation serves this one's extent, so this one can only be found by frame.
    pub const DISPLACED: Self = Self(16);
    /// The record is in use.
    pub(super) const LIVE: Self = Self(32);

    /// Returns whether `flag` is set.
    #[inline]
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
    /// Returns whether the reservation is partly populated and has no other flag: Quicksilver's condition for filling.
    #[inline]
    pub const fn is_plain(self) -> bool {
        self.0 == Self::QUEUED.0 | Self::LIVE.0
    }
    #[inline]
    pub(super) const fn set(&mut self, flag: Self) {
        self.0 |= flag.0;
    }
    #[inline]
    pub(super) const fn clear(&mut self, flag: Self) {
        self.0 &= !flag.0;
    }
}

/// A reservation, a queue's sentinel, or a free record.
#[derive(Debug)]
pub(super) struct Record {
    /// Populated pages; unused for reservations above 512 pages.
    pub population: Population,
    /// Time of the last change of population, or of creation.
    pub changed: u64,
    /// First page of the extent.
    pub page: u32,
    /// First frame of the block.
    pub base: u32,
    /// Next record on the queue towards its tail; in a free record, the next free record.
    pub newer: u32,
    /// Next record on the queue towards its head.
    pub older: u32,
    /// Number of populated pages.
    pub count: u32,
    pub order: u8,
    pub flags: Flags,
    /// Number of the queue.
    pub queue: u8,
}

impl Record {
    pub fn new(key: super::Key, base: Frame, queue: u8, now: u64) -> Self {
        Self {
            population: [0; 8],
            changed: now,
            page: key.page,
            base: base.0,
            newer: 0,
            older: 0,
            count: 0,
            order: key.order,
            flags: Flags::LIVE,
            queue,
        }
    }

    /// Returns the number of pages.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        1 << self.order
    }
}

// 64 bytes of map, 8 of time, and the small fields.
const _: () = assert!(size_of::<Record>() == 96);

// Population maps: a bit per base page of a superpage.

/// Populated pages among up to 512: bit `slot & 63` of word `slot >> 6`.
pub type Population = [u64; 8];

/// Returns whether `slot` is populated.
#[inline]
pub(super) const fn is_set(map: &Population, slot: u16) -> bool {
    map[(slot >> 6) as usize] >> (slot & 63) & 1 != 0
}

/// Returns the words that a run touches, with their masks.
fn masks(start: u16, pages: u16) -> impl Iterator<Item = (usize, u64)> {
    let end = u32::from(start) + u32::from(pages);
    let words = if pages == 0 { 0..0 } else { usize::from(start >> 6)..end.div_ceil(64) as usize };
    words.map(move |word| {
        let first = u32::from(start).saturating_sub(word as u32 * 64);
        let past = (end - word as u32 * 64).min(64);
        (word, (!0 << first) & (!0 >> (64 - past)))
    })
}

pub(crate) fn set_run(map: &mut Population, start: u16, pages: u16) {
    masks(start, pages).for_each(|(word, mask)| map[word] |= mask);
}

pub(super) fn clear_run(map: &mut Population, start: u16, pages: u16) {
    masks(start, pages).for_each(|(word, mask)| map[word] &= !mask);
}

pub(super) fn count_in(map: &Population, start: u16, pages: u16) -> u16 {
    masks(start, pages).map(|(word, mask)| (map[word] & mask).count_ones() as u16).sum()
}

/// Returns the first slot from `from` on whose bit equals `set`, or `capacity`.
pub(super) fn next(map: &Population, from: u16, capacity: u16, set: bool) -> u16 {
    let mut slot = from;
    while slot < capacity {
        let word = map[usize::from(slot >> 6)];
        let word = (if set { word } else { !word }) >> (slot & 63);
        if word != 0 {
            return (slot + word.trailing_zeros() as u16).min(capacity);
        }
        slot = (slot | 63) + 1;
    }
    capacity
}

/// Returns the runs of clear pages among the first `capacity` pages, ascending: start and length.
pub fn clear_runs(map: &Population, capacity: u16) -> impl Iterator<Item = (u16, u16)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = next(map, from, capacity, false);
        let end = next(map, start, capacity, true);
        from = end;
        (start < capacity).then_some((start, end - start))
    })
}

/// Returns whether an aligned extent of 2^`order` pages among the first 2^`of` is clear. `order` < `of`.
pub(super) fn has_clear(map: &Population, order: u8, of: u8) -> bool {
    if order >= 6 {
        let words = 1 << (of - 6);
        return map[..words].chunks(1 << (order - 6)).any(|chunk| chunk.iter().all(|&w| w == 0));
    }
    let (words, valid) = if of >= 6 { (1 << (of - 6), !0) } else { (1, (1 << (1 << of)) - 1) };
    // Bits at multiples of 2^order.
    let starts = !0 / (!0 >> (64 - (1 << order)));
    map[..words].iter().any(|word| {
        let mut clear: u64 = !word & valid;
        (0..order).for_each(|step| clear &= clear >> (1 << step));
        clear & starts != 0
    })
}

// The queues of partly populated reservations, least recently changed first, and the free records of the slab. Links
// are slab indexes. Each queue is a ring with a sentinel record.

/// The queues. Their sentinels are the first records of the slab, so every link is valid.
#[derive(Debug)]
pub(super) struct Queues {
    pub count: u8,
    lengths: Vec<u32>,
    /// The first free record; 0: none.
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
    /// Returns the number of partly populated reservations on `queue`.
    pub fn partly_populated(&self, queue: u8) -> u32 {
        self.queues.length(queue)
    }

    /// Returns the next reservation on the queue that changed after `than`. `None`: starts at the least recently
    /// changed.
    pub fn newer(&self, queue: u8, than: Option<ReservationId>) -> Option<ReservationId> {
        let at = than.map_or(usize::from(queue), ReservationId::at);
        self.queued(self.records[at].newer)
    }

    /// Returns the next reservation on the queue that changed before `than`. `None`: starts at the most recently
    /// changed.
    pub fn older(&self, queue: u8, than: Option<ReservationId>) -> Option<ReservationId> {
        let at = than.map_or(usize::from(queue), ReservationId::at);
        self.queued(self.records[at].older)
    }

    /// Returns the reservation at a link, unless it is the queue's sentinel.
    fn queued(&self, at: u32) -> Option<ReservationId> {
        (at >= u32::from(self.queues.count)).then(|| ReservationId::new(at))
    }

    /// Returns the least recently changed reservation whose pages should be migrated: unchanged for more than `after`,
    /// or marked [`Flags::NEEDS_MIGRATION`] (Quicksilver's reclaim pass). The queue is ordered by time, so the search
    /// ends at the first active reservation.
    ///
    /// `passed`: the last reservation that was examined and whose pages could not be moved. A daemon's pass starts with
    /// `None`, and keeps `passed` after a success.
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

    /// Returns the most recently changed plain reservation with at least `at_least` pages that is older than `than`
    /// (Quicksilver's asynchronous prepopulation searches from tail to head). Filling moves a reservation, so the
    /// caller must ask for the next one first.
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

// Lookup of reservations by page or by frame. Each fault makes a lookup. So an array, indexed by extents of order 9,
// serves the reservations of at least that order; a larger reservation fills several elements. A map serves smaller
// ones.

/// Value in `extents` if the extent has only smaller reservations.
const SMALLER: u32 = u32::MAX;

/// Reservations by the number of their first page or frame.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By number >> 9: 0 for none, `SMALLER`, or the id of a reservation of order 9 or more.
    extents: Vec<u32>,
    /// By first number: id and order.
    smaller: BTreeMap<u32, (ReservationId, u8)>,
}

impl Index {
    #[inline]
    pub fn find(&self, number: u32) -> Option<ReservationId> {
        match *self.extents.get((number >> SUPERPAGE_ORDER) as usize)? {
            0 => None,
            SMALLER => self.find_smaller(number),
            id => Some(ReservationId::new(id)),
        }
    }

    #[cold]
    fn find_smaller(&self, number: u32) -> Option<ReservationId> {
        let (&first, &(id, order)) = self.smaller.range(..=number).next_back()?;
        (number - first < 1 << order).then_some(id)
    }

    pub fn overlaps(&self, first: u32, order: u8) -> bool {
        if order > SUPERPAGE_ORDER {
            let extents = extents(first, order);
            let end = extents.end.min(self.extents.len());
            return (extents.start..end).any(|extent| self.extents[extent] != 0);
        }
        match self.extents.get((first >> SUPERPAGE_ORDER) as usize) {
            None | Some(0) => false,
            Some(&SMALLER) => {
                let last = first + (1 << order) - 1;
                self.find_smaller(first).is_some() || self.smaller.range(first..=last).count() > 0
            }
            Some(_) => true,
        }
    }

    pub fn insert(&mut self, first: u32, order: u8, id: ReservationId) {
        debug_assert!(first.trailing_zeros() >= u32::from(order), "{first} of order {order}");
        let extents = extents(first, order);
        if extents.end > self.extents.len() {
            self.extents.resize(extents.end, 0);
        }
        if order >= SUPERPAGE_ORDER {
            self.extents[extents].fill(id.0.get());
        } else {
            self.extents[extents.start] = SMALLER;
            self.smaller.insert(first, (id, order));
        }
    }

    pub fn remove(&mut self, first: u32, order: u8) {
        let extent = first >> SUPERPAGE_ORDER;
        if order < SUPERPAGE_ORDER {
            self.smaller.remove(&first);
            let numbers = extent << SUPERPAGE_ORDER..=extent << SUPERPAGE_ORDER | 511;
            if self.smaller.range(numbers).next().is_some() {
                return;
            }
        }
        self.extents[extents(first, order)].fill(0);
    }

    /// Returns the approximate memory use in bytes; a map node is taken as 24 bytes per entry.
    pub fn bytes(&self) -> usize {
        self.extents.capacity() * 4 + self.smaller.len() * 24
    }
}

/// Returns the extents of a reservation that begins at `first`.
fn extents(first: u32, order: u8) -> Range<usize> {
    let start = (first >> SUPERPAGE_ORDER) as usize;
    start..start + (1 << order.saturating_sub(SUPERPAGE_ORDER))
}
