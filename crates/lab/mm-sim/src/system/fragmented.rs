//! Memory at a program's start: fragmented under one policy for all designs, then handed over to the design.
//!
//! Every design starts with the same free frames in the same places. Only a pool of fixed size differs: the design takes
//! its pages at boot, before memory is fragmented. See docs/decisions/lab-model.md#21.

use policy::Policy;
use tlb_sim::Translate;
use trace::{Block, Region, SLOTS};

use super::frames::LARGE_ORDER;
use super::spaces::region::{Entry, NO_TABLE};
use super::{Engine, Stop, System};
use crate::fragment::{Fragmentation, PhysicalMemoryView, Place};
use crate::memory::Frame;
use crate::reservation::Key;
use crate::touched::TouchedView;

/// Time from the end of fragmenting to the program's start: the artifact's scripts sleep this long, which makes the
/// fragmenter's pages inactive.
const SLEEP_MICROSECONDS: u64 = 60_000_000;

impl<T: Translate> Engine<T> {
    /// Fragments memory under the policy `under`, then starts the design's policy and daemons. `needed`: superpages that
    /// the workload needs; `seed` seeds the random numbers. Returns the first unused region and process.
    ///
    /// # Errors
    /// An event that no program can issue.
    pub(crate) fn fragment(
        &mut self,
        how: &Fragmentation,
        under: Policy,
        needed: u64,
        seed: u64,
    ) -> Result<(u32, u32), String> {
        let blocks = self.system.blocks();
        let place = Place { needed, blocks, first_region: 0, first_process: 0, seed };
        let mut first = (0, 0);
        if let Some(mut program) = how.program(place) {
            first = (program.regions(), program.processes());
            let design = self.system.set_policy(under);
            // Without swap, because not every design has it.
            let swap = self.system.spaces.set_swap(0);
            let mut block = Block::default();
            while program.step(&mut self.system, &mut block) {
                match self.block(&block, TouchedView::default()) {
                    // A fragmenter fills all memory, and continues after failures.
                    Ok(()) | Err(Stop::OutOfMemory | Stop::Refused { .. } | Stop::Killed(_)) => {}
                    Err(Stop::IllFormed(what)) => return Err(what),
                }
            }
            self.system.spaces.set_swap(swap);
            self.system.set_policy(design);
            self.system.reserve_in_place();
            let clock = &mut self.system.clock;
            clock.wait(clock.of_microseconds(SLEEP_MICROSECONDS));
        }
        self.book();
        self.system.begin(first);
        Ok(first)
    }
}

impl System {
    /// Makes a reservation of each block whose used frames are one region's pages in place, as the design would have at
    /// the region's first touch. The block's free frames stay free for the design, but not for the buddy allocator.
    fn reserve_in_place(&mut self) {
        if self.group > 0 || !self.physical.reserved.has(LARGE_ORDER) {
            return;
        }
        let now = self.clock.now();
        for region in (0..self.spaces.region_count()).map(Region) {
            let Some(base) = self.block_in_place(region) else { continue };
            self.memory.claim_free(base);
            let key = Key { page: region.first().0, order: LARGE_ORDER };
            self.frames.reserve(&mut self.spaces, key, (base, false), now);
            let id = self.frames.reservations().at(base).expect("just made");
            let table = self.spaces.table(region).unwrap_or_default();
            for slot in (0..SLOTS).filter(|&slot| table[slot as usize].frame().is_some()) {
                self.frames.populate(id, slot, 1, now);
            }
        }
    }

    /// Returns the first frame of the block around a region's pages, if the pages lie in place and all other frames of
    /// the block are free.
    fn block_in_place(&self, region: Region) -> Option<Frame> {
        let at = self.spaces.at(region);
        if at.place == NO_TABLE || at.resident == 0 {
            return None;
        }
        let table = self.spaces.table(region)?;
        let base = table.iter().find_map(|entry| entry.frame())?.pageblock();
        let is_fit = |(slot, entry): (u32, &Entry)| {
            let own = Frame(base.0 + slot);
            entry.frame().map_or_else(|| self.memory.is_free(own), |frame| frame == own)
        };
        (0..).zip(table).all(is_fit).then_some(base)
    }
}
