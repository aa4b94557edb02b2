//! Faults and frees where memory is reserved: one page at a time, filled, promoted in place.

use design::{CleanPages, Growth, MapWhen};
use trace::{Backing, Page, SLOTS};

use super::allocate::{LARGE_ORDER, Payer};
use super::region::{CHECK, CONT, Entry, PROTECTED, RESERVED, SIZE};
use super::space::Place;
use super::spaces::Shoot;
use super::{Stop, System};
use crate::Cause;
use crate::memory::{Frame, Owner};
use crate::reservation::promotion::{self, Pages, Promotion, Refused, SoftFault};
use crate::reservation::{Depopulated, Flags, Key, Populated, Population, ReservationId};

/// The one queue of partly populated reservations that simulated systems keep.
pub(crate) const QUEUE: u8 = 0;

impl System {
    /// A fault on an absent page of a mapping that may have reservations.
    pub(crate) fn reserved_fault(
        &mut self,
        page: Page,
        write: bool,
        place: Place,
    ) -> Result<(), Stop> {
        let region = page.region().0;
        let found = self.spaces.reservations.find(page.0);
        let Some(id) = found.or_else(|| self.reserve(page, place)) else {
            return self.base_fault(page, write, place);
        };
        let key = self.spaces.reservations.key(id);
        let slot = (page.0 - key.page) as u16;
        if self.spaces.reservations.is_populated(id, slot) {
            // The frame went to another page of the extent's past (a copy on write): not for this one.
            return self.base_fault(page, write, place);
        }
        if self.map_cached_file(id, place) {
            return Ok(());
        }
        let frame = Frame(self.spaces.reservations.base(id).0 + u32::from(slot));
        let zeroed = self.blank.contains(&self.spaces.reservations.base(id).0);
        self.prepare_page(page, place.1.backing, zeroed);
        let now = self.clock.now();
        let populated = self.spaces.reservations.populate(id, slot, now);
        self.install(page, frame, write);
        self.map_neighbours(page, place);
        if key.order == LARGE_ORDER && self.fills(id, populated, place) {
            self.fill(id, Payer::Program, u32::MAX);
            self.map_full_reservation(page, write, place);
        }
        self.contiguous(region);
        self.promote(region, place);
        Ok(())
    }

    /// A file whose pages are all in memory lies there in whole superpages, and a read maps one at once
    /// (FreeBSD: `vm_fault_soft_fast`). What other processes map of it is not shared here: each has frames of
    /// its own, which are as many for as long.
    fn map_cached_file(&mut self, id: ReservationId, (first, mapping): Place) -> bool {
        let key = self.spaces.reservations.key(id);
        let region = key.page >> 9;
        let whole = matches!(mapping.backing, Backing::File { cached: true, .. })
            && self.design.mapping.when == MapWhen::Prepared
            && key.order == LARGE_ORDER
            && mapping.holds_window(first, key.page)
            && self.spaces.regions[region as usize].place == super::region::NO_TABLE
            && self.spaces.reservations.popcnt(id) == 0;
        if whole {
            let base = self.spaces.reservations.base(id);
            self.memory.set_pages(base, SLOTS, Page(key.page));
            self.spaces.reservations.populate_run(id, 0, SLOTS as u16, self.clock.now());
            self.map_in_place(region, id, false);
        }
        whole
    }

    /// Breaks all reservations of a region.
    pub(crate) fn break_in(&mut self, region: u32) {
        let Some(&smallest) = self.rules.orders.first() else { return };
        for page in (region << 9..(region + 1) << 9).step_by(1 << smallest) {
            if let Some(id) = self.spaces.reservations.find(page) {
                self.break_one(id);
            }
        }
    }

