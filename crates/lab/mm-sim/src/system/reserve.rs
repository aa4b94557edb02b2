//! Reservations: made, populated page by page, filled, mapped in place, given back.

use policy::rules::Effort;
use policy::{Action, Event, How};
use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::frames::LARGE_ORDER;
use super::spaces::region::{PROTECTED, RESERVED};
use super::spaces::space::Place;
use crate::Cause;
use crate::memory::{Frame, Owner};
use crate::reservation::{Key, ReservationId};

impl System {
    /// A page of a reservation gets its contents and is mapped.
    pub(crate) fn map_reserved(&mut self, page: Page, write: bool, around: u8, place: Place) {
        let region = page.region();
        let reservations = self.frames.reservations();
        let id = reservations.find(page.0).expect("it was among the policy's facts");
        let slot = page.0 - reservations.key(id).page;
        let base = reservations.base(id);
        self.prepare_page(page, place.1.backing, self.frames.is_zeroed(base));
        self.frames.populate(id, slot, 1, self.clock.now());
        self.install(page, Frame(base.0 + slot), write);
        self.map_reserved_around(page, write, id, place);
        self.read_around(page, place);
        self.map_neighbours(page, around, place);
        self.fill_at_fault(page, write, id, place);
        self.find_runs(region);
        self.promote(page, place);
    }

    /// Prepares the rest of a reservation, if the policy says so.
    fn fill_at_fault(&mut self, page: Page, write: bool, id: ReservationId, place: Place) {
        let mut facts = policy::Facts { mapping: place.1.facts(), ..Default::default() };
        facts.region.reservation = Some(self.reservation_facts(id, page));
        facts.region.inside = self.is_inside(page, place);
        let action = self.policy.on(Event::Populated, &facts);
        let Action::Populate { most } = action else { return };
        self.fill(id, Payer::Program, most);
        let is_whole = |part| self.spaces.at(part).resident == SLOTS as u16;
        if !self.spaces.around(page.region()).all(is_whole) {
            return;
        }
        facts.place.0 = page.0.into();
        self.add_whole(page, &mut facts);
        if let Action::MakeSuperpage { how: How::InPlace { writable }, .. } =
            self.policy.on(Event::Prepared { write }, &facts)
        {
            self.map_in_place(page.region(), writable);
        }
    }

    /// Maps the superpage of a file that is in memory whole. What other processes map of it is not shared here: each
    /// has frames of its own, which are as many for as long.
    pub(crate) fn map_file(&mut self, region: Region) {
        let id = self
            .frames
            .reservations()
            .find(region.first().0)
            .expect("it was among the policy's facts");
        let base = self.frames.reservations().base(id);
        for (part, slot) in self.spaces.around(region).zip((0..).step_by(SLOTS as usize)) {
            self.memory.set_pages(Frame(base.0 + slot), SLOTS, part.first());
            self.frames.populate(id, slot, SLOTS, self.clock.now());
        }
        self.map_in_place(region, false);
    }

    /// Breaks all reservations of a region.
    pub(crate) fn break_in(&mut self, region: Region) {
        let Some(smallest) = self.physical.reserved.smallest() else { return };
        for page in (region.first().0..region.next().first().0).step_by(1 << smallest) {
            if let Some(id) = self.frames.reservations().find(page) {
                self.break_one(id);
            }
        }
    }

    /// Makes a reservation for the extent around `page`. `false`: no memory was to be had.
    pub(crate) fn reserve(&mut self, page: Page, order: u8, effort: Effort, preempt: bool) -> bool {
        let key = Key { page: page.0 >> order << order, order };
        let mut got = self.block(order);
        if got.is_none()
            && preempt
            && let Some(broken) = self.frames.preempt(&mut self.memory, order)
        {
            self.counters.broken += u64::from(broken);
            got = self.block(order);
        }
        if got.is_none() && order == LARGE_ORDER {
            got = self.superpage(effort, Payer::Program).map(|got| (got.frame, got.zeroed));
        }
        let Some(block) = got else { return false };
        self.counters.reserved += 1;
        self.clock.spend(Cause::Map, self.costs.reserve);
        if order > LARGE_ORDER {
            // It may reach past the mapping.
            self.spaces.cover(Pages { first: Page(key.page), count: 1 << order });
        }
        self.frames.reserve(&mut self.spaces, key, block, self.clock.now());
        true
    }

