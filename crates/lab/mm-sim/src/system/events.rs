//! A program's requests to the kernel: map, unmap, advise, fork, exit.

use policy::{Action, Event as Happened};
use trace::{Advice, Backing, Event, Page, Pages, Process, Region, SLOTS};

use super::clock::Payer;
use super::daemons::Collapsed;
use super::formed::ill_formed;
use super::spaces::region::{CHECK, NO_TABLE, POOL};
use super::spaces::{Mapping, Place};
use super::{Stop, System};
use crate::Cause;

impl System {
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Stop> {
        self.well_formed(event)?;
        match event {
            Event::Spawn(process) => {
                self.spaces.begin_process(process.0);
                self.run(*process);
            }
            Event::Run(process) => self.run(*process),
            Event::Map { pages, backing, .. } => self.map(*pages, *backing)?,
            Event::Grow { pages } => self.grow(*pages)?,
            Event::Unmap(pages) => self.unmap(*pages),
            Event::Advise(pages, advice) => self.advise(*pages, *advice)?,
            Event::Protect(pages, read_only) => self.protect(*pages, !*read_only),
            Event::Fork { child, offset } => self.fork(*child, *offset)?,
            Event::Exit(process) => self.exit(*process),
            Event::Pace(pace) => {
                self.spaces.bank_walks(self.clock.pace().weight);
                if *pace != self.clock.pace() {
                    self.spaces.lines().restart();
                }
                self.clock.set_pace(*pace);
            }
            Event::Wait(microseconds) => self.clock.wait(self.clock.of_microseconds(*microseconds)),
            Event::Phase(name) => {
                self.observed.begin_phase(name, &self.clock, self.counters.accesses);
            }
            Event::RequestBegin => self.observed.begin_request(self.clock.now()),
            Event::RequestEnd => self.observed.end_request(self.clock.now()),
        }
        Ok(())
    }

    fn run(&mut self, process: Process) {
        if self.spaces.run(process.0) && !self.pcid {
            self.spaces.invalidate_all();
        }
    }

    /// Charges a system call, and forgets the mapping of the last fault, because mappings may change.
    fn system_call(&mut self) {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.spaces.forget_place();
    }

    fn map(&mut self, pages: Pages, backing: Backing) -> Result<(), Stop> {
        self.system_call();
        let origin = if matches!(backing, Backing::Shared(_)) { pages.first.0 } else { 0 };
        for part in self.pool.leftover(&self.spaces, pages) {
            self.map_part(part, backing, origin)?;
        }
        Ok(())
    }

    fn map_part(&mut self, pages: Pages, backing: Backing, origin: u32) -> Result<(), Stop> {
        self.take_regions(pages, self.spaces.running())?;
        let end = pages.end().0;
        let anonymous = matches!(backing, Backing::Anonymous | Backing::Heap);
        let pool = if anonymous { self.pool_map(pages, backing)? } else { None };
        let mapping = Mapping {
            end,
            backing,
            advised: None,
            writable: true,
            pool,
            origin,
            fork: None,
            was_swapped: false,
        };
        self.spaces.map(pages, mapping);
        Ok(())
    }

    fn grow(&mut self, pages: Pages) -> Result<(), Stop> {
        self.system_call();
        let Some((first, mut mapping)) = self.spaces.heap_before(pages.first) else {
            return ill_formed(format!("a heap grows at page {}, where none ends", pages.first.0));
        };
        let end = pages.end().0;
        if end <= mapping.end {
            return Ok(());
        }
        let new = Pages { first: Page(mapping.end), count: end - mapping.end };
        let parts = self.pool.leftover(&self.spaces, new);
        if parts != [new] || mapping.pool.is_some_and(|id| self.pool.has_ended(id, mapping.end)) {
            for part in parts {
                self.map_part(part, mapping.backing, 0)?;
            }
            return Ok(());
        }
        self.take_regions(new, self.spaces.running())?;
        mapping.end = end;
        if let Some(pool) = mapping.pool {
            self.pool_grow(pool, mapping.end)?;
        }
        self.spaces.extend((first, mapping));
        Ok(())
    }

    fn unmap(&mut self, pages: Pages) {
        self.system_call();
        self.remove(self.pool.trim(&self.spaces, pages));
    }

    fn remove(&mut self, pages: Pages) {
        let gone = self.spaces.cut(pages);
        self.release_mapped(&gone);
        for &(first, mapping) in &gone {
            if let Some(pool) = mapping.pool {
                self.pool_unmap(pool, first, mapping.end);
            }
        }
        self.spaces.unmap(&gone);
        for (first, mapping) in gone {
            self.empty_regions(first, mapping.end);
        }
    }

    /// Empties regions in `first..end` that have no mapping left. They may hold pages prepared past a mapping's end,
    /// and reservations whose pages other processes still share after a fork.
    fn empty_regions(&mut self, first: u32, end: u32) {
        let (begin, last) = (Page(first).region(), Page(end - 1).region());
        for region in (Pages { first: Page(first), count: end - first }).regions() {
            let edge = region == begin || region == last;
            if !edge && self.frames.reservations().is_empty() {
                continue;
            }
            let window = region.pages();
            if self.spaces.maps_any(window) {
                continue;
            }
            // Includes swapped-out pages, which are not resident.
            if self.spaces.at(region).resident > 0 || self.spaces.table(region).is_some() {
                self.release(window);
            }
            if self.group == 0 || !self.spaces.maps_any(self.extent_around(region)) {
                self.break_in(region);
            }
        }
    }

