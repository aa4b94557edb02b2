//! A zone: a contiguous range of pageblocks with its buddy allocator.
//!
//! Life of a pageblock: wholly free -> partly free (with a bitmap) -> wholly used -> and back. Bit k of `orders` is set
//! while the pageblock has a maximal free block of order k. Two wholly free neighbours form one block of order 10,
//! recorded at the even one. Free blocks are always on the lists of their pageblock's mobility, as in Linux since 6.10.
//! Before, pages could be on another type's list until the next allocation.

use prefetch_index::prefetch_index;

use super::runs::{Map, Tree};
use super::{Allocated, Frame, MAX_ORDER, Memory, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER, runs};

pub(crate) const ORDERS: usize = MAX_ORDER as usize + 1;

/// Pages that a zone accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneKind {
    /// All pages.
    Normal,
    /// Movable pages only.
    Movable,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pageblock {
    /// Number of the pageblock's [`Partial`], which only partly free pageblocks have: full memory costs less.
    partial: u32,
    /// Free frames, 0 to 512.
    pub(crate) free: u16,
    /// Bit k: the pageblock has a maximal free block of order k.
    pub(crate) orders: u16,
    /// Mobility of the lists with its free blocks.
    pub(crate) mobility: Mobility,
    /// [`WHOLE`] and [`SKIP`].
    pub(crate) flags: u8,
}

const WHOLE_BLOCK: u16 = PAGEBLOCK as u16;

impl Pageblock {
    #[inline]
    pub(crate) const fn is_wholly_free(&self) -> bool {
        self.free == WHOLE_BLOCK
    }
}

/// State of a partly free pageblock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Partial {
    /// Free frames.
    pub(crate) map: Map,
    /// Number of maximal free blocks by order, 0 to 8.
    pub(crate) lists: [u16; 9],
}

/// No [`Partial`]: the pageblock is wholly free or wholly used.
const WHOLLY: u32 = u32::MAX;

/// The pageblock is allocated and mapped as one superpage.
pub(crate) const WHOLE: u8 = 1;
/// Compaction recently found nothing to do here (Linux' PB_migrate_skip).
pub(crate) const SKIP: u8 = 2;

const NONE: usize = usize::MAX;

#[derive(Debug, Clone)]
pub(crate) struct Zone {
    pub(crate) node: usize,
    pub(crate) kind: ZoneKind,
    /// Number of the first pageblock; even.
    pub(crate) first: usize,
    pub(crate) blocks: Vec<Pageblock>,
    /// Records of the partly free pageblocks, by record number.
    partials: Vec<Partial>,
    /// Numbers of the unused records.
    spare: Vec<u32>,
    /// By mobility: the last pageblock that was broken up. It serves the next small allocations if its blocks fit.
    /// `index`, `counts` and `available` exclude it, because updating them would cost more than the allocations. The
    /// choice of frames is the same as if it were included.
    pub(crate) current: [usize; 3],
    /// By mobility: whether the free frames of the current pageblock are its last ones, so single frames come in order.
    pub(crate) in_order: [bool; 3],
    /// Other pageblocks with a maximal free block, by mobility and order.
    pub(crate) index: [[Tree; ORDERS]; 3],
    /// Number of free blocks in `index`.
    pub(crate) counts: [[u32; ORDERS]; 3],
    /// Bitmap of the orders with a free block in `index`, by mobility.
    pub(crate) available: [u16; 3],
    pub(crate) free: u64,
    /// Zeroed free frames; `None` until a frame was zeroed.
    pub(crate) zeroed: Option<Box<Zeroed>>,
    /// Positions of reclaim's hands for the page cache and for anonymous memory, in frames relative to the zone's
    /// start.
    pub(crate) hands: [u32; 2],
}

