//! One zone: a contiguous range of pageblocks with its buddy allocator.
//!
//! Life of a pageblock: wholly free -> partly free (it has a bitmap) -> wholly used -> and back. `orders` has bit k while the pageblock has a maximal free block of
//! order k; two wholly free neighbours are one block of order 10, recorded at the even one. Free
//! blocks are on the lists of their pageblock's mobility always, as in Linux since 6.10; before, pages
//! could lie on another type's list until they were allocated again.

use prefetch_index::prefetch_index;

use super::runs::{Map, Tree};
use super::{Allocated, Frame, MAX_ORDER, Memory, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER, runs};

/// Number of orders, 0 to the largest.
pub(crate) const ORDERS: usize = MAX_ORDER as usize + 1;

/// Pages that a zone accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneKind {
    /// All pages.
    Normal,
    /// Movable pages only.
    Movable,
}

/// A pageblock's record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pageblock {
    /// Number of the pageblock's [`Partial`], kept only while partly free: full memory costs less.
    partial: u32,
    /// Free frames, 0 to 512.
    pub(crate) free: u16,
    /// Bit k: the pageblock has a maximal free block of order k.
    pub(crate) orders: u16,
    /// The lists of its free blocks.
    pub(crate) mobility: Mobility,
    /// See the constants.
    pub(crate) flags: u8,
}

/// Free frames of a wholly free pageblock.
const WHOLE_BLOCK: u16 = PAGEBLOCK as u16;

impl Pageblock {
    /// Whether all frames are free.
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

/// No bitmap.
const WHOLLY: u32 = u32::MAX;

/// The pageblock is allocated and mapped as one superpage.
pub(crate) const WHOLE: u8 = 1;
/// Compaction recently found nothing to do here (Linux' PB_migrate_skip).
pub(crate) const SKIP: u8 = 2;

/// No pageblock.
const NONE: usize = usize::MAX;

/// A zone.
#[derive(Debug, Clone)]
pub(crate) struct Zone {
    pub(crate) node: usize,
    pub(crate) kind: ZoneKind,
    /// Number of the first pageblock; even.
    pub(crate) first: usize,
    pub(crate) blocks: Vec<Pageblock>,
    /// Records of the partly free pageblocks, and unused records.
    partials: Vec<Partial>,
    spare: Vec<u32>,
    /// By mobility: the pageblock that was broken last, which serves the next small allocations if its blocks
    /// fit. It is not in `index`, `counts` and `available`, whose upkeep would cost more than the allocations.
    /// The choice of frames does not depend on this pageblock.
    pub(crate) current: [usize; 3],
    /// The pageblock's free frames are its last ones, so that single frames are taken in order.
    pub(crate) in_order: [bool; 3],
    /// The other pageblocks with a maximal free block, by mobility and order.
    pub(crate) index: [[Tree; ORDERS]; 3],
    /// Number of such blocks.
    pub(crate) counts: [[u32; ORDERS]; 3],
    /// Bitmap of the orders with any block, by mobility.
    pub(crate) available: [u16; 3],
    /// Free frames.
    pub(crate) free: u64,
    /// The zeroed free frames, once any was zeroed.
    pub(crate) zeroed: Option<Box<Zeroed>>,
    /// Positions of reclaim's hands, for the page cache and for anonymous memory, in frames from the zone's
    /// start.
    pub(crate) hands: [u32; 2],
}

impl Zone {
    /// A zone of `pageblocks` (even), all free and movable, as Linux' zones begin.
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

    /// Index of the pageblock of `frame` in this zone.
    #[inline]
    pub(crate) const fn block_of(&self, frame: Frame) -> usize {
        (frame.0 >> PAGEBLOCK_ORDER) as usize - self.first
    }

    /// The frame at `slot` of a pageblock.
    #[inline]
    pub(crate) const fn frame(&self, block: usize, slot: u32) -> Frame {
        Frame(((block + self.first) as u32) << PAGEBLOCK_ORDER | slot)
    }

    /// The frame after the zone's last.
    pub(crate) fn end(&self) -> Frame {
        self.frame(self.blocks.len(), 0)
    }

    /// Takes the lowest block of the smallest sufficient order from the lists of one mobility. The caller
    /// calls `consume_zeros`.
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