    /// Makes a reservation for the extent around `page`, if the design's rules and memory permit.
    fn reserve(&mut self, page: Page, (first, mapping): Place) -> Option<ReservationId> {
        for at in (0..self.rules.orders.len()).rev() {
            let order = self.rules.orders[at];
            let start = page.0 >> order << order;
            let end = start + (1 << order);
            let anonymous = mapping.is_anonymous();
            let fits = match self.design.allocation.growth {
                Growth::PastEnd => first <= start && (anonymous || end <= mapping.end),
                Growth::Within | Growth::ObjectSize => first <= start && end <= mapping.end,
            };
            let key = Key { page: start, order };
            let region = page.region().0;
            if !fits || self.spaces.reservations.overlaps(key) || self.is_populated(region, key) {
                continue;
            }
            let mut got = self.block(order);
            if got.is_none()
                && self.rules.preempt
                && let Some(yielded) = self.spaces.reservations.preempt(order)
            {
                self.counters.broken += u64::from(yielded.broken);
                for (frame, pages) in yielded.free_runs {
                    self.free_frames(frame, u32::from(pages));
                }
                got = self.block(order);
            }
            if got.is_none() && order == LARGE_ORDER {
                let effort = self.design.allocation.effort;
                got = self.superpage(effort, Payer::Program).map(|got| (got.frame, got.zeroed));
            }
            let Some((base, zeroed)) = got else {
                self.counters.fallbacks += 1;
                continue;
            };
            self.counters.reserved += 1;
            self.clock.spend(Cause::Map, self.costs.reserve);
            if zeroed {
                self.blank.insert(base.0);
            } else {
                // Of a reservation that began there and was preempted.
                self.blank.remove(&base.0);
            }
            if order == LARGE_ORDER {
                self.spaces.region(region).flags |= RESERVED;
            }
            return Some(self.spaces.reservations.create(key, base, QUEUE, self.clock.now()));
        }
        None
    }

    fn block(&mut self, order: u8) -> Option<(Frame, bool)> {
        let zeroed = self.rules.prezero;
        let got = self.memory.allocate(order, crate::memory::Mobility::Movable, 0, zeroed)?;
        Some((got.frame, got.zeroed || self.design.memory.ideal))
    }

    /// Whether a page of the extent has a frame already.
    fn is_populated(&self, region: u32, key: Key) -> bool {
        let at = &self.spaces.regions[region as usize];
        if at.resident == 0 {
            return false;
        }
        key.order == LARGE_ORDER
            || (key.page..key.page + (1 << key.order))
                .any(|page| self.spaces.entry(Page(page)).frame().is_some())
    }

