//! What a program asks of the kernel: maps, unmaps, advises, forks, ends.

use trace::{Advice, Backing, Event, Page, Pages, Process, SLOTS};

use super::allocate::Payer;
use super::collapse::{Collapsed, Fitness};
use super::region::{CHECK, COW, Entry, NO_TABLE};
use super::space::{Mapping, Place};
use super::spaces::Shoot;
use super::{Stop, System};
use crate::Cause;

impl System {
    /// Carries out one event of the stream.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Stop> {
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
            Event::Protect(pages, writable) => self.protect(*pages, *writable),
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
        if !self.spaces.processes.contains_key(&process.0) {
            return Err(self.ill_formed(format!("process {} was never begun", process.0)));
        }
        if self.running != process.0 {
            self.running = process.0;
            self.last = None;
            if !self.pcid {
                self.spaces.shoot.push(Shoot::All);
            }
        }
        Ok(())
    }

    fn ill_formed(&self, what: String) -> Stop {
        Stop::IllFormed(what)
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
        if pages.count == 0 || u64::from(pages.first.0) + u64::from(pages.count) >= 1 << 31 {
            return Err(self.ill_formed(format!("a mapping of {} pages", pages.count)));
        }
        self.spaces.cover(pages);
        self.last = None;
        let running = self.running;
        let end = pages.first.0 + pages.count;
        for region in pages.first.0 >> 9..=(end - 1) >> 9 {
            self.spaces.region(region).process = running;
        }
        let anonymous = matches!(backing, Backing::Anonymous | Backing::Heap);
        let pool = if anonymous { self.pool_map(pages, backing)? } else { None };
        let mapping = Mapping {
            end,
            backing,
            advised: None,
            writable: true,
            pool,
            origin: if anonymous { 0 } else { pages.first.0 },
        };
        if let Backing::Shared(object) = backing {
            self.objects.entry(object).or_default().push(pages.first.0);
        }
        self.own().mappings.insert(pages.first.0, mapping);
        if pool.is_none() {
            self.own().join(pages);
        }
        Ok(())
    }

    fn grow(&mut self, pages: Pages) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.spaces.cover(pages);
        self.last = None;
        let running = self.running;
        let before = Page(pages.first.0.wrapping_sub(1));
        let found = self.own().find(before).filter(|(_, mapping)| mapping.end == pages.first.0);
        let Some((first, mapping)) = found else {
            return Err(
                self.ill_formed(format!("a heap grows at page {}, where none ends", pages.first.0))
            );
        };
        for region in pages.first.0 >> 9..=(pages.first.0 + pages.count - 1) >> 9 {
            self.spaces.region(region).process = running;
        }
        let mut mapping = mapping;
        mapping.end += pages.count;
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
        self.own().cut(pages);
        let gone = self.own().within(pages);
        for &(first, mapping) in &gone {
            self.release(Pages { first: Page(first), count: mapping.end - first });
            if let Some(pool) = mapping.pool {
                self.pool_unmap(pool, first, mapping.end);
            }
            if let Backing::Shared(object) = mapping.backing
                && let Some(places) = self.objects.get_mut(&object)
            {
                places.retain(|&place| place != mapping.origin);
            }
            self.own().mappings.remove(&first);
        }
        Ok(())
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
                self.release(pages);
                self.own().cut(pages);
                for (first, mapping) in self.own().within(pages) {
                    if let Some(pool) = mapping.pool {
                        self.pool_discard(pool, first, mapping.end);
                    }
                }
                self.own().join(pages);
                Ok(())
            }
            Advice::Populate => {
                for page in (pages.first.0..pages.first.0 + pages.count).map(Page) {
                    let region = page.region().0;
                    let mapped = self.spaces.is_large(region)
                        || self.spaces.regions[region as usize].is_present(page.slot());
                    if !mapped {
                        self.fault(page, true)?;
                    }
                }
                Ok(())
            }
            Advice::Collapse => {
                let fitness = Fitness { least_present: 1, referenced: false };
                let effort = design::Effort::DirectRetry;
                let (first, end) =
                    (pages.first.0.div_ceil(SLOTS), (pages.first.0 + pages.count) >> 9);
                for region in first..end {
                    let done = self.collapse(region, fitness, effort, Payer::Program);
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
        // A superpage of which only a part changes is split.
        if self.design.unmapping.partial_protect {
            for edge in [pages.first.0, pages.first.0 + pages.count] {
                let region = edge >> 9;
                if edge % SLOTS != 0 && self.spaces.is_large(region) {
                    self.demote(region, Payer::Program);
                }
            }
        }
        Ok(())
    }

    /// The child maps what the parent maps; anonymous pages are shared until one of them writes.
    fn fork(&mut self, child: Process, offset: u32) -> Result<(), Stop> {
        self.clock.spend(Cause::Map, self.costs.system_call);
        self.last = None;
        if !offset.is_multiple_of(SLOTS) {
            return Err(self.ill_formed(format!("a fork moves pages by {offset}, no whole region")));
        }
        let mappings: Vec<Place> =
            self.own().mappings.iter().map(|(&first, &mapping)| (first, mapping)).collect();
        let mut copy = super::space::Process::default();
        for &(first, mut mapping) in &mappings {
            self.spaces.cover(Pages { first: Page(first + offset), count: mapping.end - first });
            let origin = if mapping.origin == 0 { 0 } else { mapping.origin + offset };
            if let Backing::Shared(object) = mapping.backing {
                self.objects.entry(object).or_default().push(origin);
            }
            let (start, end) = (first, mapping.end);
            mapping.end += offset;
            mapping.origin = origin;
            mapping.pool = mapping.pool.map(|pool| self.pool_fork(pool, offset >> 9));
            copy.mappings.insert(first + offset, mapping);
            for region in start >> 9..=(end - 1) >> 9 {
                self.spaces.region(region + (offset >> 9)).process = child.0;
            }
            self.share(start, end, offset, mapping);
        }
        self.spaces.processes.insert(child.0, copy);
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
            if self.spaces.is_large(region) && !(at.is_multiple_of(SLOTS) && stop - at == SLOTS) {
                self.demote(region, Payer::Program);
            }
            if self.spaces.is_large(region) {
                self.share_large(region, offset >> 9, private);
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
        let Some(frame) = entry.frame() else { return };
        let region = page.region().0;
        let twin = Page(page.0 + offset);
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

    fn share_large(&mut self, region: u32, offset: u32, private: bool) {
        let child = region + offset;
        if private {
            self.spaces.region(region).flags |= COW;
            self.spaces.kinds[region as usize] |= CHECK;
        }
        let at = self.spaces.regions[region as usize];
        if !at.has(super::region::ZEROS | super::region::POOL) {
            self.spaces.shares.entry(at.place).or_default().push(child << 9);
        }
        let process = self.spaces.regions[child as usize].process;
        *self.spaces.region(child) = super::region::Region {
            process,
            resident: 0,
            flags: at.flags & !super::region::RESERVED,
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
            self.unmap(Pages { first: Page(first), count: mapping.end - first })?;
        }
        self.spaces.processes.remove(&process.0);
        self.daemons.forget(process.0);
        if before != process.0 {
            self.running = before;
        }
        self.last = None;
        Ok(())
    }

    /// A page of shared memory that another mapping of the object has already.
    pub(crate) fn shared_fault(&mut self, page: Page, write: bool, (_, mapping): Place) -> bool {
        let Backing::Shared(object) = mapping.backing else { return false };
        let at = page.0 - mapping.origin;
        let places = self.objects.get(&object).cloned().unwrap_or_default();
        for origin in places {
            let other = Page(origin + at);
            if other == page || self.spaces.is_large(other.region().0) {
                continue;
            }
            if let Some(frame) = self.spaces.entry(other).frame() {
                self.spaces.shares.entry(frame.0).or_default().push(page.0);
                let entry = Entry::of(frame);
                let entry = if write { entry.with(Entry::DIRTY) } else { entry };
                self.spaces.map_entry(page, entry);
                self.spaces.count_resident(page.region().0, 1);
                self.clock.spend(Cause::Map, self.costs.map_page);
                return true;
            }
        }
        false
    }
}
