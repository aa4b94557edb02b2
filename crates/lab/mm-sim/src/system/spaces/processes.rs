//! Processes: the running one, their mappings, and the owners of regions.

use trace::{Backing, Page, Pages};

use super::Spaces;
use super::region::RegionEntry;
use super::{Mapping, Place, Process};
use crate::reservation::{Key, Population};
use crate::system::Stop;
use crate::system::formed::{MAX_SKIPPED, ill_formed};
use crate::touched::MAX_REGIONS;

impl Spaces {
    pub(crate) fn begin_process(&mut self, process: u32) {
        self.processes.insert(process, Process::default());
    }

    /// Removes a process that has no mappings left.
    pub(crate) fn end_process(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    pub(crate) fn lives(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    pub(crate) fn process(&self, process: u32) -> Option<&Process> {
        self.processes.get(&process)
    }

    pub(crate) fn processes_from(&self, process: u32) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.range(process..).map(|(&number, process)| (number, process))
    }

    #[inline(always)]
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Switches to a process. Returns `false` if it is running already.
    pub(crate) fn run(&mut self, process: u32) -> bool {
        let others = self.running != process;
        if others {
            self.running = process;
            self.last = None;
        }
        others
    }

    pub(super) fn own(&mut self) -> &mut Process {
        self.processes.entry(self.running).or_default()
    }

    /// Returns the mapping of the last fault, unless mappings have changed since.
    #[inline(always)]
    pub(crate) fn last_place(&self) -> Option<&Place> {
        self.last.as_ref()
    }

    /// Forgets the mapping of the last fault, because mappings change.
    pub(crate) fn forget_place(&mut self) {
        self.last = None;
    }

    #[inline]
    pub(crate) fn place_of(&mut self, page: Page) -> Result<Place, Stop> {
        if let Some((first, mapping)) = self.last
            && (first..mapping.end).contains(&page.0)
        {
            return Ok((first, mapping));
        }
        let found = self.processes.get(&self.running).and_then(|own| own.find(page));
        let Some(place) = found else {
            return Err(Stop::IllFormed(format!(
                "page {} of region {} is accessed, but process {} has not mapped it",
                page.slot(),
                page.region().0,
                self.running
            )));
        };
        self.last = Some(place);
        Ok(place)
    }

    /// Adds a mapping to the running process, and merges it with identical neighbours. Pool mappings are not merged.
    pub(crate) fn map(&mut self, pages: Pages, mapping: Mapping) {
        if let Backing::Shared(object) = mapping.backing {
            self.add_to_object(object, mapping.origin);
        }
        let own = self.own();
        own.mappings.insert(pages.first.0, mapping);
        if mapping.pool.is_none() {
            own.join(pages);
        }
    }

    /// Changes the running process's mappings, only within `pages`.
    pub(crate) fn change(&mut self, pages: Pages, change: impl Fn(&mut Mapping)) {
        let own = self.own();
        own.cut(pages);
        let all = pages.first.0..pages.end().0;
        own.mappings.range_mut(all).for_each(|(_, mapping)| change(mapping));
        own.join(pages);
    }

    /// Splits the running process's mappings at the ends of `pages`, and returns those within.
    pub(crate) fn cut(&mut self, pages: Pages) -> Vec<Place> {
        let own = self.own();
        own.cut(pages);
        own.within(pages)
    }

    /// Merges the running process's mappings around `pages` again.
    pub(crate) fn join(&mut self, pages: Pages) {
        self.own().join(pages);
    }

    /// Returns the running process's mapping that contains `pages` and extends beyond both ends.
    pub(crate) fn strictly_within(&mut self, pages: Pages) -> Option<Place> {
        self.own().strictly_within(pages)
    }

    /// Removes mappings of the running process, whose memory was already released.
    pub(crate) fn unmap(&mut self, places: &[Place]) {
        for (first, _) in places {
            self.own().mappings.remove(first);
        }
        for &(_, mapping) in places {
            self.leave_object(mapping);
            self.leave_fork(mapping);
        }
    }

    pub(crate) fn maps_any(&mut self, pages: Pages) -> bool {
        self.own().meets(pages)
    }

    /// Returns the running process's heap mapping that ends at `page`. A pool page is unmapped only as a whole, so a
    /// heap on the pool may extend past `page`.
    pub(crate) fn heap_before(&mut self, page: Page) -> Option<Place> {
        let own = self.own();
        let ends = |mapping: &Mapping| mapping.end == page.0 || mapping.pool.is_some();
        let before = Page(page.0.wrapping_sub(1));
        let (mut first, mut mapping) = own.find(before).filter(|(_, mapping)| ends(mapping))?;
        while let Some(&next) = own.mappings.get(&mapping.end)
            && mapping.pool.is_some()
            && next.pool == mapping.pool
        {
            (first, mapping) = (mapping.end, next);
        }
        Some((first, mapping))
    }

    pub(crate) fn extend(&mut self, (first, mapping): Place) {
        self.own().mappings.insert(first, mapping);
    }

    /// Marks a mapping of the running process, which forks, as shared with `child`. Returns the number of the fork tree.
    pub(crate) fn fork_mapping(&mut self, first: u32, child: u32) -> Option<u32> {
        let (running, next) = (self.running, self.forks.len() as u32);
        let mapping = self.own().mappings.get_mut(&first)?;
        let fork = *mapping.fork.get_or_insert(next);
        if fork == next {
            self.forks.push(vec![running]);
        }
        let processes = &mut self.forks[fork as usize];
        if !processes.contains(&child) {
            processes.push(child);
        }
        Some(fork)
    }

    /// Returns whether several processes have mappings of a fork tree.
    pub(crate) fn is_forked(&self, fork: u32) -> bool {
        self.forks[fork as usize].len() > 1
    }

    /// Removes the running process from a fork tree of which it has no mapping left.
    fn leave_fork(&mut self, mapping: Mapping) {
        let Some(fork) = mapping.fork else { return };
        if !self.own().mappings().any(|(_, other)| other.fork == mapping.fork) {
            let running = self.running;
            self.forks[fork as usize].retain(|&process| process != running);
        }
    }

    /// Records that a page of a mapping was swapped out.
    pub(crate) fn mark_swapped(&mut self, page: Page) {
        let process = self.at(page.region()).process;
        let own = self.processes.get_mut(&process);
        let below = own.and_then(|own| own.mappings.range_mut(..=page.0).next_back());
        if let Some((_, mapping)) = below
            && page.0 < mapping.end
        {
            mapping.was_swapped = true;
            self.last = None;
        }
    }

    pub(crate) fn fork_to(&mut self, child: u32, mappings: Vec<Place>) {
        self.processes.entry(child).or_default().mappings = mappings.into_iter().collect();
    }

    /// Gives the free regions of `pages` to a process: a pool page may reach past its mapping.
    pub(crate) fn take_free_regions(&mut self, pages: Pages, process: u32) {
        self.cover(pages);
        for region in pages.regions() {
            let owner = self.regions[region].process;
            if !self.processes.get(&owner).is_some_and(|other| other.meets(region.pages())) {
                self.region(region).process = process;
            }
        }
    }

    /// Gives the regions of `pages` to a process. The pages must be unmapped, and no other process may have mapped the
    /// regions.
    pub(crate) fn take_regions(&mut self, pages: Pages, process: u32) -> Result<(), Stop> {
        let first = pages.first.0;
        let known = self.regions.len() as u64;
        let last = Page(pages.end().0 - 1).region();
        let skipped = u64::from(pages.first.region().0).saturating_sub(known);
        if last.0 >= MAX_REGIONS || skipped > MAX_SKIPPED.into() {
            return ill_formed(format!(
                "pages from {first} on are mapped, {known} regions are known: regions are \
                 numbered densely, up to {MAX_REGIONS}"
            ));
        }
        self.cover(pages);
        if self.processes.get(&process).is_some_and(|own| own.meets(pages)) {
            return ill_formed(format!("pages from {first} on are mapped, but some already were"));
        }
        for region in pages.regions() {
            let owner = self.regions[region].process;
            let window = region.pages();
            if owner != process
                && self.processes.get(&owner).is_some_and(|other| other.meets(window))
            {
                return ill_formed(format!(
                    "region {} is mapped, but belongs to process {owner}",
                    region.0
                ));
            }
            self.region(region).process = process;
        }
        Ok(())
    }

    /// Returns the process that owns a region, if alive.
    pub(crate) fn owner(&self, at: &RegionEntry) -> Option<&Process> {
        self.processes.get(&at.process)
    }

    /// Marks as populated the pages that cannot be filled: pages that have contents already (swapped out, or copied on
    /// a write), pages of mappings that are not anonymous, and holes.
    pub(crate) fn exclude_unfit(&self, key: Key, population: &mut Population) {
        let own = self.owner(self.at(Page(key.page).region()));
        let mut exclude = |slot: u32| population[(slot / 64) as usize] |= 1 << (slot % 64);
        for slot in 0..1 << key.order {
            if !self.entry(Page(key.page + slot)).is_empty() {
                exclude(slot);
            }
        }
        let end = key.page + (1 << key.order);
        let before = own.into_iter().flat_map(|own| own.mappings_before(end).rev());
        // Pages before a mapping are a hole. Pages after the last mapping are not a hole, because the mapping may grow
        // into them.
        let mut hole = key.page..end;
        for (first, mapping) in before.take_while(|(_, mapping)| mapping.end > key.page) {
            hole.end = first.max(key.page);
            if !mapping.is_anonymous() {
                let (from, to) = (first.max(key.page), mapping.end.min(end));
                (from - key.page..to - key.page).for_each(&mut exclude);
            }
        }
        hole.map(|page| page - key.page).for_each(&mut exclude);
    }
}