    /// Whether the rest of a reservation is to be prepared at once (Quicksilver's synchronous
    /// preparation: anonymous memory that shadows nothing, in a plain reservation).
    fn fills(&self, id: ReservationId, populated: Populated, (first, mapping): Place) -> bool {
        let Some(at) = self.design.preparation.fill_at else { return false };
        !matches!(populated, Populated::Full)
            && mapping.is_anonymous()
            // An object shorter than the extent cannot be filled; a heap's may still grow over it.
            && (mapping.backing == Backing::Heap
                || mapping.holds_window(first, self.spaces.reservations.key(id).page))
            && self.spaces.reservations.popcnt(id) >= at
            && !self.spaces.reservations.flags(id).has(Flags::BAD)
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

    /// A superpage mapping for a full reservation, made at once although pages were never mapped singly.
    pub(crate) fn map_full_reservation(
        &mut self,
        page: Page,
        write: bool,
        (first, mapping): Place,
    ) -> bool {
        let region = page.region().0;
        if self.design.mapping.when != MapWhen::Prepared
            || self.spaces.regions[region as usize].resident != SLOTS as u16
        {
            return false;
        }
        let Some(id) = self.full_reservation(region) else { return false };
        let dirty = if self.design.mapping.clean_pages == CleanPages::Relaxed {
            [0; 8]
        } else {
            self.dirty_map(region)
        };
        let found = promotion::direct(
            &SoftFault {
                full: true,
                valid: true,
                inside: mapping.holds_window(first, region << 9),
                congruent: true,
                wired: false,
                writable: mapping.writable && !matches!(mapping.backing, Backing::File { .. }),
                busy: false,
                dirty: &dirty,
                slot: page.slot() as u16,
                anonymous: mapping.is_anonymous() && self.spaces.shares.is_empty(),
            },
            self.design.mapping.clean_pages,
        );
        match found {
            Promotion::ReadWrite => self.map_in_place(region, id, true),
            Promotion::ReadOnly if !write => self.map_in_place(region, id, false),
            _ => return false,
        }
        true
    }

    /// Maps a superpage in place if all its pages are mapped alike.
    pub(crate) fn promote(&mut self, region: u32, (_, mapping): Place) {
        let at = &self.spaces.regions[region as usize];
        if self.design.mapping.when != MapWhen::Prepared
            || at.resident != SLOTS as u16
            || at.present != [!0; 8]
            || self.spaces.is_large(region)
        {
            return;
        }
        let Some(id) = self.full_reservation(region) else { return };
        let dirty = if at.clean == 0 { [!0; 8] } else { self.dirty_map(region) };
        let uniform = !at.has(super::region::COW);
        let pages = Pages {
            full: true,
            mapped: true,
            uniform,
            writable: mapping.writable && !matches!(mapping.backing, Backing::File { .. }),
            dirty: &dirty,
        };
        match promotion::promotion(&pages) {
            Promotion::ReadWrite => self.map_in_place(region, id, true),
            Promotion::ReadOnly => self.map_in_place(region, id, false),
            Promotion::None(Refused::MixedDirty) => self.spaces.region(region).flags |= PROTECTED,
            Promotion::None(_) => {}
        }
    }

    /// The fully populated reservation of a region, if all its pages are that reservation's.
    fn full_reservation(&self, region: u32) -> Option<ReservationId> {
        let id = self.spaces.reservations.find(region << 9)?;
        let whole = self.spaces.reservations.key(id).order == LARGE_ORDER
            && self.spaces.reservations.popcnt(id) == SLOTS as u16;
        let base = self.spaces.reservations.base(id).0;
        let table = self.spaces.regions[region as usize].place;
        let in_place = || {
            table != super::region::NO_TABLE
                && (0..)
                    .zip(self.spaces.tables.table(table))
                    .all(|(slot, entry)| entry.frame() == Some(Frame(base + slot)))
        };
        // What others map too, page by page, cannot be theirs and a superpage.
        let shared = || {
            let shares = &self.spaces.shares;
            !shares.is_empty() && shares.range(base..base + SLOTS).next().is_some()
        };
        (whole && in_place() && !shared()).then_some(id)
    }

    fn dirty_map(&self, region: u32) -> Population {
        let mut dirty = [0; 8];
        let table = self.spaces.regions[region as usize].place;
        for (slot, entry) in self.spaces.tables.table(table).iter().enumerate() {
            dirty[slot / 64] |= u64::from(entry.has(Entry::DIRTY)) << (slot % 64);
        }
        dirty
    }

    fn map_in_place(&mut self, region: u32, id: ReservationId, dirty: bool) {
        let base = self.spaces.reservations.base(id);
        self.clock.spend(Cause::Map, self.costs.promote);
        self.counters.made_in_place += 1;
        self.map_superpage(region, base, dirty);
        self.spaces.region(region).flags |= RESERVED;
    }

    /// Whether runs of 16 aligned pages may each share a TLB entry: all are whole or empty, and lie together
    /// (as they do in a reservation, if no page was copied elsewhere).
    fn contiguous(&mut self, region: u32) {
        let at = &self.spaces.regions[region as usize];
        if !self.rules.contiguous_entries
            || !at.resident.is_multiple_of(16)
            || self.spaces.is_large(region)
        {
            return;
        }
        let lanes =
            at.present.iter().flat_map(|word| (0..4).map(move |lane| (word >> (16 * lane)) as u16));
        let whole = at.resident > 0
            && at.place != super::region::NO_TABLE
            && lanes.clone().all(|lane| lane == 0 || lane == !0)
            && lanes.enumerate().all(|(run, lane)| lane == 0 || self.lies_together(region, run));
        let kind = &mut self.spaces.kinds[region as usize];
        let new = if whole { *kind & CHECK | CONT } else { *kind & CHECK };
        if *kind & SIZE != new & SIZE {
            *kind = new;
            self.spaces.shoot.push(Shoot::Region(region));
        }
    }

    /// Whether a run of 16 pages of a region with a table has 16 aligned frames.
    fn lies_together(&self, region: u32, run: usize) -> bool {
        let table = self.spaces.tables.table(self.spaces.regions[region as usize].place);
        let mut frames = table[16 * run..][..16].iter().map(|entry| entry.frame());
        let first = frames.next().flatten().filter(|frame| frame.0 % 16 == 0);
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
            if self.spaces.regions[page.region().0 as usize].is_present(page.slot()) {
                self.spaces.shoot.push(Shoot::Page(page.0));
            }
        }
        self.memory.free(base, key.order);
        Some(slots.len() as u32)
    }
}
