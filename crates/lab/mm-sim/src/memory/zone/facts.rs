//! What can be asked of a zone.

use prefetch_index::prefetch_index;

use super::{Mobility, ORDERS, Partial, WHOLE_BLOCK, WHOLLY, Zone};
use crate::memory::runs::{self, Map};
use crate::memory::{Frame, PAGEBLOCK_ORDER};

impl Zone {
    /// The orders of which a mobility has free blocks.
    pub(crate) fn orders(&self, mobility: Mobility) -> u16 {
        let current = self.current[mobility.index()];
        let own = self.blocks.get(current).map_or(0, |block| block.orders);
        self.available[mobility.index()] | own
    }

    /// How many free blocks there are, by mobility and order.
    pub(crate) fn counts(&self) -> [[u32; ORDERS]; 3] {
        let mut counts = self.counts;
        for (counts, &current) in counts.iter_mut().zip(&self.current) {
            let own = self.partial(current).into_iter().flat_map(|part| &part.lists);
            counts.iter_mut().zip(own).for_each(|(count, &own)| *count += u32::from(own));
        }
        counts
    }

    /// The order of the maximal free block that a frame lies in.
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

    /// The bitmap of a pageblock's free frames, also where none is kept.
    pub(crate) fn map(&self, block: usize) -> Map {
        let all = if self.blocks[block].is_wholly_free() { u64::MAX } else { 0 };
        self.partial(block).map_or([all; 8], |part| part.map)
    }

    /// What there is to know of a pageblock, if it is partly free.
    #[inline]
    pub(crate) fn partial(&self, block: usize) -> Option<&Partial> {
        self.partials.get(self.blocks.get(block)?.partial as usize)
    }

    /// Brings that into the host's caches: two lines.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        let number = self.blocks[block].partial;
        if number != WHOLLY {
            prefetch_index(&self.partials, number as usize);
            prefetch_index(&self.partials, number as usize + 1);
        }
    }
}