impl Zone {
    /// Creates a zone of `pageblocks` (even), all free and movable, as in Linux.
    pub(crate) fn new(node: usize, kind: ZoneKind, first: usize, pageblocks: usize) -> Self {
        let free = Pageblock {
            partial: WHOLLY,
            free: WHOLE_BLOCK,
            orders: 0,
            mobility: Mobility::Movable,
            flags: 0,
        };
        let mut zone = Self {
            node,
            kind,
            first,
            blocks: vec![free; pageblocks],
            partials: Vec::new(),
            spare: Vec::new(),
            current: [NONE; 3],
            in_order: [false; 3],
            index: std::array::from_fn(|_| std::array::from_fn(|_| Tree::new(pageblocks))),
            counts: [[0; ORDERS]; 3],
            available: [0; 3],
            free: pageblocks as u64 * u64::from(PAGEBLOCK),
            zeroed: None,
            hands: [0; 2],
        };
        for block in (0..pageblocks).step_by(2) {
            zone.enlist(block, MAX_ORDER);
        }
        zone
    }

    /// Returns the index in this zone of the pageblock of `frame`.
    #[inline]
    pub(crate) const fn block_of(&self, frame: Frame) -> usize {
        (frame.0 >> PAGEBLOCK_ORDER) as usize - self.first
    }

    #[inline]
    pub(crate) const fn frame(&self, block: usize, slot: u32) -> Frame {
        Frame(((block + self.first) as u32) << PAGEBLOCK_ORDER | slot)
    }

    /// Returns the frame after the zone's last.
    pub(crate) fn end(&self) -> Frame {
        self.frame(self.blocks.len(), 0)
    }

    /// Takes the lowest block of the smallest sufficient order from the lists of one mobility. The caller must call
    /// `consume_zeros`.
    #[inline]
    pub(crate) fn take(&mut self, mobility: Mobility, order: u8) -> Option<Frame> {
        if order == 0 && self.side_by_side(mobility) > 0 {
            return Some(self.take_side_by_side(mobility, 1));
        }
        let current = self.current[mobility.index()];
        let rest = (self.available[mobility.index()] >> order).trailing_zeros();
        if current != NONE {
            let own = (self.blocks[current].orders >> order).trailing_zeros();
            let lower = || {
                let index = &self.index[mobility.index()][order as usize + own as usize];
                index.first().is_none_or(|first| current < first)
            };
            if own < rest || own == rest && own < 16 && lower() {
                let slot = runs::first(&self.part(current).map, order + own as u8);
                self.carve(current, slot, order + own as u8, order);
                return Some(self.frame(current, slot));
            }
        }
        (rest < 16).then(|| self.take_from(mobility, order + rest as u8, order))
    }

    /// Returns the number of ascending neighbours that successive single-frame calls of [`Self::take`] would return.
    /// Also returns 0 if a search would be needed to find the number.
    #[inline]
    pub(crate) fn side_by_side(&self, mobility: Mobility) -> u32 {
        let at = mobility.index();
        let smaller = (1 << PAGEBLOCK_ORDER) - 1;
        if !self.in_order[at] || self.available[at] & smaller != 0 {
            return 0;
        }
        u32::from(self.blocks[self.current[at]].free)
    }

    /// Returns the first of these neighbours.
    #[inline]
    pub(crate) fn next_side_by_side(&self, mobility: Mobility) -> Frame {
        let block = self.current[mobility.index()];
        self.frame(block, PAGEBLOCK - u32::from(self.blocks[block].free))
    }

    /// Takes `count` of these neighbours at once. The caller must call `consume_zeros`.
    #[inline]
    pub(crate) fn take_side_by_side(&mut self, mobility: Mobility, count: u32) -> Frame {
        let block = self.current[mobility.index()];
        let record = &mut self.blocks[block];
        let slot = PAGEBLOCK - u32::from(record.free);
        record.free -= count as u16;
        // The last `free` frames of a pageblock split into maximal blocks as the binary digits of `free`.
        record.orders = record.free;
        let part = &mut self.partials[record.partial as usize];
        for (order, listed) in part.lists.iter_mut().enumerate() {
            *listed = record.free >> order & 1;
        }
        runs::clear_until(&mut part.map, slot, count);
        self.free -= u64::from(count);
        if self.blocks[block].free == 0 {
            self.end_part(block);
        }
        self.frame(block, slot)
    }

