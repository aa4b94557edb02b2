//! Checks the invariants of physical memory from scratch.

use super::zone::{ORDERS, Zone, ZoneKind};
use super::{MAX_ORDER, Memory, Owner, PAGEBLOCK, PAGEBLOCK_ORDER, layout, runs};

impl Memory {
    /// Recomputes all redundant state from the bitmaps, and checks that free frames have no owner and that counters add
    /// up. For tests, and for debug builds at rare points.
    ///
    /// # Errors
    /// The first difference found.
    pub fn verify(&self) -> Result<(), String> {
        let mut cache = 0;
        for (number, zone) in self.zones.iter().enumerate() {
            zone.verify().map_err(|what| format!("zone {number}: {what}"))?;
            let mut zeroed = 0;
            for block in 0..zone.blocks.len() {
                let map = zone.map(block);
                if let Some(zeros) = &zone.zeroed {
                    zeroed += zeros.map(block).iter().map(|word| word.count_ones()).sum::<u32>();
                    if zeros.map(block).iter().zip(map).any(|(zeros, free)| zeros & !free != 0) {
                        return Err(format!("pageblock {block}: frames in use are marked zeroed"));
                    }
                }
                for slot in 0..PAGEBLOCK {
                    let frame = zone.frame(block, slot);
                    let word = self.owners[frame.0 as usize];
                    cache += u64::from(layout::is_cache(word));
                    if word == Owner::Kernel.pack() && zone.kind == ZoneKind::Movable {
                        return Err(format!(
                            "{frame:?} cannot be moved, where only movable pages may be"
                        ));
                    }
                    if word != 0 && runs::is_free(&map, slot, 0) {
                        return Err(format!("{frame:?} is free and owned"));
                    }
                }
            }
            let counted = zone.zeroed.as_ref().map_or(0, |zeros| zeros.frames());
            if u64::from(zeroed) != counted {
                return Err(format!("{zeroed} frames are zeroed, counted {counted}"));
            }
        }
        if cache != self.cache_frames() {
            return Err(format!("{cache} frames of cache, counted {}", self.cache_frames()));
        }
        Ok(())
    }
}

impl Memory {
    /// In debug builds, verifies memories small enough to be quick (up to 256 MB).
    pub(crate) fn check(&self) {
        if cfg!(debug_assertions) && self.frames() <= 1 << 16 {
            assert_eq!(self.verify(), Ok(()));
        }
    }
}

impl Zone {
    fn verify(&self) -> Result<(), String> {
        let mut counts = [[0; ORDERS]; 3];
        let mut free = 0;
        for (number, block) in self.blocks.iter().enumerate() {
            let map = self.map(number);
            let here: u32 = map.iter().map(|word| word.count_ones()).sum();
            if here != u32::from(block.free) {
                return Err(format!(
                    "pageblock {number}: {here} frames free, counted {}",
                    block.free
                ));
            }
            free += u64::from(here);
            if self.partial(number).is_some() != (1..PAGEBLOCK).contains(&here) {
                return Err(format!("pageblock {number}: its bitmap is kept, or is not"));
            }
            let mut orders = 0;
            for order in 0..=MAX_ORDER {
                let count = self.maximal(number, order);
                let listed = self.partial(number).and_then(|part| part.lists.get(order as usize));
                if listed.is_some_and(|&listed| u32::from(listed) != count) {
                    return Err(format!("pageblock {number}: order {order} counted {listed:?}"));
                }
                orders |= u16::from(count > 0) << order;
                let current = self.current[block.mobility.index()] == number;
                counts[block.mobility.index()][order as usize] += if current { 0 } else { count };
                for (other, trees) in self.index.iter().enumerate() {
                    let listed = trees[order as usize].contains(number);
                    let should = count > 0 && !current && other == block.mobility.index();
                    if listed != should {
                        return Err(format!("pageblock {number}: order {order} listed {listed}"));
                    }
                }
            }
            if orders != block.orders {
                return Err(format!(
                    "pageblock {number}: orders {:b}, not {orders:b}",
                    block.orders
                ));
            }
        }
        for (&current, _) in self.current.iter().zip(self.in_order).filter(|(_, ordered)| *ordered)
        {
            let map = self.map(current);
            let free = u32::from(self.blocks[current].free);
            if !(PAGEBLOCK - free..PAGEBLOCK).all(|slot| runs::is_free(&map, slot, 0)) {
                return Err(format!("pageblock {current}: its free frames are not its last"));
            }
        }
        if counts != self.counts || free != self.free {
            return Err(format!(
                "counts {:?} free {}, not {counts:?} {free}",
                self.counts, self.free
            ));
        }
        let available = counts.map(|counts| {
            (0..ORDERS).fold(0u16, |mask, order| mask | u16::from(counts[order] > 0) << order)
        });
        if available != self.available {
            return Err(format!("available {:?}, not {available:?}", self.available));
        }
        Ok(())
    }

    /// Counts the maximal free blocks of an order that begin in a pageblock.
    fn maximal(&self, block: usize, order: u8) -> u32 {
        let whole = |block: usize| self.blocks[block].is_wholly_free();
        match order {
            MAX_ORDER => u32::from(block.is_multiple_of(2) && whole(block) && whole(block + 1)),
            PAGEBLOCK_ORDER => u32::from(whole(block) && !whole(block ^ 1)),
            _ => self.partial(block).map_or(0, |part| runs::count(&part.map, order)),
        }
    }
}