    /// Number of single frames that [`Self::take`] would return next as ascending neighbours; 0 also if finding
    /// out needs a search.
    #[inline]
    pub(crate) fn side_by_side(&self, mobility: Mobility) -> u32 {
        let at = mobility.index();
        let smaller = (1 << PAGEBLOCK_ORDER) - 1;
        if !self.in_order[at] || self.available[at] & smaller != 0 {
            return 0;
        }
        u32::from(self.blocks[self.current[at]].free)
    }

    /// The first of these frames.
    #[inline]
    pub(crate) fn next_side_by_side(&self, mobility: Mobility) -> Frame {
        let block = self.current[mobility.index()];
        self.frame(block, PAGEBLOCK - u32::from(self.blocks[block].free))
    }

    /// Takes `count` of these frames at once. The caller calls `consume_zeros`.
    #[inline]
    pub(crate) fn take_side_by_side(&mut self, mobility: Mobility, count: u32) -> Frame {
        let block = self.current[mobility.index()];
        let record = &mut self.blocks[block];
        let slot = PAGEBLOCK - u32::from(record.free);
        record.free -= count as u16;
        // The maximal blocks of a pageblock's last frames are the binary digits of their number.
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

    /// Takes 2^order frames from the lowest free block of order `from` of a mobility that has one.
    #[inline]
    pub(crate) fn take_from(&mut self, mobility: Mobility, from: u8, order: u8) -> Frame {
        let block = self.index[mobility.index()][from as usize].first();
        let block = block.expect("the orders available are those of the index");
        let slot =
            if from < PAGEBLOCK_ORDER { runs::first(&self.part(block).map, from) } else { 0 };
        self.carve(block, slot, from, order);
        self.frame(block, slot)
    }

    /// Takes these 2^order frames if all are free.
    pub(crate) fn claim(&mut self, block: usize, slot: u32, order: u8) -> bool {
        let Some(within) = self.order_around(block, slot) else { return false };
        if within < order {
            return false;
        }
        self.carve(block, slot, within, order);
        self.consume_zeros(block, slot, order);
        true
    }

    /// The record of a partly free pageblock.
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

    /// As [`Self::carve`], from one wholly free pageblock or two.
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

    /// Records that a frame other than the next was taken or freed in a pageblock.
    #[inline]
    fn disorder(&mut self, block: usize) {
        let mobility = self.blocks[block].mobility.index();
        self.in_order[mobility] &= block != self.current[mobility];
    }

    /// Makes a wholly free pageblock wholly used.
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

    /// Makes a pageblock wholly free, not yet on a list. If its neighbour is wholly free, the two merge, and the
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

    /// Adds a maximal free block of an order to a pageblock.
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

    /// Removes a maximal free block of an order from a pageblock.
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

    /// Moves a pageblock with all its free blocks to another mobility; both pageblocks, if two form one free
    /// block.
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

// Queries of a zone.

impl Zone {
    /// Bitmap of the orders with free blocks of a mobility.
    pub(crate) fn orders(&self, mobility: Mobility) -> u16 {
        let current = self.current[mobility.index()];
        let own = self.blocks.get(current).map_or(0, |block| block.orders);
        self.available[mobility.index()] | own
    }

    /// Number of free blocks by mobility and order.
    pub(crate) fn counts(&self) -> [[u32; ORDERS]; 3] {
        let mut counts = self.counts;
        for (counts, &current) in counts.iter_mut().zip(&self.current) {
            let own = self.partial(current).into_iter().flat_map(|part| &part.lists);
            counts.iter_mut().zip(own).for_each(|(count, &own)| *count += u32::from(own));
        }
        counts
    }

    /// Order of the maximal free block around a frame, if the frame is free.
    pub(crate) fn order_around(&self, block: usize, slot: u32) -> Option<u8> {
        if self.blocks[block].is_wholly_free() {
            return Some(PAGEBLOCK_ORDER + u8::from(self.blocks[block ^ 1].is_wholly_free()));
        }
        let map = &self.partial(block)?.map;
        runs::is_free(map, slot, 0).then(|| runs::order_of(map, slot, 0))
    }

    /// Whether a frame is free.
    #[inline]
    pub(crate) fn is_free(&self, frame: Frame) -> bool {
        let block = self.block_of(frame);
        match self.blocks[block].free {
            0 => false,
            WHOLE_BLOCK => true,
            _ => runs::is_free(&self.part(block).map, frame.slot(), 0),
        }
    }

    /// Bitmap of a pageblock's free frames, even if none is stored.
    pub(crate) fn map(&self, block: usize) -> Map {
        let all = if self.blocks[block].is_wholly_free() { u64::MAX } else { 0 };
        self.partial(block).map_or([all; 8], |part| part.map)
    }

    /// The record of a pageblock, if partly free.
    #[inline]
    pub(crate) fn partial(&self, block: usize) -> Option<&Partial> {
        self.partials.get(self.blocks.get(block)?.partial as usize)
    }

    /// Prefetches the record into the host's caches: two lines.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        let number = self.blocks[block].partial;
        if number != WHOLLY {
            prefetch_index(&self.partials, number as usize);
            prefetch_index(&self.partials, number as usize + 1);
        }
    }
}

// Free memory that holds zeros already: what a prezeroing daemon takes and gives back, and what
// allocations that want zeros get.
//
// A bit per frame, kept only once something was zeroed. It is set only while the frame is free; a frame that
// is freed is not zeroed. Lameter's patches kept two buddy pools and merged buddies of the same
// state only; HawkEye marks blocks and puts them at their list's tail. Here buddies merge whatever
// they hold, and a request that wants zeros prefers them where that costs no contiguity: in
// pageblocks that are broken already, then, where one must be broken, in one that is zeroed. Others do
// not avoid zeroed memory, except through the order of addresses.

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