    /// Returns the current pageblocks to the lists.
    pub(crate) fn settle(&mut self) {
        Mobility::ALL.into_iter().for_each(|mobility| self.settle_one(mobility.index()));
    }

    fn settle_one(&mut self, mobility: usize) {
        let block = std::mem::replace(&mut self.current[mobility], NONE);
        self.in_order[mobility] = false;
        let Some(&Partial { lists, .. }) = self.partial(block) else { return };
        for (order, &count) in lists.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.counts[mobility][order] += u32::from(count);
            self.available[mobility] |= 1 << order;
            self.index[mobility][order].insert(block);
        }
    }

    /// Takes 2^order frames from the lowest free block of order `from` of a mobility. Such a block must exist.
    #[inline]
    pub(crate) fn take_from(&mut self, mobility: Mobility, from: u8, order: u8) -> Frame {
        let block = self.index[mobility.index()][from as usize].first();
        let block = block.expect("the orders available are those of the index");
        let slot =
            if from < PAGEBLOCK_ORDER { runs::first(&self.part(block).map, from) } else { 0 };
        self.carve(block, slot, from, order);
        self.frame(block, slot)
    }

    /// Takes these 2^order frames if all of them are free. Returns whether they were.
    pub(crate) fn claim(&mut self, block: usize, slot: u32, order: u8) -> bool {
        let Some(within) = self.order_around(block, slot) else { return false };
        if within < order {
            return false;
        }
        self.carve(block, slot, within, order);
        self.consume_zeros(block, slot, order);
        true
    }

    #[inline]
    fn part(&self, block: usize) -> &Partial {
        &self.partials[self.blocks[block].partial as usize]
    }

    #[inline]
    fn part_mut(&mut self, block: usize) -> &mut Partial {
        &mut self.partials[self.blocks[block].partial as usize]
    }

    /// Starts the record of a pageblock that becomes partly free.
    fn begin_part(&mut self, block: usize, map: Map) {
        let part = Partial { map, lists: [0; 9] };
        let number = self.spare.pop().unwrap_or(self.partials.len() as u32);
        match self.partials.get_mut(number as usize) {
            Some(at) => *at = part,
            None => self.partials.push(part),
        }
        self.blocks[block].partial = number;
    }

    /// Ends the record of a pageblock that becomes wholly free or wholly used.
    fn end_part(&mut self, block: usize) {
        let number = std::mem::replace(&mut self.blocks[block].partial, WHOLLY);
        if number != WHOLLY {
            self.spare.push(number);
        }
    }

    /// Takes 2^order frames at `slot` from the surrounding maximal free block of order `from`.
    #[inline]
    fn carve(&mut self, block: usize, slot: u32, from: u8, order: u8) {
        self.free -= 1 << order;
        if from < PAGEBLOCK_ORDER {
            self.disorder(block);
            runs::clear(&mut self.part_mut(block).map, slot, order);
            self.blocks[block].free -= 1 << order;
            for rest in order..from {
                self.enlist(block, rest);
            }
            self.delist(block, from);
            if self.blocks[block].free == 0 {
                self.end_part(block);
            }
        } else {
            self.carve_whole(block, slot, from, order);
        }
    }

    /// As [`Self::carve`], from a free block of one or two whole pageblocks.
    fn carve_whole(&mut self, block: usize, slot: u32, from: u8, order: u8) {
        if from == MAX_ORDER {
            self.delist(block & !1, MAX_ORDER);
            if order == MAX_ORDER {
                self.use_up(block ^ 1);
            } else {
                self.enlist(block ^ 1, PAGEBLOCK_ORDER);
            }
        } else {
            self.delist(block, PAGEBLOCK_ORDER);
        }
        self.use_up(block);
        if order < PAGEBLOCK_ORDER {
            let mobility = self.blocks[block].mobility.index();
            self.settle_one(mobility);
            self.current[mobility] = block;
            self.in_order[mobility] = slot == 0;
            self.begin_part(block, [u64::MAX; 8]);
            runs::clear(&mut self.part_mut(block).map, slot, order);
            self.blocks[block].free = WHOLE_BLOCK - (1 << order);
            for rest in order..PAGEBLOCK_ORDER {
                self.enlist(block, rest);
            }
        }
    }

    /// Records that frames were taken or freed out of order in a pageblock.
    #[inline]
    fn disorder(&mut self, block: usize) {
        let mobility = self.blocks[block].mobility.index();
        self.in_order[mobility] &= block != self.current[mobility];
    }

    fn use_up(&mut self, block: usize) {
        self.blocks[block].free = 0;
    }

    /// Frees 2^order frames and merges them with their buddies.
    #[inline]
    pub(crate) fn give(&mut self, block: usize, slot: u32, order: u8) {
        self.free += 1 << order;
        if order >= PAGEBLOCK_ORDER {
            for block in block..block + (1 << (order - PAGEBLOCK_ORDER)) {
                assert!(self.blocks[block].free == 0, "a block is freed that is not wholly in use");
                self.become_free(block);
            }
            return;
        }
        self.disorder(block);
        let record = &mut self.blocks[block];
        assert!(record.free as u32 + (1 << order) <= PAGEBLOCK, "frames are freed twice");
        record.free += 1 << order;
        if record.partial == WHOLLY {
            self.begin_part(block, [0; 8]);
        }
        let map = &mut self.part_mut(block).map;
        assert!(runs::is_used(map, slot, order), "frames are freed twice");
        runs::set(map, slot, order);
        let merged = runs::order_of(map, slot, order);
        for buddy in order..merged {
            self.delist(block, buddy);
        }
        if merged == PAGEBLOCK_ORDER {
            self.become_free(block);
        } else {
            self.enlist(block, merged);
        }
    }

    /// Makes a pageblock wholly free without listing it. If its neighbour is wholly free, the two merge and the
    /// neighbour takes this pageblock's mobility (`__free_one_page` since 6.10).
    fn become_free(&mut self, block: usize) {
        let record = &mut self.blocks[block];
        record.free = WHOLE_BLOCK;
        let mobility = record.mobility.index();
        if self.current[mobility] == block {
            (self.current[mobility], self.in_order[mobility]) = (NONE, false);
        }
        self.end_part(block);
        let neighbour = block ^ 1;
        if !self.blocks[neighbour].is_wholly_free() {
            return self.enlist(block, PAGEBLOCK_ORDER);
        }
        self.delist(neighbour, PAGEBLOCK_ORDER);
        self.blocks[neighbour].mobility = self.blocks[block].mobility;
        self.enlist(block & !1, MAX_ORDER);
    }

    /// Lists a maximal free block of a pageblock.
    #[inline]
    fn enlist(&mut self, block: usize, order: u8) {
        let record = &mut self.blocks[block];
        let mobility = record.mobility.index();
        let is_first = order >= PAGEBLOCK_ORDER || {
            let count = &mut self.partials[record.partial as usize].lists[order as usize];
            *count += 1;
            *count == 1
        };
        record.orders |= 1 << order;
        if block == self.current[mobility] {
            return;
        }
        self.counts[mobility][order as usize] += 1;
        if is_first {
            self.available[mobility] |= 1 << order;
            self.index[mobility][order as usize].insert(block);
        }
    }

    /// Delists a maximal free block of a pageblock.
    #[inline]
    fn delist(&mut self, block: usize, order: u8) {
        let record = &mut self.blocks[block];
        let mobility = record.mobility.index();
        let was_last = order >= PAGEBLOCK_ORDER || {
            let count = &mut self.partials[record.partial as usize].lists[order as usize];
            *count -= 1;
            *count == 0
        };
        record.orders &= !(u16::from(was_last) << order);
        if block == self.current[mobility] {
            return;
        }
        let all = &mut self.counts[mobility][order as usize];
        *all -= 1;
        if was_last {
            self.available[mobility] &= !(u16::from(*all == 0) << order);
            self.index[mobility][order as usize].remove(block);
        }
    }

    /// Moves a pageblock with its free blocks to another mobility, together with its buddy if both form one free block.
    pub(crate) fn set_mobility(&mut self, block: usize, mobility: Mobility) {
        if self.blocks[block].is_wholly_free() && self.blocks[block ^ 1].is_wholly_free() {
            self.change(block ^ 1, mobility);
        }
        self.change(block, mobility);
    }

    fn change(&mut self, block: usize, mobility: Mobility) {
        self.settle();
        let Pageblock { orders, mobility: before, .. } = self.blocks[block];
        let (old, new) = (before.index(), mobility.index());
        for order in (0..=MAX_ORDER).filter(|order| orders >> order & 1 != 0) {
            let at = order as usize;
            let listed = self.partial(block).and_then(|part| part.lists.get(at));
            let count = listed.map_or(1, |&count| u32::from(count));
            self.counts[old][at] -= count;
            self.counts[new][at] += count;
            if self.counts[old][at] == 0 {
                self.available[old] &= !(1 << order);
            }
            self.available[new] |= 1 << order;
            self.index[old][at].remove(block);
            self.index[new][at].insert(block);
        }
        self.blocks[block].mobility = mobility;
    }
}

