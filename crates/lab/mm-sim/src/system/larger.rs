//! Superpages of several regions ("larger" superpages): made by faults, scans and reservations, cut and split.
//!
//! Memory and reverse maps treat a larger superpage as adjacent superpages of one region: frames are freed, shared and
//! inherited by region. Page tables treat it as one: all of its regions are mapped, or none. See
//! docs/decisions/lab-model.md#12.

use std::collections::BTreeSet;

use policy::{Action, Event, Extent, Facts, How, Result as Ended};
use trace::{Page, Pages, Region, SLOTS};

use super::clock::Payer;
use super::frames::LARGE_ORDER;
use super::spaces::Place;
use super::spaces::region::{COW, LISTED, ZEROS};
use super::{Stop, System};
use crate::Cause;
use crate::memory::{Frame, Owner};
use crate::reservation::ReservationId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Larger {
    Made,
    /// The caller should make smaller superpages of its parts.
    Parts,
    /// The candidate does not qualify, and the design has no smaller superpages.
    Unfit,
    /// No larger superpage was available, and the design has no smaller ones.
    NoMemory,
}

impl System {
    pub(crate) fn larger_order(&self) -> u8 {
        LARGE_ORDER + self.group as u8
    }

    /// Returns the base pages of the largest superpage around a region.
    pub(crate) fn extent_around(&self, region: Region) -> Pages {
        let first = region.0 >> self.group << self.group;
        Pages { first: Region(first).first(), count: SLOTS << self.group }
    }

    pub(crate) fn reserves_larger(&self) -> bool {
        self.group > 0 && !self.physical.reserved.is_empty()
    }

    /// Returns whether a mapping contains the whole superpage of a larger reservation around a page; without larger
    /// reservations, the whole region.
    pub(crate) fn is_inside(&self, page: Page, (first, mapping): Place) -> bool {
        if !self.reserves_larger() {
            return mapping.holds_window(first, page.region().first().0);
        }
        let all = self.extent_around(page.region());
        first <= all.first.0 && all.end().0 <= mapping.end
    }

    /// Returns whether the larger extent that contains `region` is fully populated in its reservation and fully mapped,
    /// by base pages or, after a split, by region-sized superpages.
    pub(crate) fn is_mapped_around(&self, region: Region) -> bool {
        let reservations = self.frames.reservations();
        let found = reservations.find(region.first().0);
        found.is_some_and(|id| u64::from(reservations.popcnt(id)) == 1 << self.larger_order())
            && self
                .spaces
                .around(region)
                .all(|part| self.spaces.is_large(part) || *self.spaces.present(part) == [!0; 8])
    }

    /// Gives regions to a process. Breaks reservations of others that reach into them past a mapping's end.
    pub(crate) fn take_regions(&mut self, pages: Pages, process: u32) -> Result<(), Stop> {
        let mut others = BTreeSet::new();
        if self.reserves_larger() {
            let reservations = self.frames.reservations();
            let owner = |id: &ReservationId| {
                self.spaces.at(Page(reservations.key(*id).page).region()).process
            };
            let edges = [pages.first.0, pages.end().0 - 1].into_iter();
            let found = edges.filter_map(|page| reservations.find(page));
            others.extend(found.filter(|id| owner(id) != process));
        }
        self.spaces.take_regions(pages, process)?;
        others.into_iter().for_each(|id| self.break_one(id));
        Ok(())
    }

    /// Allocates frames for a larger superpage. Returns the first frame, and how many frames hold zeros. Nothing is
    /// compacted or reclaimed, whatever the design's effort: kernels compact only for blocks up to MAX_ORDER.
    pub(crate) fn free_larger(&mut self) -> Option<(Frame, u64)> {
        let before = self.memory.zeroed_frames();
        let order = self.larger_order();
        let mut nodes = 0..self.memory.nodes();
        let base = nodes.find_map(|node| self.memory.allocate_contiguous(order, node))?;
        Some((base, before - self.memory.zeroed_frames()))
    }

    /// Allocates, zeroes and maps a larger superpage in a fault. Returns `false` if none was available.
    pub(crate) fn fresh_larger(&mut self, region: Region) -> bool {
        let Some((base, zeroed)) = self.free_larger() else { return false };
        let pages = u64::from(SLOTS) << self.group;
        self.clock.spend(Cause::Fault, self.costs.superpage_fault);
        self.clock.spend(Cause::Zero, self.costs.zero_larger * (pages - zeroed) / pages);
        self.counters.zeroed += pages - zeroed;
        self.counters.superpage_faults += 1;
        self.counters.made_at_fault += 1;
        self.map_larger(region, base);
        true
    }

