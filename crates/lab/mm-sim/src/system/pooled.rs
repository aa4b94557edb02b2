//! Mappings of the explicit pool: made, grown, unmapped, and faults on them.

use policy::{Action, Attempt, Event, Facts};
use trace::{Backing, Page, Pages, Region, SLOTS};

use super::clock::Payer;
use super::frames::{LARGE_ORDER, Users};
use super::pool::Pool;
use super::spaces::region::{NO_TABLE, POOL};
use super::{Stop, System};
use crate::Cause;
use crate::hugetlb::Fault;
use crate::memory::compaction::{Mode, evacuate_run};
use crate::memory::{Frame, Memory};

impl System {
    /// A mapping is made: `Some` if the pool backs its superpages.
    pub(crate) fn pool_map(&mut self, pages: Pages, backing: Backing) -> Result<Option<u32>, Stop> {
        // A fragmenter does not use the pool.
        if !self.pool.exists() || !self.daemons.are_awake() {
            return Ok(None);
        }
        let end = pages.end().0;
        let size = self.pool.pages();
        let first = pages.first.0.div_ceil(size);
        let last = if backing == Backing::Heap { end.div_ceil(size) } else { end / size };
        // A heap that begins within a superpage has its first one rounded up to.
        if last <= first && backing != Backing::Heap {
            return Ok(None);
        }
        let count = last.saturating_sub(first);
        let id = self.pool_ask(|pool, memory| pool.map(memory, first, count))?;
        if id.is_some() {
            self.take_for_pool(Pages { first: Page(first * size), count: count * size });
        }
        Ok(id)
    }

    /// The regions of what the pool backs are the running process' own, also past the mapping's end.
    fn take_for_pool(&mut self, pages: Pages) {
        self.spaces.cover(pages);
        if pages.count > 0 {
            self.spaces.take_free_regions(pages, self.spaces.running());
        }
    }

    /// Asks the pool, once more with the superpages that it is short of made free; then what the design says of
    /// shortage.
    fn pool_ask<R>(
        &mut self,
        mut ask: impl FnMut(&mut Pool, &mut Memory) -> Result<R, u64>,
    ) -> Result<Option<R>, Stop> {
        let short_by = match ask(&mut self.pool, &mut self.memory) {
            Ok(done) => return Ok(Some(done)),
            Err(short_by) => short_by,
        };
        let (short_by, then) = match self.free_for_pool(short_by) {
            Err(refused) => refused,
            Ok(()) => match ask(&mut self.pool, &mut self.memory) {
                Ok(done) => return Ok(Some(done)),
                Err(short_by) => (short_by, self.no_pool_page(Attempt::Reclaim)),
            },
        };
        if then == Action::Refuse {
            return Err(Stop::Refused { short_by });
        }
        self.counters.fallbacks += 1;
        Ok(None)
    }

    fn no_pool_page(&mut self, tried: Attempt) -> Action {
        self.policy.on(Event::NoPoolPage { tried }, &Facts::default())
    }

    /// Makes so many more superpages free, one by one by what the policy says, as a pool allocates them
    /// (`alloc_buddy_hugetlb_folio` with `__GFP_RETRY_MAYFAIL`). Those that are free already are held meanwhile: they are
    /// counted once, and nothing is moved into them. An error: how many are missing still, and what is to be done then.
    /// See docs/decisions/lab-model.md#15.
    fn free_for_pool(&mut self, missing: u64) -> Result<(), (u64, Action)> {
        let mut held = Vec::new();
        while let Some(frame) = self.pool.take(&mut self.memory) {
            held.push(frame);
        }
        let mut left = if self.pool.grows() { missing } else { 0 };
        let mut tried = Attempt::Nothing;
        let mut refused = None;
        while left > 0 {
            let action = self.no_pool_page(tried);
            tried = match action {
                Action::Compact { .. } => {
                    self.compact_for_pool();
                    Attempt::Compaction
                }
                // No reclaim brings a run of several regions (`alloc_contig_pages` does none).
                Action::Reclaim { .. } if self.group > 0 => Attempt::Reclaim,
                Action::Reclaim { pages, lumpy, .. } => {
                    self.reclaim(Payer::Program, pages, lumpy);
                    Attempt::Reclaim
                }
                _ => {
                    refused = Some((left, action));
                    break;
                }
            };
            while left > 0
                && let Some(frame) = self.pool.take(&mut self.memory)
            {
                held.push(frame);
                left -= 1;
                tried = Attempt::Nothing;
            }
        }
        held.into_iter().for_each(|frame| self.pool.put(&mut self.memory, frame));
        refused.map_or(Ok(()), Err)
    }

