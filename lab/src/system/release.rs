//! Pages go: unmapped, discarded, or copied because they were shared.

use std::ops::Range;

use policy::{Action, Event};
use trace::{Page, Pages, SLOTS};

use super::allocate::{LARGE_ORDER, Payer};
use super::region::{BASE, COW, Entry, NO_TABLE, POOL, RESERVED, Region, ZEROS};
use super::spaces::Shoot;
use super::{Stop, System};
use crate::Cause;
use crate::memory::{Frame, Owner};

/// Frames side by side that belonged to pages side by side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    page: u32,
    first: u32,
    count: u32,
}

impl Run {
    /// Whether this page and its frame are the next.
    fn ends_before(&self, page: Page, frame: Frame) -> bool {
        self.first + self.count == frame.0 && self.page + self.count == page.0
    }
}

/// Frees that are looked ahead.
const AHEAD: usize = 16;

impl System {
    /// Takes the frames of `pages` away; the mappings that held them are the caller's matter.
    pub(crate) fn release(&mut self, pages: Pages) {
        let (mut at, end) = (pages.first.0, pages.first.0 + pages.count);
        let mut gone = 0;
        while at < end {
            let region = at >> 9;
            let stop = end.min((region + 1) << 9);
            gone += self.release_in(region, at & 511, stop - (region << 9));
            at = stop;
        }
        if gone > 0 {
            self.clock.spend(Cause::Shootdown, self.costs.shootdown);
        }
    }

    /// The same for a daemon: the program pays nothing for that.
    pub(crate) fn release_unpaid(&mut self, pages: Pages) {
        let books = self.clock.ledger;
        self.release(pages);
        self.clock.restore(books);
    }

    /// Slots `start..end` of a region. Returns how many mappings went.
    fn release_in(&mut self, region: u32, start: u32, end: u32) -> u32 {
        if self.spaces.is_large(region) {
            let unmapped = Event::Unmapped { whole: end - start == SLOTS };
            match self.policy.on(unmapped, &self.facts_of_superpage(region)) {
                Action::Release => {
                    self.release_superpage(region);
                    return 1;
                }
                Action::Demote => self.demote(region, Payer::Program),
                // The kernel refuses this; the superpage stays until all of it goes.
                _ => return 0,
            }
        }
        if self.spaces.regions[region as usize].place == NO_TABLE {
            return 0;
        }
        if end - start == 1 {
            return self.release_page(region, start);
        }
        let mut runs = std::mem::take(&mut self.runs);
        let gone = self.take_entries(region, start..end, &mut runs);
        for (at, &run) in runs.iter().enumerate() {
            if at.is_multiple_of(AHEAD) && runs.len() > 1 {
                self.memory.glance(runs[at..].iter().take(AHEAD).map(|run| Frame(run.first)));
            }
            self.free_run(run);
        }
        runs.clear();
        self.runs = runs;
        self.clock.spend(Cause::Map, self.costs.unmap_page * u64::from(gone));
        self.spaces.tidy(region);
        gone
    }

    /// One page of a region that has a table: as the others, without the lists of runs.
    fn release_page(&mut self, region: u32, slot: u32) -> u32 {
        let page = Page(region << 9 | slot);
        let place = self.spaces.regions[region as usize].place;
        let entry = std::mem::replace(self.spaces.tables.entry(place, slot), Entry::EMPTY);
        let mut gone = 0;
        if !entry.is_empty() {
            self.spaces.scatter(region);
            let at = self.spaces.regions.edit(&mut self.spaces.kinds, region as usize);
            if self.spaces.tables.is_present(place, slot) {
                self.spaces.tables.clear_present(place, slot);
                at.clean -= u16::from(!entry.has(Entry::DIRTY));
                gone = 1;
                self.spaces.shoot_page(page);
            }
            self.spaces.swapped -= u64::from(entry.is_swapped());
            if let Some(frame) = entry.frame() {
                self.spaces.count_resident(region, -1);
                if !self.drop_share(page, frame) {
                    self.free_run(Run { page: page.0, first: frame.0, count: 1 });
                }
            }
        }
        self.clock.spend(Cause::Map, self.costs.unmap_page * u64::from(gone));
        self.spaces.tidy(region);
        gone
    }

