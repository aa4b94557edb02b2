//! Collects the facts about a place in memory for the policy.

use policy::{Extent, Facts, Population, Reads, Reservation, Superpage};
use trace::{Backing, Page, Region, SLOTS};

use super::System;
use super::frames::LARGE_ORDER;
use super::spaces::region::{
    ACCESSED, COW, Entry, NO_TABLE, NOBODY, POOL, PROTECTED, RESERVED, WATCHED, ZEROS,
};
use super::spaces::{Mapping, Place, Spaces};
use crate::memory::Frame;
use crate::reservation::{Flags, Key, ReservationId};

impl Spaces {
    /// Returns facts about a mapping.
    #[inline]
    pub(crate) fn facts_of(&self, mapping: &Mapping) -> policy::Mapping {
        policy::Mapping {
            backing: match mapping.backing {
                Backing::Anonymous => policy::Backing::Anonymous,
                Backing::Heap => policy::Backing::Heap,
                Backing::File { cached, .. } => policy::Backing::File { cached },
                Backing::Shared(_) => policy::Backing::Shared,
            },
            advised: mapping.advised,
            writable: mapping.writable,
            forked: mapping.fork.is_some_and(|fork| self.is_forked(fork)),
            was_swapped: mapping.was_swapped,
        }
    }
}

impl System {
    /// Returns facts about a page that the program touched.
    pub(crate) fn facts_of_fault(&self, page: Page, place: Place) -> Facts {
        let mapping = place.1;
        let region = page.region();
        let at = self.spaces.at(region);
        let mut facts = Facts {
            mapping: self.spaces.facts_of(&mapping),
            place: (page.0.into(), mapping.end.min(region.next().first().0).into()),
            ..Facts::default()
        };
        if self.spaces.is_large(region) {
            let found = self.superpage_facts(region);
            let pooled = found.pooled && self.pool.of(&self.spaces, region, place).is_some();
            facts.region.superpage = Some(Superpage { pooled, ..found });
            return facts;
        }
        facts.page = self.state_of(page, place);
        facts.region.has_table = at.place != NO_TABLE;
        facts.region.populated = at.resident;
        facts.region.inside = self.is_inside(page, place);
        if self.reads.has(Reads::AT_FAULT) && facts.page == policy::Page::Untouched {
            facts.machine = self.facts_of_machine();
            facts.extent = Extent {
                order: LARGE_ORDER,
                populated: at.resident.into(),
                profiled: self.profiled(region),
                ..Extent::default()
            };
        }
        match facts.page {
            policy::Page::Resident { .. } if at.resident == SLOTS as u16 => {
                self.add_whole(page, &mut facts)
            }
            policy::Page::Untouched | policy::Page::Swapped => {
                self.add_sizes(page, place, &mut facts)
            }
            _ => {}
        }
        facts
    }

    /// Returns the state of a page in a region without a superpage.
    fn state_of(&self, page: Page, place: Place) -> policy::Page {
        let entry = self.spaces.entry(page);
        let region = page.region();
        if let Some(frame) = entry.frame() {
            let cow = entry.has(Entry::COW);
            let shared = cow && self.frames.is_shared(frame);
            return match self.spaces.is_present(page) {
                true => policy::Page::Mapped { cow, shared },
                false => policy::Page::Resident { cow, shared },
            };
        }
        if place.1.pool.is_some_and(|pool| self.pool.backs(pool, region)) {
            return policy::Page::Pooled;
        }
        match () {
            () if !entry.is_empty() => policy::Page::Swapped,
            () if self.spaces.in_object(page, place).is_some() => policy::Page::InObject,
            () => policy::Page::Untouched,
        }
    }

    /// Adds the sizes that fit around a page, and the reservation of the page.
    fn add_sizes(&self, page: Page, (first, mapping): Place, facts: &mut Facts) {
        let region = &mut facts.region;
        let start = |order: u8| page.0 >> order << order;
        if self.reads.has(Reads::UNRESERVED) {
            if let Some(id) = self.frames.reservations().find(page.0) {
                region.reservation = Some(self.reservation_facts(id, page));
                return;
            }
            let is_free = |&order: &u8| self.is_unreserved(page, order);
            region.unreserved = self.physical.reserved.iter().filter(is_free).collect();
        } else if self.reads.has(Reads::ABSENT) {
            let is_absent = |&order: &u8| {
                let pages = start(order)..start(order) + (1 << order);
                let inside = first <= pages.start && pages.end <= mapping.end;
                inside
                    && match order > LARGE_ORDER {
                        true => self.is_bare(page.region()),
                        false => { pages }.all(|page| self.spaces.entry(Page(page)).is_empty()),
                    }
            };
            let sizes = self.physical.smaller.or(self.physical.larger);
            region.absent = sizes.iter().filter(is_absent).collect();
        } else {
            return;
        }
        let all = self.physical.reserved.or(self.physical.smaller).or(self.physical.larger);
        let sizes = all.iter();
        for order in sizes {
            if first <= start(order) {
                region.begins = region.begins.with(order);
            }
            if start(order) + (1 << order) <= mapping.end {
                region.ends = region.ends.with(order);
            }
        }
    }