    fn block(&mut self, order: u8) -> Option<(Frame, bool)> {
        if order > LARGE_ORDER {
            let (base, zeroed) = self.free_larger()?;
            return Some((base, zeroed == 1 << order));
        }
        let zeroed = self.physical.prefers_zeroed;
        let got = self.memory.allocate(order, crate::memory::Mobility::Movable, 0, zeroed)?;
        Some((got.frame, got.zeroed || self.physical.is_ideal))
    }

    /// Prepares clear pages of a reservation, up to `most`: they are resident, and not mapped. Returns how many.
    pub(crate) fn fill(&mut self, id: ReservationId, payer: Payer, most: u32) -> u32 {
        let reservations = self.frames.reservations();
        let (key, base) = (reservations.key(id), reservations.base(id));
        let zeroed = self.frames.is_zeroed(base);
        let mut filled = 0;
        for (start, length) in self.runs_to_fill(id, key) {
            let length = length.min(most - filled);
            if length == 0 {
                break;
            }
            let (first, frame) = (Page(key.page + start), Frame(base.0 + start));
            for ahead in 0..length {
                let owner = Owner::Page(Page(first.0 + ahead));
                self.memory.set_owner(Frame(frame.0 + ahead), owner);
            }
            self.frames.populate(id, start, length, self.clock.now());
            self.spaces.make_resident(first, frame, length);
            filled += length;
            if !zeroed {
                self.clock.charge(payer, Cause::Zero, self.costs.zero_run(u64::from(length)));
                if payer == Payer::Program {
                    self.counters.zeroed += u64::from(length);
                }
            }
        }
        self.clock.charge(payer, Cause::Map, self.costs.reserved_page * u64::from(filled));
        if payer == Payer::Program && filled > 0 {
            self.counters.superpage_faults += 1;
        }
        filled
    }

    /// Runs of clear pages that can be filled, ascending, each in one region: from which slot on, how many.
    fn runs_to_fill(&self, id: ReservationId, key: Key) -> Vec<(u32, u32)> {
        let order = key.order.min(LARGE_ORDER);
        let owner = self.spaces.at(Page(key.page).region()).process;
        let mut runs = Vec::new();
        for (part, first) in (0u32..).zip((0..1u32 << key.order).step_by(1 << order)) {
            let region = Page(key.page + first).region();
            // What a mapping may grow into is nobody's yet. A superpage of one region that was split off has all its pages.
            if self.spaces.at(region).process != owner || self.spaces.is_large(region) {
                continue;
            }
            let mut population = *self.frames.reservations().population(id, part);
            self.spaces.exclude_unfit(Key { page: key.page + first, order }, &mut population);
            let clear = crate::reservation::clear_runs(&population, 1 << order);
            runs.extend(clear.map(|(start, length)| (first + u32::from(start), length.into())));
        }
        runs
    }

    /// A page was mapped: where all of its region are, the policy may want them mapped as one.
    pub(crate) fn promote(&mut self, page: Page, place: Place) {
        let region = page.region();
        let at = self.spaces.at(region);
        let is_large = self.spaces.is_large(region);
        if at.resident != SLOTS as u16 || is_large || *self.spaces.present(region) != [!0; 8] {
            return;
        }
        if self.reserves_larger() && !self.is_mapped_around(region) {
            return;
        }
        let facts = self.facts_of_mapped(page, place);
        match self.policy.on(Event::Mapped, &facts) {
            Action::MakeSuperpage { how: How::InPlace { writable }, .. } => {
                self.map_in_place(region, writable);
            }
            Action::WriteProtect => {
                self.spaces.around(region).for_each(|part| self.spaces.mark(part, PROTECTED));
            }
            _ => {}
        }
    }

    /// Maps a region as one, or all regions of a larger superpage: their pages are those of a reservation, in their places.
    pub(crate) fn map_in_place(&mut self, region: Region, dirty: bool) {
        let id = self
            .frames
            .reservations()
            .find(region.first().0)
            .expect("it was among the policy's facts");
        let base = self.frames.reservations().base(id);
        self.clock.spend(Cause::Map, self.costs.promote << self.group);
        self.counters.made_in_place += 1;
        for (part, slot) in self.spaces.around(region).zip((0..).step_by(SLOTS as usize)) {
            if self.spaces.is_large(part) {
                // Of a larger one that was split.
                self.spaces.unmap_large(part);
            }
            self.map_superpage(part, Frame(base.0 + slot), dirty);
            self.spaces.mark(part, RESERVED);
            self.spaces.join_larger(part);
        }
    }

    /// Looks for runs of 16 pages, where the hardware joins them in one entry of its TLB.
    pub(crate) fn find_runs(&mut self, region: Region) {
        if self.joins {
            self.spaces.find_runs(region);
        }
    }
}