impl Zone {
    /// Returns a bitmap of the orders with free blocks of a mobility.
    pub(crate) fn orders(&self, mobility: Mobility) -> u16 {
        let current = self.current[mobility.index()];
        let own = self.blocks.get(current).map_or(0, |block| block.orders);
        self.available[mobility.index()] | own
    }

    pub(crate) fn counts(&self) -> [[u32; ORDERS]; 3] {
        let mut counts = self.counts;
        for (counts, &current) in counts.iter_mut().zip(&self.current) {
            let own = self.partial(current).into_iter().flat_map(|part| &part.lists);
            counts.iter_mut().zip(own).for_each(|(count, &own)| *count += u32::from(own));
        }
        counts
    }

    /// Returns the order of the maximal free block around a frame; `None` if the frame is used.
    pub(crate) fn order_around(&self, block: usize, slot: u32) -> Option<u8> {
        if self.blocks[block].is_wholly_free() {
            return Some(PAGEBLOCK_ORDER + u8::from(self.blocks[block ^ 1].is_wholly_free()));
        }
        let map = &self.partial(block)?.map;
        runs::is_free(map, slot, 0).then(|| runs::order_of(map, slot, 0))
    }

    #[inline]
    pub(crate) fn is_free(&self, frame: Frame) -> bool {
        let block = self.block_of(frame);
        match self.blocks[block].free {
            0 => false,
            WHOLE_BLOCK => true,
            _ => runs::is_free(&self.part(block).map, frame.slot(), 0),
        }
    }