    /// Maps a larger superpage. Earlier mappings of its regions must be gone.
    pub(crate) fn map_larger(&mut self, region: Region, base: Frame) {
        for (number, region) in (0..).zip(self.spaces.around(region)) {
            let frame = Frame(base.0 + number * SLOTS);
            self.memory.set_owner(frame, Owner::Page(region.first()));
            self.map_superpage(region, frame, true);
            self.spaces.join_larger(region);
        }
    }

    pub(crate) fn map_larger_zeros(&mut self, region: Region) {
        for region in self.spaces.around(region) {
            self.spaces.map_zeros(region);
            self.spaces.join_larger(region);
        }
    }

    /// Handles an event on the pages up to `edge` or from `edge` on. If the edge lies inside a larger superpage, the
    /// superpage is split if the policy says so.
    pub(crate) fn cut_larger(&mut self, edge: u32, event: Event) {
        let region = Page(edge).region();
        let is_cut = edge & ((SLOTS << self.group) - 1) != 0;
        if is_cut
            && self.spaces.is_part(region)
            && self.policy.on(event, &self.facts_of_superpage(region)) == Action::Demote
        {
            self.split_larger(region, Payer::Program);
        }
    }

    /// Splits a larger superpage in all address spaces that share it: into superpages of one region if the machine has
    /// these, else into base pages. Frames stay in place.
    pub(crate) fn split_larger(&mut self, region: Region, payer: Payer) {
        let regions: Vec<Region> = self.spaces.regions_of(region).collect();
        if self.spaces.at(region).has(ZEROS) {
            return regions.into_iter().for_each(|region| self.spaces.unmap_large(region));
        }
        let mut sharers = 0;
        for &region in &regions {
            let base = self.spaces.base(region);
            let Owner::Page(owner) = self.memory.owner(base) else {
                unreachable!("a superpage of the program's has an owner")
            };
            let mappers: Vec<Region> =
                self.frames.mappers(owner, base).map(|page| page.region()).collect();
            sharers = mappers.len() as u64;
            mappers.into_iter().for_each(|region| self.spaces.leave_larger(region));
            if !self.splits_whole {
                self.split_superpage(region);
            }
        }
        let tables = if self.splits_whole { 1 } else { regions.len() as u64 };
        self.counters.demoted += sharers;
        self.clock.charge(payer, Cause::Map, self.costs.split * tables * sharers);
        self.clock.charge(payer, Cause::Shootdown, self.costs.shootdown * sharers);
    }

    /// Collapses the regions around `region` into a larger superpage, if the policy wants one.
    pub(crate) fn collapse_larger(&mut self, region: Region) -> Larger {
        let mut facts = self.facts_of_larger(region);
        let mut action = self.policy.on(Event::Candidate, &facts);
        if action == Action::Inspect {
            self.inspect_larger(region, &mut facts);
            action = self.policy.on(Event::Inspected { requested: false }, &facts);
        }
        let mut is_full = false;
        if let Action::MakeSuperpage { how: How::Copy { exclusive }, .. } = action {
            if let Some(got) = self.free_larger() {
                self.copy_into_larger(region, got, exclusive);
                return Larger::Made;
            }
            is_full = true;
            let failed = Event::Outcome { action, result: Ended::NoMemory, cost: 0 };
            action = self.policy.on(failed, &facts);
        }
        match action {
            Action::Consider { .. } => Larger::Parts,
            _ if is_full => Larger::NoMemory,
            _ => Larger::Unfit,
        }
    }

    /// Returns facts about the candidate around a region, without reading its page tables.
    pub(crate) fn facts_of_larger(&self, region: Region) -> Facts {
        let all = self.extent_around(region);
        let mut facts = self.facts_of_candidate(region);
        let place = self.spaces.owner(self.spaces.at(region)).and_then(|own| own.find(all.first));
        facts.region.inside = place
            .is_some_and(|(first, mapping)| first <= all.first.0 && all.end().0 <= mapping.end);
        facts.extent = Extent { order: self.larger_order(), ..Extent::default() };
        if !facts.region.inside {
            // The other regions may belong to other processes.
            return facts;
        }
        facts.region.superpage = None;
        for part in self.spaces.around(region) {
            let found = self.facts_of_candidate(part).region;
            let at = &mut facts.region;
            facts.extent.populated += u32::from(found.populated);
            at.has_table |= found.has_table;
            at.has_cow |= found.has_cow;
            at.is_protected |= found.is_protected;
            at.accessed |= found.accessed;
            at.is_pooled |= found.is_pooled;
            // Keeps the superpage that is the largest obstacle.
            let rank = |page: &policy::Superpage| (page.zeros || page.cow, page.order);
            at.superpage = at.superpage.into_iter().chain(found.superpage).max_by_key(rank);
        }
        facts
    }