    /// Releases the frames of these mappings, adjacent ones in one step: advice may have split a mapping within a
    /// superpage.
    fn release_mapped(&mut self, places: &[Place]) {
        let mut run: Option<(u32, u32)> = None;
        for &(first, mapping) in places {
            run = match run {
                Some((start, end)) if end == first => Some((start, mapping.end)),
                _ => {
                    if let Some((start, end)) = run {
                        self.release(Pages { first: Page(start), count: end - start });
                    }
                    Some((first, mapping.end))
                }
            };
        }
        if let Some((start, end)) = run {
            self.release(Pages { first: Page(start), count: end - start });
        }
    }

    fn advise(&mut self, pages: Pages, advice: Advice) -> Result<(), Stop> {
        self.system_call();
        match advice {
            Advice::Huge | Advice::NoHuge => {
                let advised = Some(advice == Advice::Huge);
                self.spaces.change(pages, |mapping| mapping.advised = advised);
            }
            Advice::DontNeed | Advice::Free => self.discard(pages),
            Advice::Populate => self.populate(pages)?,
            Advice::Collapse => self.collapse_all(pages),
        }
        Ok(())
    }

    fn discard(&mut self, pages: Pages) {
        let pages = self.pool.trim(&self.spaces, pages);
        let inside = self.spaces.strictly_within(pages);
        if inside.is_some_and(|(_, mapping)| mapping.pool.is_none()) {
            return self.release(pages);
        }
        let places = self.spaces.cut(pages);
        self.release_mapped(&places);
        for (first, mapping) in places {
            if let Some(pool) = mapping.pool {
                self.pool_discard(pool, first, mapping.end);
            }
        }
        self.spaces.join(pages);
    }

    fn populate(&mut self, pages: Pages) -> Result<(), Stop> {
        for page in (pages.first.0..pages.end().0).map(Page) {
            if self.spaces.place_of(page).is_err() {
                // As in Linux, populates up to a hole, then fails with ENOMEM.
                break;
            }
            let region = page.region();
            let mapped = self.spaces.is_large(region) || self.spaces.is_present(page);
            let checked = self.spaces.kind(region) & CHECK != 0;
            if !mapped || checked && !self.spaces.is_fine(page, true) {
                self.fault(page, true)?;
            }
        }
        Ok(())
    }

    fn collapse_all(&mut self, pages: Pages) {
        if self.reserves_larger() {
            // No kernel has both larger reservations and collapse, so nothing is copied.
            return;
        }
        let (first, end) = (pages.first.0.div_ceil(SLOTS), pages.end().region().0);
        for region in (first..end.min(self.spaces.region_count())).map(Region) {
            let is_ours = self.spaces.at(region).process == self.spaces.running();
            if is_ours && self.collapse(region, Payer::Program) == Collapsed::NoMemory {
                break;
            }
        }
    }

    fn protect(&mut self, pages: Pages, writable: bool) {
        self.system_call();
        self.clock.spend(Cause::Shootdown, self.costs.shootdown);
        self.spaces.change(pages, |mapping| mapping.writable = writable);
        for edge in [pages.first.0, pages.end().0] {
            let region = Page(edge).region();
            let at = self.spaces.get(region);
            let ours = at.is_some_and(|at| at.process == self.spaces.running());
            if edge % SLOTS != 0 && ours {
                self.superpage_event(region, Happened::Protected { whole: false });
            } else if ours {
                self.cut_larger(edge, Happened::Protected { whole: false });
            }
        }
    }

    /// Maps the parent's mappings in the child; anonymous pages are shared until either writes.
    fn fork(&mut self, child: Process, offset: u32) -> Result<(), Stop> {
        self.system_call();
        if self.pool.exists() && !offset.is_multiple_of(self.pool.pages()) {
            return ill_formed(format!(
                "a fork moves pages by {offset}, no multiple of a superpage"
            ));
        }
        let parent = self.spaces.process(self.spaces.running());
        let mappings: Vec<Place> = parent.into_iter().flat_map(|own| own.mappings()).collect();
        for &(first, mapping) in &mappings {
            let Some(moved) = first.checked_add(offset) else {
                return ill_formed(format!("a fork moves page {first} by {offset}"));
            };
            let pages = Pages { first: Page(moved), count: mapping.end - first };
            self.take_regions(pages, child.0)?;
        }
        self.spaces.begin_process(child.0);
        let mut copy = Vec::with_capacity(mappings.len());
        // Parts of one pool mapping remain parts of one mapping in the child.
        let mut pools = std::collections::BTreeMap::new();
        for &(first, mut mapping) in &mappings {
            let mut origin = 0;
            if let Backing::Shared(object) = mapping.backing {
                origin = mapping.origin + offset;
                self.spaces.add_to_object(object, origin);
            }
            let (start, end) = (first, mapping.end);
            let is_object = mapping.fork.is_some() || self.has_pages(start, end);
            if mapping.is_anonymous() && is_object {
                mapping.fork = self.spaces.fork_mapping(first, child.0);
            }
            mapping.end += offset;
            mapping.origin = origin;
            mapping.pool = mapping.pool.and_then(|pool| {
                *pools.entry(pool).or_insert_with(|| self.pool.fork(pool, offset / SLOTS))
            });
            copy.push((first + offset, mapping));
            if let Some(pages) =
                mapping.pool.map(|pool| self.pool.backed(pool)).filter(|at| at.count > 0)
            {
                self.spaces.take_free_regions(pages, child.0);
            }
            self.share(start, end, offset, mapping);
        }
        self.spaces.fork_to(child.0, copy);
        self.spaces.invalidate_all();
        Ok(())
    }