    /// Returns the bitmap of a pageblock's free frames, also for pageblocks without a record.
    pub(crate) fn map(&self, block: usize) -> Map {
        let all = if self.blocks[block].is_wholly_free() { u64::MAX } else { 0 };
        self.partial(block).map_or([all; 8], |part| part.map)
    }

    /// Returns the record of a pageblock, if partly free.
    #[inline]
    pub(crate) fn partial(&self, block: usize) -> Option<&Partial> {
        self.partials.get(self.blocks.get(block)?.partial as usize)
    }

    /// Prefetches the record, which spans two lines, into the host's caches.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        let number = self.blocks[block].partial;
        if number != WHOLLY {
            prefetch_index(&self.partials, number as usize);
            prefetch_index(&self.partials, number as usize + 1);
        }
    }
}

// Free memory that holds zeros. A prezeroing daemon fills it, and allocations that need zeros prefer it.
//
// There is one bit per frame, allocated when a frame is first zeroed and set only while the frame is free. A freed
// frame is dirty. Lameter's patches kept two buddy pools, and merged buddies only in the same pool. HawkEye marks
// blocks and puts them at the tail of their list. Here buddies merge whatever they hold. A request for zeros prefers
// zeroed frames if that costs no contiguity: first in pageblocks that are broken up already; if one must be broken up,
// in a zeroed one. Other requests do not avoid zeroed memory.