    /// Empties entries of a region that has a table; the frames that nobody has any more are put into `runs`. Returns
    /// how many mappings went.
    fn take_entries(&mut self, region: u32, slots: Range<u32>, runs: &mut Vec<Run>) -> u32 {
        let place = self.spaces.regions[region as usize].place;
        let mut present = *self.spaces.tables.present(place);
        let (mut any, mut gone, mut clean, mut frames) = (false, 0, 0, 0);
        for slot in slots {
            let at = self.spaces.tables.entry(place, slot);
            let entry = *at;
            if entry.is_empty() {
                continue;
            }
            *at = Entry::EMPTY;
            any = true;
            let page = Page(region << 9 | slot);
            let word = &mut present[(slot / 64) as usize];
            if *word >> (slot % 64) & 1 != 0 {
                *word &= !(1 << (slot % 64));
                gone += 1;
                clean += u16::from(!entry.has(Entry::DIRTY));
                self.spaces.shoot_page(page);
            }
            self.spaces.swapped -= u64::from(entry.is_swapped());
            let Some(frame) = entry.frame() else { continue };
            frames += 1;
            if self.drop_share(page, frame) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.ends_before(page, frame) => run.count += 1,
                _ => runs.push(Run { page: page.0, first: frame.0, count: 1 }),
            }
        }
        if any {
            self.spaces.scatter(region);
            *self.spaces.tables.present_mut(place) = present;
            let at = self.spaces.region(region);
            at.clean -= clean;
            self.spaces.count_resident(region, -frames);
        }
        gone
    }

    /// Frees frames that lie together and belonged to pages that lie together.
    fn free_run(&mut self, Run { page, first, count }: Run) {
        // A run does not cross a superpage's worth of frames, so that it is of one reservation or folio.
        let cut = SLOTS - (first & 511);
        if count > cut {
            self.free_run(Run { page, first, count: cut });
            return self.free_run(Run { page: page + cut, first: first + cut, count: count - cut });
        }
        let head = first & !511;
        if self.spaces.folios.contains_key(&head) {
            return self.free_of_folio(head, first, count);
        }
        if !self.spaces.reservations.is_empty() {
            return self.free_reserved(first, count);
        }
        self.free_frames(Frame(first), count);
    }

    /// As `free_run`, where some of the frames may be of reservations (of any size).
    fn free_reserved(&mut self, first: u32, count: u32) {
        let mut at = 0;
        while at < count {
            let frame = Frame(first + at);
            let length = match self.spaces.reservations.at(frame) {
                Some(id) => {
                    let order = self.spaces.reservations.key(id).order;
                    let within = (1 << order) - (frame.0 - self.spaces.reservations.base(id).0);
                    let length = within.min(count - at);
                    self.unreserve(frame, length as u16);
                    length
                }
                None => {
                    let rest = (at..count)
                        .find(|&ahead| self.spaces.reservations.at(Frame(first + ahead)).is_some())
                        .unwrap_or(count);
                    self.free_frames(frame, rest - at);
                    rest - at
                }
            };
            at += length;
        }
    }

    /// Frames of a split superpage are held until memory is short, or all of them are unused.
    fn free_of_folio(&mut self, head: u32, first: u32, count: u32) {
        for frame in first..first + count {
            self.memory.set_owner(Frame(frame), Owner::None);
        }
        let left = self.spaces.folios.get_mut(&head).expect("looked up by the caller");
        *left -= count as u16;
        if *left == 0 {
            self.spaces.folios.remove(&head);
            self.memory.free(Frame(head), LARGE_ORDER);
        }
    }

    fn release_superpage(&mut self, region: u32) {
        let at = self.spaces.regions[region as usize];
        self.clock.spend(Cause::Map, self.costs.unmap_superpage);
        if at.has(ZEROS) {
            return self.unmap_zeros(region);
        }
        if at.has(POOL) {
            return self.unmap_pool(region);
        }
        let base = Frame(at.place);
        self.spaces.count_superpages(region, -1);
        self.spaces.count_resident(region, -i64::from(SLOTS));
        self.spaces.shoot.push(Shoot::Region(region));
        self.spaces.kinds[region as usize] = BASE;
        *self.spaces.region(region) =
            Region { process: at.process, flags: at.flags & RESERVED, ..Region::EMPTY };
        if at.has(COW) && self.drop_share(Page(region << 9), base) {
            if self.memory.owner(Frame(base.0 + 1)) != Owner::None
                && let Owner::Page(heir) = self.memory.owner(base)
            {
                // Pages that came singly have owners singly.
                self.memory.set_pages(base, SLOTS, heir);
            }
            return;
        }
        if self.spaces.reservations.at(base).is_some() {
            self.clock.spend(Cause::Map, self.costs.reserved_page * u64::from(SLOTS));
            self.unreserve(base, SLOTS as u16);
        } else {
            self.memory.free(base, LARGE_ORDER);
        }
    }

    /// `page` maps `frame` no more. `true`: others still do, and the frame is theirs.
    fn drop_share(&mut self, page: Page, frame: Frame) -> bool {
        if self.spaces.shares.is_empty() {
            return false;
        }
        let Some(further) = self.spaces.shares.get_mut(&frame.0) else { return false };
        if self.memory.owner(frame) == Owner::Page(page) {
            let heir = further.remove(0);
            self.memory.set_owner(frame, Owner::Page(Page(heir)));
        } else {
            further.retain(|&other| other != page.0);
        }
        if further.is_empty() {
            self.spaces.shares.remove(&frame.0);
        }
        true
    }

    /// A write to a page that others have too, after a fork: it gets a copy.
    pub(crate) fn copy_page(&mut self, page: Page) -> Result<(), Stop> {
        let region = page.region().0;
        let frame = self.spaces.entry(page).frame().expect("only a page with a frame is shared");
        let got = self.base_page(Payer::Program)?;
        self.counters.copied += 1;
        self.clock.spend(Cause::Copy, self.costs.copy_page);
        self.drop_share(page, frame);
        self.memory.set_owner(got.frame, Owner::Page(page));
        let entry = self.spaces.entry_mut(page);
        *entry = entry.at(got.frame);
        self.spaces.scatter(region);
        self.spaces.shoot.push(Shoot::Page(page.0));
        self.take_page(page);
        Ok(())
    }

    /// The page is the writer's alone, and may be written.
    pub(crate) fn take_page(&mut self, page: Page) {
        let entry = self.spaces.entry_mut(page);
        let was_clean = !entry.has(Entry::DIRTY);
        *entry = entry.with(Entry::DIRTY).without(Entry::COW);
        let at = self.spaces.regions.edit(&mut self.spaces.kinds, page.region().0 as usize);
        if self.spaces.tables.is_present(at.place, page.slot()) {
            at.clean -= u16::from(was_clean);
        } else {
            self.spaces.tables.set_present(at.place, page.slot());
        }
    }
}
