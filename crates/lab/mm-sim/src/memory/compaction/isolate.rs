//! What a run of compaction takes from pageblocks: pages to move, free frames to move them to.

use super::run::{BATCH, Run};
use super::{Caller, Mode};
use crate::memory::owner::is_movable;
use crate::memory::zone::{SKIP, WHOLE};
use crate::memory::{Frame, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER, runs};

/// What a search for pages to migrate came to.
pub(super) enum Isolated {
    /// A batch, or the end of a pageblock without one.
    Batch,
    /// The scanners met.
    Met,
}

impl Run<'_> {
    /// Takes up to 32 pages from the next pageblock that is fit (`isolate_migratepages`).
    pub(super) fn isolate_batch(&mut self) -> Isolated {
        while !self.met() {
            let mut block = (self.migrate / PAGEBLOCK) as usize;
            let begins = self.migrate.is_multiple_of(PAGEBLOCK);
            if begins {
                let found = self.search();
                block = found.unwrap_or((self.migrate / PAGEBLOCK) as usize);
                self.migrate = block as u32 * PAGEBLOCK;
                if found.is_none() && self.met() {
                    break;
                }
                let skipped = found.is_none() && !self.request.whole && self.flagged(block, SKIP);
                if skipped || !self.is_source(block) {
                    self.migrate += PAGEBLOCK;
                    continue;
                }
            }
            self.isolate_from(block);
            if self.migrate.is_multiple_of(PAGEBLOCK) && self.batch.is_empty() {
                self.memory.zones[self.zone].blocks[block].flags |= SKIP;
                self.remember(block + 1);
            }
            return Isolated::Batch;
        }
        Isolated::Met
    }

    fn flagged(&self, block: usize, flag: u8) -> bool {
        self.memory.zones[self.zone].blocks[block].flags & flag != 0
    }

    /// Whether pages are taken out of a pageblock (`suitable_migration_source`). An asynchronous direct run takes
    /// its own mobility only, since it is to free blocks that its own allocation may use; superpages stay.
    fn is_source(&self, block: usize) -> bool {
        let record = &self.memory.zones[self.zone].blocks[block];
        if record.flags & WHOLE != 0 || record.is_wholly_free() {
            return false;
        }
        let picky = self.request.caller == Caller::Direct && self.request.mode == Mode::Async;
        !picky || record.mobility == self.memory.list_of(self.request.mobility)
    }

    /// The next runs begin past pageblocks in which nothing was found (`update_cached_migrate`).
    fn remember(&mut self, block: usize) {
        let starts = &mut self.memo.migrate;
        starts[0] = starts[0].max(block);
        if self.request.mode != Mode::Async {
            starts[1] = starts[1].max(block);
        }
    }

    /// Takes pages of a pageblock from the scanner's position on (`isolate_migratepages_block`). A run that gives
    /// up puts back what it took of a block of the wanted order when something in it cannot be moved.
    fn isolate_from(&mut self, block: usize) {
        let zone = &self.memory.zones[self.zone];
        let map = zone.map(block);
        let base = (zone.first + block) << PAGEBLOCK_ORDER;
        let step = 1 << self.request.order.min(PAGEBLOCK_ORDER);
        let mut slot = self.migrate % PAGEBLOCK;
        let mut kept = 0;
        while slot < PAGEBLOCK && self.batch.len() < BATCH {
            if slot.is_multiple_of(step) {
                kept = self.batch.len();
            }
            self.report.scanned += 1;
            let word = self.memory.owners[base + slot as usize];
            if is_movable(word) {
                self.batch.push(Frame(base as u32 + slot));
            } else if !runs::is_free(&map, slot, 0) && self.gives_up() {
                self.batch.truncate(kept);
                slot = slot / step * step + step;
                continue;
            }
            slot += 1;
        }
        self.migrate = block as u32 * PAGEBLOCK + slot;
    }

    /// A free frame to move a page to.
    pub(super) fn spare_frame(&mut self, wanted: usize) -> Option<Frame> {
        if self.spare.is_empty() {
            self.isolate_free(wanted);
        }
        self.spare.pop()
    }

    /// Takes free frames, going down from the zone's end, until there are as many as wanted
    /// (`isolate_freepages`).
    fn isolate_free(&mut self, wanted: usize) {
        while !self.met() && self.spare.len() < wanted {
            let (block, from) = self.free;
            if !self.is_target(block) {
                self.free = (block - 1, 0);
                continue;
            }
            let done = self.isolate_free_from(block, from, wanted);
            if done < PAGEBLOCK {
                self.free.1 = done;
                break;
            }
            self.memory.zones[self.zone].blocks[block].flags |= SKIP;
            self.memo.free = self.memo.free.min(block - 1);
            self.free = (block - 1, 0);
        }
        // The lowest frames last, so that they are filled first.
        self.spare.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Whether pages are moved into a pageblock (`suitable_migration_target`): a movable one that is not wholly free
    /// already.
    fn is_target(&self, block: usize) -> bool {
        let record = &self.memory.zones[self.zone].blocks[block];
        let skipped = !self.request.whole && record.flags & SKIP != 0 && self.free.1 == 0;
        !skipped
            && record.free > 0
            && !record.is_wholly_free()
            && record.mobility == Mobility::Movable
    }

    /// Takes the free blocks of a pageblock, ascending. Returns the slot where it goes on.
    fn isolate_free_from(&mut self, block: usize, from: u32, wanted: usize) -> u32 {
        let zone = &mut self.memory.zones[self.zone];
        let mut slot = from;
        while slot < PAGEBLOCK && self.spare.len() < wanted {
            let Some(order) = zone.order_around(block, slot) else {
                self.report.free_scanned += 1;
                slot += 1;
                continue;
            };
            let order = order.min(slot.trailing_zeros() as u8).min(PAGEBLOCK_ORDER);
            zone.claim(block, slot, order);
            let start = zone.frame(block, slot).0;
            self.spare.extend((start..start + (1 << order)).map(Frame));
            self.report.free_scanned += 1 << order;
            slot += 1 << order;
        }
        slot
    }
}