/// The zeroed frames of a zone.
#[derive(Debug, Clone)]
pub(crate) struct Zeroed {
    maps: Vec<Map>,
    /// The pageblocks with zeroed frames.
    any: Tree,
    frames: u64,
}

impl Zeroed {
    fn new(pageblocks: usize) -> Self {
        Self { maps: vec![[0; 8]; pageblocks], any: Tree::new(pageblocks), frames: 0 }
    }

    /// Returns the number of zeroed frames among 2^order frames.
    fn among(&self, block: usize, slot: u32, order: u8) -> u32 {
        let mut all = [0; 8];
        runs::set(&mut all, slot, order);
        self.maps[block].iter().zip(all).map(|(map, mask)| (map & mask).count_ones()).sum()
    }

    /// Sets or clears the marks of frames. Returns whether all were marked before.
    fn mark(&mut self, block: usize, slot: u32, order: u8, zeroed: bool) -> bool {
        let before = self.among(block, slot, order);
        if zeroed {
            runs::set(&mut self.maps[block], slot, order);
            self.any.insert(block);
            self.frames += u64::from((1 << order) - before);
        } else if before > 0 {
            runs::clear(&mut self.maps[block], slot, order);
            self.frames -= u64::from(before);
            if self.maps[block] == [0; 8] {
                self.any.remove(block);
            }
        }
        before == 1 << order
    }

    pub(crate) fn map(&self, block: usize) -> &Map {
        &self.maps[block]
    }

    pub(crate) const fn frames(&self) -> u64 {
        self.frames
    }
}

impl Zone {
    /// Clears the marks of frames that were just taken. Returns whether all held zeros.
    #[inline]
    pub(crate) fn consume_zeros(&mut self, block: usize, slot: u32, order: u8) -> bool {
        match &mut self.zeroed {
            None => false,
            Some(zeroed) => mark_all(zeroed, block, slot, order, false),
        }
    }

    /// Takes 2^order frames that hold zeros, if that costs no contiguity.
    pub(crate) fn take_zeroed(&mut self, mobility: Mobility, order: u8) -> Option<Frame> {
        let (block, slot) = self.find_zeroed(mobility, order)?;
        self.claim(block, slot, order).then(|| self.frame(block, slot))
    }

    fn find_zeroed(&self, mobility: Mobility, order: u8) -> Option<(usize, u32)> {
        let zeroed = self.zeroed.as_ref()?;
        if zeroed.frames < 1 << order {
            return None;
        }
        let own = |block: &usize| self.blocks[*block].mobility == mobility;
        let run = |block: usize| {
            let map = zeroed.map(block);
            let found = (order..PAGEBLOCK_ORDER).find(|&order| runs::has(map, order))?;
            Some((block, runs::first(map, found)))
        };
        if order < PAGEBLOCK_ORDER {
            let broken = |block: &usize| own(block) && !self.blocks[*block].is_wholly_free();
            let found = zeroed.any.from(0).filter(broken).find_map(run);
            if found.is_some() || self.breaks_none(mobility, order) {
                return found;
            }
        }
        let full = |block: usize| *zeroed.map(block) == [u64::MAX; 8];
        let whole = |block: &usize| {
            let pair = order < MAX_ORDER || block.is_multiple_of(2) && full(block + 1);
            own(block) && self.blocks[*block].is_wholly_free() && full(*block) && pair
        };
        Some((zeroed.any.from(0).find(whole)?, 0))
    }

