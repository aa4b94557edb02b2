//! Reservations: made, populated page by page, filled, mapped in place, given back.

use policy::rules::Effort;
use policy::{Action, Event, How};
use trace::{Page, SLOTS};

use super::System;
use super::allocate::{LARGE_ORDER, Payer};
use super::region::{CHECK, CONT, Entry, PROTECTED, RESERVED, SIZE};
use super::space::Place;
use super::spaces::Shoot;
use crate::Cause;
use crate::memory::{Frame, Owner};
use crate::reservation::{Depopulated, Key, Population, ReservationId};

/// The one queue of partly populated reservations that simulated systems keep.
pub(crate) const QUEUE: u8 = 0;

impl System {
    /// A page of a reservation gets its contents and is mapped.
    pub(crate) fn map_reserved(&mut self, page: Page, write: bool, around: u8, place: Place) {
        let region = page.region().0;
        let id = self.spaces.reservations.find(page.0).expect("the policy was told so");
        let slot = (page.0 - self.spaces.reservations.key(id).page) as u16;
        let base = self.spaces.reservations.base(id);
        let zeroed = self.blank.contains(&base.0);
        self.prepare_page(page, place.1.backing, zeroed);
        let now = self.clock.now();
        self.spaces.reservations.populate(id, slot, now);
        self.install(page, Frame(base.0 + u32::from(slot)), write);
        self.map_neighbours(page, around, place);
        self.fill_at_fault(page, write, id, place);
        self.contiguous(region);
        self.promote(page, place);
    }

    /// Prepares the rest of a reservation, if the policy says so.
    fn fill_at_fault(&mut self, page: Page, write: bool, id: ReservationId, place: Place) {
        let (first, mapping) = place;
        let mut facts = policy::Facts { mapping: mapping.facts(), ..Default::default() };
        facts.region.reservation = Some(self.reservation_facts(id, page));
        facts.region.inside = mapping.holds_window(first, page.region().0 << 9);
        let action = self.policy.on(Event::Populated, &facts);
        let Action::Populate { most } = action else { return };
        self.fill(id, Payer::Program, most);
        if self.spaces.regions[page.region().0 as usize].resident != SLOTS as u16 {
            return;
        }
        facts.place.0 = page.0.into();
        self.add_whole(page, &mut facts);
        if let Action::MakeSuperpage { how: How::InPlace { writable }, .. } =
            self.policy.on(Event::Prepared { write }, &facts)
        {
            self.map_in_place(page.region().0, writable);
        }
    }

    /// Maps the superpage of a file that is in memory whole. What other processes map of it is not shared here: each
    /// has frames of its own, which are as many for as long.
    pub(crate) fn map_file(&mut self, region: u32) {
        let id = self.spaces.reservations.find(region << 9).expect("the policy was told so");
        let base = self.spaces.reservations.base(id);
        self.memory.set_pages(base, SLOTS, Page(region << 9));
        self.spaces.reservations.populate_run(id, 0, SLOTS as u16, self.clock.now());
        self.map_in_place(region, false);
    }

