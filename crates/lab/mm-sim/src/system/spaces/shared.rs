//! What several address spaces map: after a fork, and of shared objects.

use trace::{Backing, Page, Region};

use super::Spaces;
use super::region::{CHECK, COW, DIRTY, Entry, POOL, RegionEntry, ZEROS};
use super::space::{Mapping, Place};
use crate::memory::Frame;

impl Spaces {
    /// A child maps a page of its parent `offset` pages on; a private one until one of them writes. `Some`: the frame
    /// that both have now.
    pub(crate) fn share_page(&mut self, page: Page, offset: u32, private: bool) -> Option<Frame> {
        let entry = self.entry(page);
        let twin = Page(page.0 + offset);
        if entry.is_swapped() && private {
            *self.entry_mut(twin) = entry;
            self.swapped += 1;
        }
        let frame = entry.frame()?;
        let (region, child) = (page.region(), twin.region());
        let shared = if private { entry.with(Entry::COW) } else { entry };
        *self.entry_mut(page) = shared;
        if private {
            self.kinds[region.index()] |= CHECK;
            self.region(region).flags |= COW;
        }
        self.map_entry(twin, shared);
        if private {
            self.region(child).flags |= COW;
        }
        self.count_resident(child, 1);
        Some(frame)
    }

    /// A child maps a superpage of its parent too. `Some`: the first frame that both have now, if the superpage is
    /// memory of their own.
    pub(crate) fn share_large(&mut self, region: Region, child: Region) -> Option<Frame> {
        self.region(region).flags |= COW;
        self.kinds[region.index()] |= CHECK;
        let at = self.regions[region];
        let process = self.regions[child].process;
        *self.region(child) = RegionEntry {
            process,
            resident: 0,
            flags: at.flags & (DIRTY | COW | POOL | ZEROS),
            ..at
        };
        self.kinds[child.index()] = self.kinds[region.index()];
        self.count_resident(child, i64::from(at.resident));
        self.count_superpages(child, 1);
        self.count_part(child, i64::from(self.is_part(child)));
        if at.has(ZEROS) {
            self.count_zeros(child, 1);
        }
        (!at.has(ZEROS | POOL)).then_some(Frame(at.place))
    }

    /// A mapping of a shared object begins, or is copied, at page `origin`.
    pub(crate) fn add_to_object(&mut self, object: u32, origin: u32) {
        let places = self.objects.entry(object).or_default();
        if !places.contains(&origin) {
            places.push(origin);
        }
    }

    /// A part of a mapping of the running process is gone: its object forgets the mapping with the last part.
    pub(super) fn leave_object(&mut self, mapping: Mapping) {
        let Backing::Shared(object) = mapping.backing else { return };
        let is_part =
            |(_, other): Place| other.backing == mapping.backing && other.origin == mapping.origin;
        if !self.own().mappings().any(is_part)
            && let Some(places) = self.objects.get_mut(&object)
        {
            places.retain(|&place| place != mapping.origin);
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
            let region = other.region();
            let owner = self.regions.get(region);
            let owner = owner.and_then(|region| self.processes.get(&region.process));
            let is_mapped =
                other != page && owner.and_then(|own| own.find(other)).is_some_and(of_object);
            let is_there =
                is_mapped && (self.is_large(region) || self.entry(other).frame().is_some());
            is_there.then_some(other)
        })
    }
}
