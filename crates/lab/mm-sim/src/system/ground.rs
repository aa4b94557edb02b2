//! The machine's physical memory as a fragmenter sees it.

use super::System;
use crate::fragment::{Mobility, PhysicalMemoryView};
use crate::memory::{Frame, Owner, PAGEBLOCK};

impl PhysicalMemoryView for System {
    fn blocks(&self) -> u64 {
        u64::from(self.memory.frames() / PAGEBLOCK)
    }

    fn free_superpages(&self) -> u64 {
        self.memory.free_superpages()
    }

    fn free_frames(&self) -> u64 {
        self.memory.free_frames()
    }

    fn is_whole(&self, block: u64) -> bool {
        let base = block as u32 * PAGEBLOCK;
        (base..base + PAGEBLOCK).all(|frame| self.memory.is_free(Frame(frame)))
    }

    fn occupy(&mut self, block: u64, from: u16, to: u16, mobility: Mobility) -> u64 {
        let base = block as u32 * PAGEBLOCK;
        let owner = match mobility {
            Mobility::Movable => Owner::Cache(0),
            Mobility::Reclaimable | Mobility::Unmovable => Owner::Kernel,
        };
        if mobility != Mobility::Movable && self.memory.is_movable_only(Frame(base)) {
            return 0;
        }
        let mut taken = 0;
        for frame in (u32::from(from)..u32::from(to)).map(|slot| Frame(base + slot)) {
            if self.memory.claim(frame, 0) {
                self.memory.set_owner(frame, owner);
                taken += 1;
            }
        }
        taken
    }
}