    /// Superpages of several regions are no blocks of the buddy allocator: pages are moved out of an aligned run.
    fn compact_for_pool(&mut self) {
        if self.group == 0 {
            self.compact(Payer::Program, Mode::Sync);
            return;
        }
        let order = LARGE_ORDER + self.group as u8;
        for node in 0..self.memory.nodes() {
            let mut users = Users { spaces: &mut self.spaces, frames: &mut self.frames };
            let done = evacuate_run(&mut self.memory, &mut users, order, node);
            let (moved, looked_at) = (u64::from(done.moved), done.moved + done.taken + done.stay);
            let cost =
                u64::from(looked_at) * self.costs.scan_page + moved * self.costs.migrate_page;
            self.clock.spend(Cause::Compact, cost);
            self.counters.compactions += 1;
            self.counters.migrated += moved;
            if looked_at > 0 && done.stay == 0 {
                break;
            }
        }
    }

    /// A heap on the pool ends at page `end` now.
    pub(crate) fn pool_grow(&mut self, id: u32, end: u32) -> Result<(), Stop> {
        let Some((first, wanted)) = self.pool.grown(id, end) else { return Ok(()) };
        if self.pool_ask(|pool, memory| pool.extend(memory, id, wanted))?.is_some() {
            let size = self.pool.pages();
            self.take_for_pool(Pages { first: Page(first * size), count: wanted * size });
        }
        Ok(())
    }

    /// Pages `first..end` of a mapping are unmapped. What is mapped still of pages that the pool has back goes too: a
    /// heap's last page reaches past the heap's end, and parts of one mapping may meet within a page.
    pub(crate) fn pool_unmap(&mut self, id: u32, first: u32, end: u32) {
        let gone = self.pool.unmap(&mut self.memory, id, (first, end));
        gone.map(Region).for_each(|region| self.unmap_of_pool(region));
    }

    /// Pages `first..end` of a mapping are discarded.
    pub(crate) fn pool_discard(&mut self, id: u32, first: u32, end: u32) {
        let gone = self.pool.discard(&mut self.memory, id, (first, end));
        gone.map(Region).for_each(|region| self.unmap_of_pool(region));
    }

    fn unmap_of_pool(&mut self, region: Region) {
        if self.spaces.at(region).has(POOL) {
            self.unmap_pool(region);
        }
    }

    /// A fault on a page that the pool backs.
    pub(crate) fn pool_fault(&mut self, page: Page, id: u32, write: bool) -> Result<(), Stop> {
        let region = page.region();
        let found = self.pool.fault(&mut self.memory, id, region, write);
        self.clock.spend(Cause::Fault, self.costs.superpage_fault);
        match found {
            Fault::Fresh { frame, .. } => {
                self.clock.spend(Cause::Zero, self.costs.zero_larger);
                self.counters.zeroed += u64::from(self.pool.pages());
                self.counters.superpage_faults += 1;
                self.counters.made_at_fault += 1;
                self.map_pool(region, frame);
            }
            Fault::Present(frame) => {
                if self.spaces.is_large(region) {
                    self.take_pool(region);
                } else {
                    self.map_pool(region, frame);
                }
            }
            Fault::Copied { to, .. } => {
                let pages = u64::from(self.pool.pages());
                self.clock.spend(Cause::Copy, self.costs.copy_page * pages);
                self.counters.copied += pages;
                self.unmap_pool(region);
                self.map_pool(region, to);
            }
            Fault::Robbed { children, .. } => {
                for child in children {
                    self.unmap_pool(self.pool.same_page(id, region, child));
                }
                self.take_pool(region);
            }
            Fault::Killed(why) => return Err(Stop::Killed(format!("{why:?}"))),
        }
        Ok(())
    }

    /// Maps the page of the pool that has a region: all its regions.
    fn map_pool(&mut self, region: Region, frame: Frame) {
        for (number, region) in (0..).zip(self.pool.regions(region)) {
            self.map_region_of_pool(region, Frame(frame.0 + number * SLOTS));
        }
    }

    /// The page has one owner now, who may write it.
    fn take_pool(&mut self, region: Region) {
        self.pool.regions(region).for_each(|region| self.spaces.take_large(region));
    }

    fn map_region_of_pool(&mut self, region: Region, frame: Frame) {
        if self.spaces.at(region).place != NO_TABLE && !self.spaces.is_large(region) {
            // A mapping beside a heap has base pages here.
            self.release(region.pages());
        }
        self.spaces.map_large(region, frame, true);
        self.spaces.mark(region, POOL);
        self.spaces.join_larger(region);
    }

    /// Takes a mapping of a pool page away; the page is the pool's matter.
    fn unmap_pool(&mut self, region: Region) {
        for region in self.pool.regions(region) {
            if self.spaces.is_large(region) {
                self.spaces.unmap_large(region);
            }
        }
    }
}