    /// Breaks all reservations of a region.
    pub(crate) fn break_in(&mut self, region: u32) {
        let Some(smallest) = self.physical.reserved.smallest() else { return };
        for page in (region << 9..(region + 1) << 9).step_by(1 << smallest) {
            if let Some(id) = self.spaces.reservations.find(page) {
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
            && let Some(yielded) = self.spaces.reservations.preempt(order)
        {
            self.counters.broken += u64::from(yielded.broken);
            for (frame, pages) in yielded.free_runs {
                self.free_frames(frame, u32::from(pages));
            }
            got = self.block(order);
        }
        if got.is_none() && order == LARGE_ORDER {
            got = self.superpage(effort, Payer::Program).map(|got| (got.frame, got.zeroed));
        }
        let Some((base, zeroed)) = got else { return false };
        self.counters.reserved += 1;
        self.clock.spend(Cause::Map, self.costs.reserve);
        if zeroed {
            self.blank.insert(base.0);
        } else {
            // Of a reservation that began there and was preempted.
            self.blank.remove(&base.0);
        }
        if order == LARGE_ORDER {
            self.spaces.region(page.region().0).flags |= RESERVED;
        }
        self.spaces.reservations.create(key, base, QUEUE, self.clock.now());
        true
    }

    fn block(&mut self, order: u8) -> Option<(Frame, bool)> {
        let zeroed = self.physical.prefers_zeroed;
        let got = self.memory.allocate(order, crate::memory::Mobility::Movable, 0, zeroed)?;
        Some((got.frame, got.zeroed || self.physical.is_ideal))
    }

    /// Prepares clear pages of a reservation, up to `most`: they are resident, and not mapped. Returns how many.
    pub(crate) fn fill(&mut self, id: ReservationId, payer: Payer, most: u32) -> u32 {
        let key = self.spaces.reservations.key(id);
        let base = self.spaces.reservations.base(id).0;
        let region = key.page >> 9;
        let mut population = *self.spaces.reservations.population(id);
        self.exclude_unfit(key, &mut population);
        let zeroed = self.blank.contains(&base);
        let mut filled = 0;
        let runs: Vec<_> = crate::reservation::clear_runs(&population, 1 << key.order).collect();
        for (start, length) in runs {
            let length = u32::from(length).min(most - filled) as u16;
            if length == 0 {
                break;
            }
            for slot in u32::from(start)..u32::from(start + length) {
                let frame = Frame(base + slot);
                self.memory.set_owner(frame, Owner::Page(Page(key.page + slot)));
                *self.spaces.entry_mut(Page(key.page + slot)) = Entry::of(frame);
            }
            let now = self.clock.now();
            self.spaces.reservations.populate_run(id, start, length, now);
            self.spaces.count_resident(region, i64::from(length));
            filled += u32::from(length);
            if !zeroed {
                let cost = match payer {
                    Payer::Program => self.costs.zero_run(u64::from(length)),
                    Payer::Daemon => self.costs.zero_page * u64::from(length),
                };
                self.charge(payer, Cause::Zero, cost);
                self.counters.zeroed += u64::from(length);
            }
        }
        self.charge(payer, Cause::Map, self.costs.reserved_page * u64::from(filled));
        if payer == Payer::Program && filled > 0 {
            self.counters.superpage_faults += 1;
        }
        filled
    }

    /// Marks as populated what cannot be: pages that have something already (swapped out, or copied elsewhere
    /// on a write), and pages of mappings whose memory is not the program's own, or of none.
    fn exclude_unfit(&self, key: Key, population: &mut Population) {
        let own = self.spaces.processes.get(&self.spaces.regions[(key.page >> 9) as usize].process);
        let mut exclude = |slot: u32| population[(slot / 64) as usize] |= 1 << (slot % 64);
        for slot in 0..1 << key.order {
            if !self.spaces.entry(Page(key.page + slot)).is_empty() {
                exclude(slot);
            }
        }
        let end = key.page + (1 << key.order);
        let before = own.into_iter().flat_map(|own| own.mappings.range(..end).rev());
        // What lies before the first mapping is a hole; what lies behind one may be grown into.
        let mut hole = key.page..end;
        for (&first, mapping) in before.take_while(|(_, mapping)| mapping.end > key.page) {
            hole.end = first.max(key.page);
            if !mapping.is_anonymous() {
                let (from, to) = (first.max(key.page), mapping.end.min(end));
                (from - key.page..to - key.page).for_each(&mut exclude);
            }
        }
        hole.map(|page| page - key.page).for_each(&mut exclude);
    }

    /// A page was mapped: where all of its region are, the policy may want them mapped as one.
    pub(crate) fn promote(&mut self, page: Page, place: Place) {
        let region = page.region().0;
        let at = &self.spaces.regions[region as usize];
        let is_large = self.spaces.is_large(region);
        if at.resident != SLOTS as u16 || is_large || *self.spaces.present(region) != [!0; 8] {
            return;
        }
        let facts = self.facts_of_mapped(page, place);
        match self.policy.on(Event::Mapped, &facts) {
            Action::MakeSuperpage { how: How::InPlace { writable }, .. } => {
                self.map_in_place(region, writable);
            }
            Action::WriteProtect => self.spaces.region(region).flags |= PROTECTED,
            _ => {}
        }
    }

    /// Maps a region as one: its pages are those of a reservation, in their places.
    pub(crate) fn map_in_place(&mut self, region: u32, dirty: bool) {
        let id = self.spaces.reservations.find(region << 9).expect("the policy was told so");
        let base = self.spaces.reservations.base(id);
        self.clock.spend(Cause::Map, self.costs.promote);
        self.counters.made_in_place += 1;
        self.map_superpage(region, base, dirty);
        self.spaces.region(region).flags |= RESERVED;
    }

    /// Whether runs of 16 aligned pages may each share a TLB entry: all are whole or empty, and lie together
    /// (as they do in a reservation, if no page was copied elsewhere).
    pub(crate) fn contiguous(&mut self, region: u32) {
        let at = &self.spaces.regions[region as usize];
        if !self.joins || !at.resident.is_multiple_of(16) || self.spaces.is_large(region) {
            return;
        }
        let lanes = self
            .spaces
            .present(region)
            .iter()
            .flat_map(|word| (0..4).map(move |lane| (word >> (16 * lane)) as u16));
        let whole = at.resident > 0
            && at.place != super::region::NO_TABLE
            && lanes.clone().all(|lane| lane == 0 || lane == !0)
            && lanes.enumerate().all(|(run, lane)| {
                lane == 0 || self.lies_together(Page((region << 9) + 16 * run as u32), 4)
            });
        let kind = &mut self.spaces.kinds[region as usize];
        let new = if whole { *kind & CHECK | CONT } else { *kind & CHECK };
        if *kind & SIZE != new & SIZE {
            *kind = new;
            self.spaces.shoot.push(Shoot::Region(region));
        }
    }

    /// Whether the pages of a size from one on, in a region with a table, have aligned frames side by side.
    pub(crate) fn lies_together(&self, first: Page, order: u8) -> bool {
        let place = self.spaces.regions[first.region().0 as usize].place;
        let table = self.spaces.tables.table(place);
        let mut frames =
            table[first.slot() as usize..][..1 << order].iter().map(|entry| entry.frame());
        let is_aligned = |frame: &Frame| frame.0.trailing_zeros() >= order.into();
        let first = frames.next().flatten().filter(is_aligned);
        first.is_some_and(|first| {
            (first.0 + 1..).zip(frames).all(|(next, frame)| frame == Some(Frame(next)))
        })
    }

    /// A frame of a reservation is free again. `false`: it was in none.
    pub(crate) fn unreserve(&mut self, frame: Frame, count: u16) -> bool {
        let Some(id) = self.spaces.reservations.at(frame) else { return false };
        let key = self.spaces.reservations.key(id);
        let slot = (frame.0 - self.spaces.reservations.base(id).0) as u16;
        let now = self.clock.now();
        for frame in frame.0..frame.0 + u32::from(count) {
            self.memory.set_owner(Frame(frame), Owner::None);
        }
        if let Depopulated::Empty { base, order } =
            self.spaces.reservations.depopulate_run(id, slot, count, now)
        {
            self.blank.remove(&base.0);
            if key.order == LARGE_ORDER {
                // Its own region's: the last page may have been a child's.
                self.spaces.region(key.page >> 9).flags &= !RESERVED;
            }
            self.memory.free(base, order);
        }
        true
    }

    /// Moves all pages of an inactive reservation elsewhere and gives its block back whole (Quicksilver).
    /// Returns how many were moved; `None`: they could not be.
    pub(crate) fn evacuate(&mut self, id: ReservationId) -> Option<u32> {
        let key = self.spaces.reservations.key(id);
        let region = key.page >> 9;
        if self.spaces.is_large(region) || !self.spaces.shares.is_empty() {
            return None;
        }
        let base = self.spaces.reservations.base(id);
        let population = *self.spaces.reservations.population(id);
        let slots: Vec<u32> = (0..1u32 << key.order)
            .filter(|slot| population[(slot / 64) as usize] >> (slot % 64) & 1 != 0)
            .collect();
        // First all new frames, so that nothing is half moved; they must not come from this block.
        let mut frames = Vec::with_capacity(slots.len());
        for _ in &slots {
            match self.memory.allocate(0, crate::memory::Mobility::Movable, 0, false) {
                Some(got) => frames.push(got.frame),
                None => {
                    frames.into_iter().for_each(|frame| self.memory.free(frame, 0));
                    return None;
                }
            }
        }
        self.spaces.reservations.remove(id);
        self.blank.remove(&base.0);
        if key.order == LARGE_ORDER {
            self.spaces.region(region).flags &= !RESERVED;
        }
        for (&slot, frame) in slots.iter().zip(frames) {
            // After a fork and the parent's end the page may be the child's.
            let Owner::Page(page) = self.memory.owner(Frame(base.0 + slot)) else { continue };
            self.memory.set_owner(Frame(base.0 + slot), Owner::None);
            self.memory.set_owner(frame, Owner::Page(page));
            let entry = self.spaces.entry_mut(page);
            *entry = entry.at(frame);
            self.spaces.scatter(page.region().0);
            if self.spaces.is_present(page) {
                self.spaces.shoot.push(Shoot::Page(page.0));
            }
        }
        self.memory.free(base, key.order);
        Some(slots.len() as u32)
    }
}
