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
    /// Starts a process.
    pub(crate) fn begin_process(&mut self, process: u32) {
        self.processes.insert(process, Process::default());
    }

    /// Removes a process that has no mappings left.
    pub(crate) fn end_process(&mut self, process: u32) {
        self.processes.remove(&process);
    }

    /// Whether a process is alive.
    pub(crate) fn lives(&self, process: u32) -> bool {
        self.processes.contains_key(&process)
    }

    /// A live process.
    pub(crate) fn process(&self, process: u32) -> Option<&Process> {
        self.processes.get(&process)
    }

    /// Processes by number, from one on.
    pub(crate) fn processes_from(&self, process: u32) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.range(process..).map(|(&number, process)| (number, process))
    }

    /// The running process.
    #[inline(always)]
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    /// Switches to a process. `false`: it runs already.
    pub(crate) fn run(&mut self, process: u32) -> bool {
        let others = self.running != process;
        if others {
            self.running = process;
            self.last = None;
        }
        others
    }

    /// The running process's mappings.
    pub(super) fn own(&mut self) -> &mut Process {
        self.processes.entry(self.running).or_default()
    }

    /// The mapping of the last fault, unless mappings changed since.
    #[inline(always)]
    pub(crate) fn last_place(&self) -> Option<&Place> {
        self.last.as_ref()
    }

    /// Forgets the mapping of the last fault, as mappings change.
    pub(crate) fn forget_place(&mut self) {
        self.last = None;
    }

    /// The mapping of the running process that holds `page`.
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

    /// The running process maps something. Neighbours that differ in nothing are joined, but for those of the pool.
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

    /// Changes the running process's mappings of `pages` only.
    pub(crate) fn change(&mut self, pages: Pages, change: impl Fn(&mut Mapping)) {
        let own = self.own();
        own.cut(pages);
        let all = pages.first.0..pages.end().0;
        own.mappings.range_mut(all).for_each(|(_, mapping)| change(mapping));
        own.join(pages);
    }

    /// The running process's mappings of `pages`, cut to these pages.
    pub(crate) fn cut(&mut self, pages: Pages) -> Vec<Place> {
        let own = self.own();
        own.cut(pages);
        own.within(pages)
    }

    /// Merges the running process's mappings that were cut for `pages`.
    pub(crate) fn join(&mut self, pages: Pages) {
        self.own().join(pages);
    }

    /// The running process's mapping that holds `pages` and extends beyond both ends.
    pub(crate) fn strictly_within(&mut self, pages: Pages) -> Option<Place> {
        self.own().strictly_within(pages)
    }

    /// Removes mappings of the running process. Their memory must be released already.
    pub(crate) fn unmap(&mut self, places: &[Place]) {
        for (first, _) in places {
            self.own().mappings.remove(first);
        }
        for &(_, mapping) in places {
            self.leave_object(mapping);
        }
    }

    /// Whether the running process maps any of these pages.
    pub(crate) fn maps_any(&mut self, pages: Pages) -> bool {
        self.own().meets(pages)
    }

    /// The running process's mapping of its heap that ends before `page`. Of a page of the pool nothing is unmapped
    /// until all is, so there `page` may be within one.
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

    /// Sets a new end of a mapping of the running process.
    pub(crate) fn extend(&mut self, (first, mapping): Place) {
        self.own().mappings.insert(first, mapping);
    }

    /// Gives a child its initial mappings.
    pub(crate) fn fork_to(&mut self, child: u32, mappings: Vec<Place>) {
        self.processes.entry(child).or_default().mappings = mappings.into_iter().collect();
    }

    /// Gives the regions of `pages` that are nobody's to a process: a page of the pool reaches past the mapping that has it.
    pub(crate) fn take_free_regions(&mut self, pages: Pages, process: u32) {
        self.cover(pages);
        for region in pages.regions() {
            let owner = self.regions[region].process;
            if !self.processes.get(&owner).is_some_and(|other| other.meets(region.pages())) {
                self.region(region).process = process;
            }
        }
    }

    /// Gives the regions of `pages` to a process. No other process may have mapped them, and the pages must be
    /// unmapped.
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

    /// The process that a region belongs to, if alive.
    pub(crate) fn owner(&self, at: &RegionEntry) -> Option<&Process> {
        self.processes.get(&at.process)
    }

    /// Marks as populated what cannot be: pages that have something already (swapped out, or copied to other frames
    /// on a write), and pages of mappings whose memory is not the program's own, or of none.
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
        // What lies before the first mapping is a hole; what lies behind one may be grown into.
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
