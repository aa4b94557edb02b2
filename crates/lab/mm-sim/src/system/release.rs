//! Releases pages: unmap, discard, copy on write.

use policy::{Action, Event};
use trace::{Page, Pages, Region, SLOTS};

use super::clock::Payer;
use super::frames::Run;
use super::spaces::region::{COW, NO_TABLE, POOL, ZEROS};
use super::{Stop, System};
use crate::Cause;
use crate::memory::{Frame, Owner};

const AHEAD: usize = 16;

impl System {
    /// Releases the frames of `pages`; the caller updates the mappings.
    pub(crate) fn release(&mut self, pages: Pages) {
        let (mut at, end) = (pages.first.0, pages.end().0);
        if self.group > 0 {
            self.cut_larger(at, Event::Unmapped { whole: false });
            self.cut_larger(end, Event::Unmapped { whole: false });
        }
        let mut gone = 0;
        while at < end {
            let region = Page(at).region();
            let stop = end.min(region.next().first().0);
            gone += self.release_in(region, Page(at).slot(), stop - region.first().0);
            at = stop;
        }
        if gone > 0 {
            self.clock.spend(Cause::Shootdown, self.costs.shootdown);
        }
    }

    /// As [`Self::release`], without charging the program: for daemons.
    pub(crate) fn release_unpaid(&mut self, pages: Pages) {
        let books = *self.clock.ledger();
        self.release(pages);
        self.clock.restore(books);
    }

    /// Releases slots `start..end` of a region. Returns the number of removed mappings.
    fn release_in(&mut self, region: Region, start: u32, end: u32) -> u32 {
        if self.spaces.is_large(region) {
            let unmapped = Event::Unmapped { whole: end - start == SLOTS };
            match self.policy.on(unmapped, &self.facts_of_superpage(region)) {
                Action::Release => {
                    self.release_superpage(region);
                    return 1;
                }
                Action::Demote => self.demote(region, Payer::Program),
                // The kernel refuses to release part of this superpage; it stays until all of it is released.
                _ => return 0,
            }
        }
        if self.spaces.at(region).place == NO_TABLE {
            return 0;
        }
        if end - start == 1 {
            return self.release_page(Page::new(region, start));
        }
        let mut runs = std::mem::take(&mut self.runs);
        let (frames, memory) = (&mut self.frames, &mut self.memory);
        let gone = self.spaces.empty_entries(region, start..end, |page, frame| {
            if frames.drop_share(memory, page, frame) {
                return;
            }
            if !runs.last_mut().is_some_and(|run: &mut Run| run.take(page, frame)) {
                runs.push(Run::new(page, frame));
            }
        });
        for (at, &run) in runs.iter().enumerate() {
            if let Some(run) = runs.get(at + AHEAD) {
                self.memory.prefetch_owner(run.first());
                self.memory.prefetch_block(run.first());
            }
            self.free(run);
        }
        runs.clear();
        self.runs = runs;
        self.clock.spend(Cause::Map, self.costs.unmap_page * u64::from(gone));
        self.spaces.tidy(region);
        gone
    }

    /// Releases one page of a region with a table, without collecting runs.
    fn release_page(&mut self, page: Page) -> u32 {
        let gone = self.spaces.empty_entry(page);
        if let Some(frame) = gone.frame
            && !self.frames.drop_share(&mut self.memory, page, frame)
        {
            self.free(Run::new(page, frame));
        }
        self.clock.spend(Cause::Map, self.costs.unmap_page * u64::from(gone.mappings));
        self.spaces.tidy(page.region());
        gone.mappings
    }

    /// Frees frames without users.
    #[inline]
    fn free(&mut self, run: Run) {
        self.frames.free(&mut self.memory, &mut self.spaces, &self.clock, run);
    }

    fn release_superpage(&mut self, region: Region) {
        let at = *self.spaces.at(region);
        let base = self.spaces.base(region);
        // The first region of a superpage pays for unmapping all of it.
        if self.spaces.regions_of(region).next() == Some(region) {
            self.clock.spend(Cause::Map, self.costs.unmap_superpage);
        }
        self.spaces.unmap_large(region);
        if at.has(ZEROS | POOL) {
            return;
        }
        if at.has(COW) && self.frames.drop_share(&mut self.memory, region.first(), base) {
            if self.memory.owner(Frame(base.0 + 1)) != Owner::None
                && let Owner::Page(heir) = self.memory.owner(base)
            {
                // Frames of base pages have one owner each.
                self.memory.set_pages(base, SLOTS, heir);
            }
            return;
        }
        if self.frames.reservations().at(base).is_some() {
            self.clock.spend(Cause::Map, self.costs.reserved_page * u64::from(SLOTS));
        }
        self.frames.free_superpage(&mut self.memory, &mut self.spaces, &self.clock, base);
    }

    pub(crate) fn copy_page(&mut self, page: Page) -> Result<(), Stop> {
        let frame = self.spaces.entry(page).frame().expect("only a page with a frame is shared");
        let got = self.base_page(Payer::Program)?;
        self.counters.copied += 1;
        self.clock.spend(Cause::Copy, self.costs.copy_page);
        self.frames.drop_share(&mut self.memory, page, frame);
        self.memory.set_owner(got.frame, Owner::Page(page));
        self.spaces.move_page(page, got.frame);
        self.spaces.invalidate_page(page);
        self.spaces.take_page(page);
        Ok(())
    }
}