    /// Returns whether any of the pages `start..end` has contents. The memory object of a mapping exists from its first
    /// fault on.
    fn has_pages(&self, start: u32, end: u32) -> bool {
        let pages = Pages { first: Page(start), count: end - start };
        pages
            .regions()
            .any(|region| self.spaces.is_large(region) || self.spaces.at(region).place != NO_TABLE)
    }

    /// Maps the pages `start..end` in a child as well.
    fn share(&mut self, start: u32, end: u32, offset: u32, mapping: Mapping) {
        let private = !matches!(mapping.backing, Backing::Shared(_));
        let mut at = start;
        while at < end {
            let region = Page(at).region();
            let stop = end.min(region.next().first().0);
            if self.spaces.is_part(region) && !self.spaces.at(region).has(POOL) {
                let all = self.extent_around(region);
                if all.first.0 == at
                    && all.end().0 <= end
                    && private
                    && offset.is_multiple_of(all.count)
                {
                    for region in self.spaces.around(region) {
                        self.share_region(region, Page(region.first().0 + offset).region());
                    }
                    self.clock.spend(Cause::Map, self.costs.map_page);
                    at = all.end().0;
                    continue;
                }
                // Only part of a larger superpage is shared, or it is unaligned in the child.
                self.split_larger(region, Payer::Program);
            }
            let whole = at.is_multiple_of(SLOTS) && stop - at == SLOTS;
            self.superpage_event(region, Happened::Shared { whole, private });
            if self.spaces.at(region).has(POOL) {
                for region in self.pool.regions(region) {
                    self.share_large(region, Page(region.first().0 + offset).region());
                }
            } else if self.spaces.is_large(region) {
                self.share_large(region, Page(at + offset).region());
            } else if self.spaces.at(region).place != NO_TABLE {
                for page in at..stop {
                    self.share_page(Page(page), offset, private);
                }
            }
            at = stop;
        }
    }

    fn share_page(&mut self, page: Page, offset: u32, private: bool) {
        if let Some(frame) = self.spaces.share_page(page, offset, private) {
            self.frames.share(frame, Page(page.0 + offset));
            self.clock.spend(Cause::Map, self.costs.map_page);
        }
    }

    fn share_large(&mut self, region: Region, child: Region) {
        // A pool page may span several parts of a mapping and extend past the last one.
        if self.spaces.is_large(child) {
            return;
        }
        self.share_region(region, child);
        self.clock.spend(Cause::Map, self.costs.map_page);
    }

    fn share_region(&mut self, region: Region, child: Region) {
        if let Some(base) = self.spaces.share_large(region, child) {
            self.frames.share(base, child.first());
        }
    }

    fn exit(&mut self, process: Process) {
        let before = self.spaces.running();
        self.run(process);
        let own = self.spaces.process(process.0);
        let mappings: Vec<Place> = own.into_iter().flat_map(|own| own.mappings()).collect();
        for (first, mapping) in mappings {
            self.system_call();
            if self.spaces.process(process.0).is_some_and(|own| own.begins_at(first)) {
                self.remove(Pages { first: Page(first), count: mapping.end - first });
            }
        }
        self.spaces.end_process(process.0);
        self.daemons.forget(process.0);
        self.spaces.run(before);
        self.spaces.forget_place();
    }

    /// Splits a superpage if the policy decides so after an event on its pages.
    fn superpage_event(&mut self, region: Region, event: Happened) {
        if self.spaces.is_large(region)
            && self.policy.on(event, &self.facts_of_superpage(region)) == Action::Demote
        {
            self.demote(region, Payer::Program);
        }
    }

    /// Maps a page of a shared object that another mapping has in memory.
    pub(crate) fn map_in_object(&mut self, page: Page, write: bool, place: Place) {
        let other = self.spaces.in_object(page, place).expect("it was among the policy's facts");
        self.superpage_event(other.region(), Happened::Shared { whole: false, private: false });
        let frame = self.spaces.entry(other).frame().expect("it is in memory");
        self.frames.share(frame, page);
        self.spaces.map_page(page, frame, write);
        self.clock.spend(Cause::Map, self.costs.map_page);
    }
}
