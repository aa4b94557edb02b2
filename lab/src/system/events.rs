//! What a program asks of the kernel: maps, unmaps, advises, forks, ends.

use policy::{Action, Event as Happened};
use trace::{Advice, Backing, Event, Page, Pages, Process, SLOTS};

use super::allocate::Payer;
use super::collapse::Collapsed;
use super::formed::ill_formed;
use super::region::{CHECK, COW, DIRTY, Entry, NO_TABLE, POOL, ZEROS};
use super::space::{Mapping, Place};
use super::spaces::Shoot;
use super::{Stop, System};
use crate::Cause;

impl System {
    /// Carries out one event of the stream.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Stop> {
        self.well_formed(event)?;
        match event {
            Event::Spawn(process) => {
                self.spaces.processes.insert(process.0, super::space::Process::default());
                self.run(*process)
            }
            Event::Run(process) => self.run(*process),
            Event::Map { pages, backing, .. } => self.map(*pages, *backing),
            Event::Grow { pages } => self.grow(*pages),
            Event::Unmap(pages) => self.unmap(*pages),
            Event::Advise(pages, advice) => self.advise(*pages, *advice),
            Event::Protect(pages, read_only) => self.protect(*pages, !*read_only),
            Event::Fork { child, offset } => self.fork(*child, *offset),
            Event::Exit(process) => self.exit(*process),
            Event::Pace(pace) => {
                self.clock.set_pace(*pace);
                Ok(())
            }
            Event::Wait(microseconds) => {
                self.clock.wait(self.clock.of_microseconds(*microseconds));
                Ok(())
            }
            Event::Phase(name) => {
                self.phases.begin(name, &self.clock, self.counters.accesses);
                Ok(())
            }
            Event::RequestBegin => {
                self.request = Some(self.clock.now());
                Ok(())
            }
            Event::RequestEnd => {
                if let Some(began) = self.request.take() {
                    self.latencies.push(self.clock.now() - began);
                }
                Ok(())
            }
        }
    }

    fn run(&mut self, process: Process) -> Result<(), Stop> {
        if self.running != process.0 {
            self.running = process.0;
            self.last = None;
            if !self.pcid {
                self.spaces.shoot.push(Shoot::All);
            }
        }
        Ok(())
    }

    fn own(&mut self) -> &mut super::space::Process {
        let running = self.running;
        self.spaces.processes.entry(running).or_default()
    }

    /// The mapping of the running process that holds `page`.
    #[inline]
    pub(crate) fn place_of(&mut self, page: Page) -> Result<Place, Stop> {
        if let Some((first, mapping)) = self.last
            && (first..mapping.end).contains(&page.0)
        {
            return Ok((first, mapping));
        }
        let found = self.spaces.processes.get(&self.running).and_then(|own| own.find(page));
        let Some(place) = found else {
            return Err(Stop::IllFormed(format!(
                "page {} of region {} is accessed, and process {} has not mapped it",
                page.slot(),
                page.region().0,
                self.running
            )));
        };
        self.last = Some(place);
        Ok(place)
    }

    fn map(&mut self, pages: Pages, backing: Backing) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.last = None;
        let origin = if matches!(backing, Backing::Shared(_)) { pages.first.0 } else { 0 };
        for part in self.pool_leftover(pages) {
            self.map_part(part, backing, origin)?;
        }
        Ok(())
    }

    fn map_part(&mut self, pages: Pages, backing: Backing, origin: u32) -> Result<(), Stop> {
        self.take_regions(pages, self.running)?;
        let end = pages.first.0 + pages.count;
        let anonymous = matches!(backing, Backing::Anonymous | Backing::Heap);
        let pool = if anonymous { self.pool_map(pages, backing)? } else { None };
        let mapping = Mapping { end, backing, advised: None, writable: true, pool, origin };
        if let Backing::Shared(object) = backing {
            self.objects.entry(object).or_default().push(origin);
        }
        self.own().mappings.insert(pages.first.0, mapping);
        if pool.is_none() {
            self.own().join(pages);
        }
        Ok(())
    }

    fn grow(&mut self, pages: Pages) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.last = None;
        let before = Page(pages.first.0.wrapping_sub(1));
        // Of a page of the pool nothing is unmapped until all is.
        let ends = |mapping: &Mapping| mapping.end == pages.first.0 || mapping.pool.is_some();
        let found = self.own().find(before).filter(|(_, mapping)| ends(mapping));
        let Some((mut first, mut mapping)) = found else {
            return ill_formed(format!("a heap grows at page {}, where none ends", pages.first.0));
        };
        while let Some(&next) = self.own().mappings.get(&mapping.end)
            && mapping.pool.is_some()
            && next.pool == mapping.pool
        {
            (first, mapping) = (mapping.end, next);
        }
        let end = pages.first.0 + pages.count;
        if end <= mapping.end {
            return Ok(());
        }
        let new = Pages { first: Page(mapping.end), count: end - mapping.end };
        let parts = self.pool_leftover(new);
        if parts != [new] || mapping.pool.is_some_and(|id| self.pool_ended(id, mapping.end)) {
            for part in parts {
                self.map_part(part, mapping.backing, 0)?;
            }
            return Ok(());
        }
        self.take_regions(new, self.running)?;
        mapping.end = end;
        if let Some(pool) = mapping.pool {
            self.pool_grow(pool, mapping.end)?;
        }
        self.own().mappings.insert(first, mapping);
        Ok(())
    }

    fn unmap(&mut self, pages: Pages) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.last = None;
        let pages = self.pool_trim(pages);
        self.remove(pages);
        Ok(())
    }

    /// Takes mappings away, and all that was in them.
    fn remove(&mut self, pages: Pages) {
        self.own().cut(pages);
        let gone = self.own().within(pages);
        self.release_mapped(&gone);
        for &(first, mapping) in &gone {
            if let Some(pool) = mapping.pool {
                self.pool_unmap(pool, first, mapping.end);
            }
            self.own().mappings.remove(&first);
        }
        for &(first, mapping) in &gone {
            if let Backing::Shared(object) = mapping.backing
                && !self
                    .own()
                    .mappings
                    .values()
                    .any(|other| other.backing == mapping.backing && other.origin == mapping.origin)
                && let Some(places) = self.objects.get_mut(&object)
            {
                places.retain(|&place| place != mapping.origin);
            }
            self.empty_regions(first, mapping.end);
        }
    }

    /// What is left in regions of `first..end` that are mapped no more goes: pages that were prepared past a
    /// mapping's end, and reservations for pages that others still have after a fork.
    fn empty_regions(&mut self, first: u32, end: u32) {
        let last = (end - 1) >> 9;
        for region in first >> 9..=last {
            let edge = region == first >> 9 || region == last;
            if !edge && self.spaces.reservations.is_empty() {
                continue;
            }
            let window = Pages { first: Page(region << 9), count: SLOTS };
            if self.own().meets(window) {
                continue;
            }
            if self.spaces.regions[region as usize].resident > 0 {
                self.release(window);
            }
            self.break_in(region);
        }
    }

    /// Takes the frames of these mappings, those side by side at once: advice may have cut one within a superpage.
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
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.last = None;
        match advice {
            Advice::Huge | Advice::NoHuge => {
                self.own().cut(pages);
                for (first, mut mapping) in self.own().within(pages) {
                    mapping.advised = Some(advice == Advice::Huge);
                    self.own().mappings.insert(first, mapping);
                }
                self.own().join(pages);
                Ok(())
            }
            Advice::DontNeed | Advice::Free => {
                let pages = self.pool_trim(pages);
                let inside = self.own().strictly_within(pages);
                if let Some((_, mapping)) = inside.filter(|(_, mapping)| mapping.pool.is_none()) {
                    let end = pages.first.0 + pages.count;
                    self.release_mapped(&[(
                        pages.first.0,
                        super::space::Mapping { end, ..mapping },
                    )]);
                    return Ok(());
                }
                self.own().cut(pages);
                let places = self.own().within(pages);
                self.release_mapped(&places);
                for (first, mapping) in places {
                    if let Some(pool) = mapping.pool {
                        self.pool_discard(pool, first, mapping.end);
                    }
                }
                self.own().join(pages);
                Ok(())
            }
            Advice::Populate => {
                for page in (pages.first.0..pages.first.0 + pages.count).map(Page) {
                    if self.place_of(page).is_err() {
                        // Up to a hole, and then ENOMEM.
                        break;
                    }
                    let region = page.region().0;
                    let mapped = self.spaces.is_large(region) || self.spaces.is_present(page);
                    let checked = self.spaces.kinds[region as usize] & CHECK != 0;
                    if !mapped || checked && !self.is_fine(page, true) {
                        self.fault(page, true)?;
                    }
                }
                Ok(())
            }
            Advice::Collapse => {
                let (first, end) =
                    (pages.first.0.div_ceil(SLOTS), (pages.first.0 + pages.count) >> 9);
                for region in first..end.min(self.spaces.regions.len() as u32) {
                    if self.spaces.regions[region as usize].process != self.running {
                        continue;
                    }
                    let done = self.collapse(region, Payer::Program);
                    if done == Collapsed::NoMemory {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    fn protect(&mut self, pages: Pages, writable: bool) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.clock.spend(Cause::Shootdown, self.costs.shootdown);
        self.last = None;
        self.own().cut(pages);
        for (first, mut mapping) in self.own().within(pages) {
            mapping.writable = writable;
            self.own().mappings.insert(first, mapping);
        }
        self.own().join(pages);
        for edge in [pages.first.0, pages.first.0 + pages.count] {
            let region = edge >> 9;
            let at = self.spaces.regions.get(region as usize);
            let ours = at.is_some_and(|at| at.process == self.running);
            if edge % SLOTS != 0 && ours {
                self.superpage_event(region, Happened::Protected { whole: false });
            }
        }
        Ok(())
    }

    /// The child maps what the parent maps; anonymous pages are shared until one of them writes.
    fn fork(&mut self, child: Process, offset: u32) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.last = None;
        let mappings: Vec<Place> =
            self.own().mappings.iter().map(|(&first, &mapping)| (first, mapping)).collect();
        for &(first, mapping) in &mappings {
            let Some(moved) = first.checked_add(offset) else {
                return ill_formed(format!("a fork moves page {first} by {offset}"));
            };
            self.take_regions(Pages { first: Page(moved), count: mapping.end - first }, child.0)?;
        }
        self.spaces.processes.insert(child.0, super::space::Process::default());
        let mut copy = std::collections::BTreeMap::new();
        // Parts of one mapping are parts of one mapping in the child.
        let mut pools = std::collections::BTreeMap::new();
        for &(first, mut mapping) in &mappings {
            let mut origin = 0;
            if let Backing::Shared(object) = mapping.backing {
                origin = mapping.origin + offset;
                let places = self.objects.entry(object).or_default();
                if !places.contains(&origin) {
                    places.push(origin);
                }
            }
            let (start, end) = (first, mapping.end);
            mapping.end += offset;
            mapping.origin = origin;
            mapping.pool = mapping.pool.and_then(|pool| {
                *pools.entry(pool).or_insert_with(|| self.pool_fork(pool, offset >> 9))
            });
            copy.insert(first + offset, mapping);
            self.share(start, end, offset, mapping);
        }
        self.spaces.processes.entry(child.0).or_default().mappings = copy;
        self.spaces.shoot.push(Shoot::All);
        Ok(())
    }

    /// The pages `start..end` are mapped in a child too.
    fn share(&mut self, start: u32, end: u32, offset: u32, mapping: Mapping) {
        let private = !matches!(mapping.backing, Backing::Shared(_));
        let mut at = start;
        while at < end {
            let region = at >> 9;
            let stop = end.min((region + 1) << 9);
            let whole = at.is_multiple_of(SLOTS) && stop - at == SLOTS;
            self.superpage_event(region, Happened::Shared { whole, private });
            if self.spaces.is_large(region) {
                // A page of the pool may lie in several parts of a mapping, and reach past the last.
                if !self.spaces.is_large(region + (offset >> 9)) {
                    self.share_large(region, offset >> 9);
                }
            } else if self.spaces.regions[region as usize].place != NO_TABLE {
                for page in at..stop {
                    self.share_page(Page(page), offset, private);
                }
            }
            at = stop;
        }
    }

    fn share_page(&mut self, page: Page, offset: u32, private: bool) {
        let entry = self.spaces.entry(page);
        let twin = Page(page.0 + offset);
        if entry.is_swapped() && private {
            *self.spaces.entry_mut(twin) = entry;
            self.spaces.swapped += 1;
        }
        let Some(frame) = entry.frame() else { return };
        let region = page.region().0;
        let shared = if private { entry.with(Entry::COW) } else { entry };
        *self.spaces.entry_mut(page) = shared;
        self.spaces.shares.entry(frame.0).or_default().push(twin.0);
        if private {
            self.spaces.kinds[region as usize] |= CHECK;
            self.spaces.region(region).flags |= COW;
        }
        self.spaces.map_entry(twin, shared);
        let child = twin.region().0;
        if private {
            self.spaces.region(child).flags |= COW;
        }
        self.spaces.count_resident(child, 1);
        self.clock.spend(Cause::Map, self.costs.map_page);
    }

    fn share_large(&mut self, region: u32, offset: u32) {
        let child = region + offset;
        self.spaces.region(region).flags |= COW;
        self.spaces.kinds[region as usize] |= CHECK;
        let at = self.spaces.regions[region as usize];
        if !at.has(ZEROS | POOL) {
            self.spaces.shares.entry(at.place).or_default().push(child << 9);
        }
        let process = self.spaces.regions[child as usize].process;
        *self.spaces.region(child) = super::region::Region {
            process,
            resident: 0,
            flags: at.flags & (DIRTY | COW | POOL | ZEROS),
            ..at
        };
        self.spaces.kinds[child as usize] = self.spaces.kinds[region as usize];
        self.spaces.count_resident(child, i64::from(SLOTS));
        self.spaces.count_superpages(child, 1);
        self.clock.spend(Cause::Map, self.costs.map_page);
    }

    fn exit(&mut self, process: Process) -> Result<(), Stop> {
        let before = self.running;
        self.run(process)?;
        for (first, mapping) in self.own().mappings.clone() {
            self.clock.spend(Cause::Map, self.costs.system_call);
            self.last = None;
            if self.own().mappings.contains_key(&first) {
                self.remove(Pages { first: Page(first), count: mapping.end - first });
            }
        }
        self.spaces.processes.remove(&process.0);
        self.daemons.forget(process.0);
        if before != process.0 {
            self.running = before;
        }
        self.last = None;
        Ok(())
    }

    /// Something happens to pages of a superpage: it is split if the policy says so.
    fn superpage_event(&mut self, region: u32, event: Happened) {
        if self.spaces.is_large(region)
            && self.policy.on(event, &self.facts_of_superpage(region)) == Action::Demote
        {
            self.demote(region, Payer::Program);
        }
    }

    /// Where another mapping of its object has a page in memory.
    pub(crate) fn in_object(&self, page: Page, (_, mapping): Place) -> Option<Page> {
        let Backing::Shared(object) = mapping.backing else { return None };
        let at = page.0 - mapping.origin;
        let places = self.objects.get(&object)?;
        places.iter().find_map(|&origin| {
            let other = Page(origin.saturating_add(at));
            let of_object =
                |(_, found): Place| found.backing == mapping.backing && found.origin == origin;
            let region = other.region().0;
            let owner = self.spaces.regions.get(region as usize);
            let owner = owner.and_then(|region| self.spaces.processes.get(&region.process));
            let is_mapped =
                other != page && owner.and_then(|own| own.find(other)).is_some_and(of_object);
            let is_there = is_mapped
                && (self.spaces.is_large(region) || self.spaces.entry(other).frame().is_some());
            is_there.then_some(other)
        })
    }

    /// Maps a page that another mapping of its object has.
    pub(crate) fn map_in_object(&mut self, page: Page, write: bool, place: Place) {
        let other = self.in_object(page, place).expect("the policy was told so");
        self.superpage_event(other.region().0, Happened::Shared { whole: false, private: false });
        let frame = self.spaces.entry(other).frame().expect("it is in memory");
        self.spaces.shares.entry(frame.0).or_default().push(page.0);
        let entry = Entry::of(frame);
        let entry = if write { entry.with(Entry::DIRTY) } else { entry };
        self.spaces.map_entry(page, entry);
        self.spaces.count_resident(page.region().0, 1);
        self.clock.spend(Cause::Map, self.costs.map_page);
    }
}