    /// Returns whether an ordinary allocation would succeed without breaking up a wholly free pageblock.
    fn breaks_none(&self, mobility: Mobility, order: u8) -> bool {
        let small = (1 << PAGEBLOCK_ORDER) - 1;
        (self.orders(mobility) & small) >> order != 0
    }

    /// Returns the lowest free block of 2^order frames in movable pageblocks that is not wholly zeroed.
    fn find_unzeroed(&self, order: u8) -> Option<(usize, u32)> {
        let holds_zeros = |block: usize, slot, order| {
            self.zeroed.as_ref().is_some_and(|zeroed| runs::is_free(zeroed.map(block), slot, order))
        };
        let all_zeros = |block: usize| (0..2).all(|half| holds_zeros(block, half << 8, 8));
        for (number, block) in self.blocks.iter().enumerate() {
            if block.mobility != Mobility::Movable || u32::from(block.free) < 1 << order.min(9) {
                continue;
            }
            if order == MAX_ORDER {
                let pair = block.orders >> MAX_ORDER & 1 != 0;
                if pair && !(all_zeros(number) && all_zeros(number + 1)) {
                    return Some((number, 0));
                }
            } else if order == PAGEBLOCK_ORDER {
                if !all_zeros(number) {
                    return Some((number, 0));
                }
            } else {
                let map = self.map(number);
                let free = |slot: &u32| {
                    runs::is_free(&map, *slot, order) && !holds_zeros(number, *slot, order)
                };
                if let Some(slot) = (0..PAGEBLOCK).step_by(1 << order).find(free) {
                    return Some((number, slot));
                }
            }
        }
        None
    }
}

/// As [`Zeroed::mark`], for any order.
fn mark_all(zeroed: &mut Zeroed, block: usize, slot: u32, order: u8, to: bool) -> bool {
    match order {
        0..9 => zeroed.mark(block, slot, order, to),
        _ => {
            let halves = 2usize << (order - PAGEBLOCK_ORDER);
            let marked = (0..halves)
                .filter(|half| zeroed.mark(block + half / 2, (*half as u32 & 1) << 8, 8, to));
            marked.count() == halves
        }
    }
}

impl Memory {
    /// Returns whether a free block of this order is wholly zeroed.
    pub fn has_zeroed(&self, order: u8) -> bool {
        self.zones.iter().any(|zone| zone.find_zeroed(Mobility::Movable, order).is_some())
    }

    /// Returns the number of free frames that hold zeros.
    pub fn zeroed_frames(&self) -> u64 {
        self.zones
            .iter()
            .filter_map(|zone| zone.zeroed.as_deref())
            .map(|zeroed| zeroed.frames())
            .sum()
    }

    /// Takes the lowest free movable block of 2^`order` frames that is not wholly zeroed; the caller zeroes it.
    pub fn take_unzeroed(&mut self, order: u8) -> Option<Frame> {
        self.zones.iter_mut().find_map(|zone| {
            let (block, slot) = zone.find_unzeroed(order)?;
            zone.claim(block, slot, order).then(|| zone.frame(block, slot))
        })
    }

    /// Frees a block and marks it zeroed.
    pub fn put_zeroed(&mut self, frame: Frame, order: u8) {
        self.free(frame, order);
        let (zone, block) = self.locate_mut(frame);
        let count = zone.blocks.len();
        let zeroed = zone.zeroed.get_or_insert_with(|| Box::new(Zeroed::new(count)));
        mark_all(zeroed, block, frame.slot(), order, true);
    }

    /// Takes zeroed frames from one zone's own lists.
    pub(crate) fn allocate_zeroed(
        &mut self,
        zone: usize,
        order: u8,
        mobility: Mobility,
    ) -> Option<Allocated> {
        let frame = self.zones[zone].take_zeroed(mobility, order)?;
        Some(Allocated { frame, zeroed: true, stolen: false })
    }
}