    /// Returns whether all regions of the largest superpage around a region are empty.
    fn is_bare(&self, region: Region) -> bool {
        let nothing =
            |region| !self.spaces.is_large(region) && self.spaces.at(region).place == NO_TABLE;
        // Checks the region itself first: if any region is not empty, it is most often this one.
        nothing(region) && self.spaces.around(region).all(nothing)
    }

    /// Returns whether the extent of 2^`order` pages around a page has neither a reservation nor a resident page.
    fn is_unreserved(&self, page: Page, order: u8) -> bool {
        let key = Key { page: page.0 >> order << order, order };
        let at = self.spaces.at(page.region());
        if order > LARGE_ORDER && at.resident == 0 {
            // Other regions may belong to other processes or to none yet.
            let is_free = |part: Region| {
                self.spaces.get(part).is_none_or(|other| {
                    other.resident == 0 && [at.process, NOBODY].contains(&other.process)
                })
            };
            return self.spaces.around(page.region()).all(is_free)
                && !self.frames.reservations().overlaps(key);
        }
        let mut pages = key.page..key.page + (1 << order);
        let is_populated = at.resident > 0
            && (order >= 9 || pages.any(|page| self.spaces.entry(Page(page)).frame().is_some()));
        !self.frames.reservations().overlaps(key) && !is_populated
    }

    pub(crate) fn reservation_facts(&self, id: ReservationId, page: Page) -> Reservation {
        let reservations = self.frames.reservations();
        let key = reservations.key(id);
        Reservation {
            order: key.order,
            populated: reservations.popcnt(id),
            is_taken: reservations.is_populated(id, page.0 - key.page),
            is_bad: reservations.flags(id).has(Flags::BAD),
            is_full: false,
        }
    }

    /// If all pages of a region are resident, adds whether they belong to one reservation, and which of them are dirty.
    pub(crate) fn add_whole(&self, page: Page, facts: &mut Facts) {
        self.add_full(page, facts);
        if facts.region.reservation.is_some_and(|reservation| reservation.is_full)
            && self.reads.has(Reads::DIRTY)
        {
            facts.region.dirty = self.dirty_around(page.region(), Some(page));
        }
    }

    /// As [`Self::add_whole`], without the dirty pages.
    fn add_full(&self, page: Page, facts: &mut Facts) {
        if !self.reads.has(Reads::FULL) {
            return;
        }
        let region = page.region();
        let Some(id) = self.full_reservation(region) else { return };
        let reservation = self.reservation_facts(id, page);
        facts.region.reservation = Some(Reservation { is_full: true, ..reservation });
    }

    /// Returns facts about a region whose pages are all mapped.
    pub(crate) fn facts_of_mapped(&self, page: Page, (_, mapping): Place) -> Facts {
        let region = page.region();
        let at = self.spaces.at(region);
        let mut facts = Facts { mapping: self.spaces.facts_of(&mapping), ..Facts::default() };
        facts.region.is_mapped = true;
        facts.region.populated = at.resident;
        facts.region.has_cow = self
            .spaces
            .around(region)
            .filter_map(|part| self.spaces.get(part))
            .any(|at| at.has(COW));
        self.add_full(page, &mut facts);
        if facts.region.reservation.is_some() {
            if self.reads.has(Reads::UNACCESSED) {
                let mut parts = self.spaces.around(region);
                facts.region.has_unaccessed = parts
                    .any(|part| !self.spaces.is_large(part) && self.spaces.has_unaccessed(part));
            }
            facts.region.dirty = match at.clean == 0 && self.group == 0 {
                true => [!0; 8],
                false => self.dirty_around(region, None),
            };
        }
        facts
    }

    /// Returns the dirty pages of a region. For the regions of a larger reservation, returns an approximation: none,
    /// all (except perhaps `but`), or some.
    fn dirty_around(&self, region: Region, but: Option<Page>) -> Population {
        if self.group == 0 {
            return self.spaces.dirty_map(region);
        }
        let (mut any, mut all) = (false, true);
        for part in self.spaces.around(region) {
            let (some, every) = self.spaces.is_dirty(part, but);
            (any, all) = (any || some, all && every);
            if any && !all {
                return [1, 0, 0, 0, 0, 0, 0, 0];
            }
        }
        if all { [!0; 8] } else { [0; 8] }
    }

    /// Returns facts about a superpage that is unmapped, protected or shared.
    pub(crate) fn facts_of_superpage(&self, region: Region) -> Facts {
        let at = self.spaces.at(region);
        let mut facts = Facts::default();
        facts.region.is_pooled = at.has(POOL);
        facts.region.superpage = self.spaces.is_large(region).then(|| self.superpage_facts(region));
        facts.region.reservation = at.has(RESERVED).then(Reservation::default);
        facts
    }

