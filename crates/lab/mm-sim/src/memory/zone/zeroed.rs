//! Free memory that holds zeros already: what a prezeroing daemon takes and gives back, and what
//! allocations that want zeros get.
//!
//! A bit per frame, kept only once something was zeroed. It is set only while the frame is free; a frame that
//! is freed is not zeroed. Lameter's patches kept two buddy pools and merged buddies of the same
//! state only; HawkEye marks blocks and puts them at their list's tail. Here buddies merge whatever
//! they hold, and a request that wants zeros prefers them where that costs no contiguity: in
//! pageblocks that are broken already, then, where one must be broken, in one that is zeroed. Others do
//! not avoid zeroed memory, except through the order of addresses.

use super::Zone;
use crate::memory::runs::{self, Map};
use crate::memory::tree::Tree;
use crate::memory::{Allocated, Frame, MAX_ORDER, Memory, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER};

/// The zeroed frames of a zone.
#[derive(Debug, Clone)]
pub(crate) struct Zeroed {
    maps: Vec<Map>,
    /// The pageblocks that have any.
    any: Tree,
    frames: u64,
}

impl Zeroed {
    fn new(pageblocks: usize) -> Self {
        Self { maps: vec![[0; 8]; pageblocks], any: Tree::new(pageblocks), frames: 0 }
    }

    /// The zeroed ones among 2^order frames.
    fn among(&self, block: usize, slot: u32, order: u8) -> u32 {
        let mut all = [0; 8];
        runs::set(&mut all, slot, order);
        self.maps[block].iter().zip(all).map(|(map, mask)| (map & mask).count_ones()).sum()
    }

    /// Marks them, or takes their marks away; says whether all had them.
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
    /// Frames that were just taken lose their marks; says whether all of them held zeros.
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

    /// Whether an ordinary allocation would be served without breaking a wholly free pageblock.
    fn breaks_none(&self, mobility: Mobility, order: u8) -> bool {
        let small = (1 << PAGEBLOCK_ORDER) - 1;
        (self.orders(mobility) & small) >> order != 0
    }

    /// The lowest free block of 2^order frames of movable pageblocks that does not hold zeros only.
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
    /// Whether a free block of this size holds zeros only.
    pub fn has_zeroed(&self, order: u8) -> bool {
        self.zones.iter().any(|zone| zone.find_zeroed(Mobility::Movable, order).is_some())
    }

    /// Frames that are free and hold zeros.
    pub fn zeroed_frames(&self) -> u64 {
        self.zones
            .iter()
            .filter_map(|zone| zone.zeroed.as_deref())
            .map(|zeroed| zeroed.frames())
            .sum()
    }

    /// Takes the lowest free, movable block of 2^`order` frames that does not hold zeros only, to zero it.
    pub fn take_unzeroed(&mut self, order: u8) -> Option<Frame> {
        self.zones.iter_mut().find_map(|zone| {
            let (block, slot) = zone.find_unzeroed(order)?;
            zone.claim(block, slot, order).then(|| zone.frame(block, slot))
        })
    }

    /// Gives it back, zeroed.
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