    /// Number of zeroed frames among 2^order frames.
    fn among(&self, block: usize, slot: u32, order: u8) -> u32 {
        let mut all = [0; 8];
        runs::set(&mut all, slot, order);
        self.maps[block].iter().zip(all).map(|(map, mask)| (map & mask).count_ones()).sum()
    }

    /// Marks frames zeroed, or clears the marks; returns whether all were marked before.
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
    /// Clears the marks of frames that were just taken; returns whether all held zeros.
    #[inline]
    pub(crate) fn consume_zeros(&mut self, block: usize, slot: u32, order: u8) -> bool {
        match &mut self.zeroed {
            None => false,
            Some(zeroed) => mark_all(zeroed, block, slot, order, false),
        }
    }

    /// Takes 2^order frames that hold zeros, if possible without loss of contiguity.
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

    /// Whether an ordinary allocation would succeed without breaking a wholly free pageblock.
    fn breaks_none(&self, mobility: Mobility, order: u8) -> bool {
        let small = (1 << PAGEBLOCK_ORDER) - 1;
        (self.orders(mobility) & small) >> order != 0
    }

    /// The lowest free block of 2^order frames in movable pageblocks that is not wholly zeroed.
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

/// [`Zeroed::mark`] for any order.
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
    /// Whether a free block of this order is wholly zeroed.
    pub fn has_zeroed(&self, order: u8) -> bool {
        self.zones.iter().any(|zone| zone.find_zeroed(Mobility::Movable, order).is_some())
    }

    /// Number of free frames that hold zeros.
    pub fn zeroed_frames(&self) -> u64 {
        self.zones
            .iter()
            .filter_map(|zone| zone.zeroed.as_deref())
            .map(|zeroed| zeroed.frames())
            .sum()
    }

    /// Takes the lowest free movable block of 2^`order` frames that is not wholly zeroed, in order to zero it.
    pub fn take_unzeroed(&mut self, order: u8) -> Option<Frame> {
        self.zones.iter_mut().find_map(|zone| {
            let (block, slot) = zone.find_unzeroed(order)?;
            zone.claim(block, slot, order).then(|| zone.frame(block, slot))
        })
    }

    /// Frees the block and marks it zeroed.
    pub fn put_zeroed(&mut self, frame: Frame, order: u8) {
        self.free(frame, order);
        let (zone, block) = self.locate_mut(frame);
        let count = zone.blocks.len();
        let zeroed = zone.zeroed.get_or_insert_with(|| Box::new(Zeroed::new(count)));
        mark_all(zeroed, block, frame.slot(), order, true);
    }

    /// Zeroed frames from one zone's own lists.
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