    fn superpage_facts(&self, region: Region) -> Superpage {
        let at = self.spaces.at(region);
        Superpage {
            order: if self.spaces.is_part(region) { self.larger_order() } else { 0 },
            zeros: at.has(ZEROS),
            pooled: at.has(POOL),
            cow: at.has(COW),
            shared: at.has(COW) && self.frames.is_shared(Frame(at.place)),
        }
    }

    /// Returns facts about a candidate for a superpage, without reading its page table.
    pub(crate) fn facts_of_candidate(&self, region: Region) -> Facts {
        let at = self.spaces.at(region);
        let mut facts = self.facts_of_superpage(region);
        facts.region.has_table = at.place != NO_TABLE;
        facts.region.has_cow = at.has(COW);
        facts.region.is_protected = at.has(PROTECTED);
        facts.region.populated = at.resident;
        facts.region.accessed = at.has(ACCESSED);
        facts.region.coverage = at.coverage;
        if at.has(WATCHED) {
            facts.region.superpage = Some(Superpage::default());
        }
        if self.reads.has(Reads::OF_CANDIDATES) {
            facts.machine = self.facts_of_machine();
            if at.place != NO_TABLE && !self.spaces.is_large(region) {
                facts.extent = self.extent(region.first(), LARGE_ORDER);
            }
        }
        if let Some((first, mapping)) =
            self.spaces.owner(at).and_then(|own| own.find(region.first()))
        {
            facts.mapping = self.spaces.facts_of(&mapping);
            facts.region.inside = mapping.holds_window(first, region.first().0);
            facts.region.is_pooled = mapping.pool.is_some();
        }
        facts
    }

    /// Returns the facts that conditions test about a region or a part of it with base pages. The coverage of a part is
    /// its entries' current coverage; that of a region is the average of the samples.
    pub(crate) fn extent(&self, first: Page, order: u8) -> Extent {
        let region = first.region();
        let at = self.spaces.at(region);
        let misses = self.spaces.misses(first, order);
        let (populated, coverage) = if order == LARGE_ORDER {
            (at.resident.into(), at.coverage.into())
        } else {
            let table = self.spaces.table(region).unwrap_or_default();
            let entries = &table[first.slot() as usize..][..1 << order];
            let count = |is: fn(&Entry) -> bool| entries.iter().filter(|entry| is(entry)).count();
            let populated = count(|entry| entry.frame().is_some());
            (populated as u32, count(|entry| entry.has(Entry::ACCESSED)) as u32)
        };
        Extent { order, populated, coverage, misses, profiled: self.profiled(region) }
    }

    /// Returns the TLB misses in a region's profile. The profile covers the program, not the fragmenter.
    fn profiled(&self, region: Region) -> u64 {
        if !self.is_awake() {
            return 0;
        }
        let regions = region.0.saturating_sub(self.spaces.first_region());
        self.policy.profiled(u64::from(regions) << 21)
    }

    /// Returns the facts about free memory that conditions test.
    pub(crate) fn facts_of_machine(&self) -> policy::Machine {
        policy::Machine {
            free: self.memory.free_frames(),
            pages: u64::from(self.memory.frames()),
            free_superpages: self.memory.free_superpages() as u32,
            is_prezeroed: self.physical.is_ideal
                || self.physical.prefers_zeroed && self.memory.has_zeroed(LARGE_ORDER),
            ..policy::Machine::default()
        }
    }

    pub(crate) fn add_inspected(&self, region: Region, facts: &mut Facts) {
        let table = self.spaces.table(region).unwrap_or_default();
        facts.region.has_writable =
            table.iter().any(|entry| entry.frame().is_some() && !entry.has(Entry::COW));
        facts.region.has_shared = !self.frames.nothing_shared()
            && table
                .iter()
                .filter_map(|entry| entry.frame())
                .any(|frame| self.frames.is_shared(frame));
        if self.spaces.swapped() > 0 {
            facts.region.swapped = table.iter().filter(|entry| entry.is_swapped()).count() as u16;
        }
    }

    /// Returns the reservation of a region, if all pages of the reservation are populated in place and none is shared.
    pub(crate) fn full_reservation(&self, region: Region) -> Option<ReservationId> {
        let reservations = self.frames.reservations();
        let id = reservations.find(region.first().0)?;
        let order = self.larger_order();
        if reservations.key(id).order != order || reservations.popcnt(id) != 1 << order {
            return None;
        }
        let bases = (reservations.base(id).0..).step_by(SLOTS as usize).map(Frame);
        // A superpage cannot contain pages that other processes map separately.
        let is_ours = |(part, base): (Region, Frame)| {
            self.spaces.lies_at(part, base) && !self.frames.is_any_shared(base)
        };
        self.spaces.around(region).zip(bases).all(is_ours).then_some(id)
    }
}