    fn inspect_larger(&self, region: Region, facts: &mut Facts) {
        let mut all = policy::Region::default();
        for part in self.spaces.around(region) {
            let mut found = Facts::default();
            self.add_inspected(part, &mut found);
            all.has_writable |= found.region.has_writable || self.spaces.is_large(part);
            all.has_shared |= found.region.has_shared;
            all.swapped = all.swapped.saturating_add(found.region.swapped);
        }
        let at = &mut facts.region;
        (at.has_writable, at.has_shared, at.swapped) =
            (all.has_writable, all.has_shared, all.swapped);
    }

    /// Copies the contents of all regions into a larger superpage and zeroes the rest. A daemon pays the copy, the
    /// program the shootdown.
    fn copy_into_larger(&mut self, region: Region, (base, zeroed): (Frame, u64), exclusive: bool) {
        let pages = u64::from(SLOTS) << self.group;
        let (mut present, mut tables) = (0, 0);
        for part in self.spaces.around(region) {
            present += u64::from(self.spaces.at(part).resident);
            tables += u64::from(!self.spaces.is_large(part));
            self.spaces.unmark(part, LISTED);
        }
        let holes = pages - present;
        let cost = [
            (Cause::Copy, self.costs.copy_page * present + self.costs.collapse * tables),
            (Cause::Zero, self.costs.zero_page * (holes * (pages - zeroed) / pages)),
        ];
        for (cause, cycles) in cost {
            self.clock.spend_behind(cause, cycles);
        }
        let process = self.spaces.at(region).process;
        if exclusive {
            let cycles = cost.iter().map(|(_, cycles)| cycles).sum();
            self.daemons.lock(process, self.clock.now(), cycles);
        }
        if self.spaces.is_ours(process) {
            self.clock.spend(Cause::Shootdown, self.costs.shootdown);
            self.counters.copied += present;
            self.counters.made_by_copy += 1;
        }
        self.release_unpaid(self.extent_around(region));
        self.map_larger(region, base);
    }
}

// Mapping superpages, and splitting them for all sharers.

impl System {
    /// Maps a region to a superpage and marks its frames.
    pub(crate) fn map_superpage(&mut self, region: Region, base: Frame, dirty: bool) {
        self.memory.set_superpage(base, true);
        self.spaces.map_large(region, base, dirty);
    }

    /// Splits a region's superpage mapping in all address spaces that share it. Pages are mapped singly; frames stay in
    /// place. When a larger superpage is split, its other regions remain superpages if possible.
    pub(crate) fn demote(&mut self, region: Region, payer: Payer) {
        if self.spaces.is_part(region) {
            self.split_larger(region, payer);
            if !self.spaces.is_large(region) {
                return;
            }
        }
        if self.spaces.at(region).has(ZEROS) {
            self.spaces.unmap_large(region);
            return self.map_zeros_singly(region, None);
        }
        let mapped = self.split_superpage(region);
        self.counters.demoted += mapped;
        self.clock.charge(payer, Cause::Map, self.costs.split * mapped);
        self.clock.charge(payer, Cause::Shootdown, self.costs.shootdown * mapped);
    }

    /// Splits a zero superpage: maps the zero page at each of its pages (`__split_huge_zero_page_pmd` of Linux), except
    /// at `but`, which the current access writes.
    pub(crate) fn map_zeros_singly(&mut self, region: Region, but: Option<Page>) {
        for page in (0..SLOTS).map(|slot| Page::new(region, slot)) {
            if Some(page) != but {
                self.spaces.map_zero_page(page);
            }
        }
        self.clock.spend(Cause::Map, self.costs.split);
    }

    /// As [`Self::demote`], without charge. Returns the number of address spaces.
    pub(crate) fn split_superpage(&mut self, region: Region) -> u64 {
        let at = self.spaces.at(region);
        let is_shared = at.has(COW);
        let base = self.spaces.base(region);
        let singly_owned = self.memory.owner(Frame(base.0 + 1)) != Owner::None;
        let reserved = self.frames.reservations().at(base).is_some();
        let group =
            if is_shared { self.frames.split_shares(&self.memory, base) } else { vec![region] };
        group.iter().for_each(|&region| self.spaces.split(region));
        self.memory.set_superpage(base, false);
        if !singly_owned || group.len() > 1 {
            for slot in 0..SLOTS {
                let page = Page::new(group[0], slot);
                self.memory.set_owner(Frame(base.0 + slot), Owner::Page(page));
            }
        }
        let demoted = Event::Demoted { reserved };
        if self.policy.on(demoted, &Facts::default()) == Action::Hold {
            self.frames.hold(base);
        }
        group.len() as u64
    }
}
