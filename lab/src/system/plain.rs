//! The commonest faults in one piece, for their speed: base pages of anonymous memory in a region that has some
//! already, from free memory or from the region's reservation, where the design's rules consider nothing else.
//! Pages that a program touches side by side are mapped together. All of it does what `fault` would, page by page,
//! no more and no less; only `engine` calls it.

use policy::{Plain, Reads};
use trace::{Access, Page, SLOTS};

use super::System;
use super::allocate::LARGE_ORDER;
use super::region::{ACCESSED, BASE, CHECK, Entry, NO_TABLE, SIZE};
use crate::Cause;
use crate::memory::{Frame, Mobility, Owner};
use crate::reservation::{self, ReservationId};

impl System {
    /// How many plain faults `accesses` begin with, if the first found its page absent: of pages side by side whose
    /// frames will lie side by side.
    #[inline]
    pub(crate) fn plain_ahead(&self, accesses: &[Access]) -> u32 {
        let (Some(access), Some((first, mapping))) = (accesses.first(), &self.last) else {
            return 0;
        };
        #[cfg(test)]
        if self.serves_singly {
            return 0;
        }
        let (page, slot) = (access.page(), access.page().slot());
        let is_ours = (*first..mapping.end).contains(&page.0);
        let is_plain = mapping.is_anonymous() && mapping.pool.is_none();
        if !is_ours || !is_plain {
            return 0;
        }
        let number = page.region().0 as usize;
        // Without a table a superpage may be wanted.
        let (kind, place) = (self.spaces.kinds[number], self.spaces.regions[number].place);
        if kind & SIZE != BASE || place == NO_TABLE {
            return 0;
        }
        let entries = &self.spaces.tables.table(place)[slot as usize..];
        if entries[0] != Entry::EMPTY {
            return 0;
        }
        let frames = match self.policy.plain(access.writes(), &mapping.facts()) {
            Plain::Base => self.memory.side_by_side(Mobility::Movable, 0).max(1),
            Plain::Reserved { below } if !self.joins => self.reserved_ahead(page, below),
            Plain::Reserved { .. } | Plain::None => 0,
        };
        if frames < 2 || accesses.get(1).is_none_or(|next| next.0 != access.0 + 1) {
            return frames.min(1);
        }
        let most = frames.min(mapping.end - page.0) as usize;
        let wanted = (access.0..).zip(entries).take(most);
        let fits = accesses.iter().zip(wanted);
        fits.take_while(|(access, (wanted, entry))| access.0 == *wanted && **entry == Entry::EMPTY)
            .count() as u32
    }

    /// How many pages from `page` on have their frames in a reservation that does nothing more than populate them.
    #[inline]
    fn reserved_ahead(&self, page: Page, below: u16) -> u32 {
        let at = &self.spaces.regions[page.region().0 as usize];
        let present = self.spaces.tables.present(at.place);
        let mapped: u32 = present.iter().map(|word| word.count_ones()).sum();
        let reservations = &self.spaces.reservations;
        let Some(id) = reservations.find(page.0) else { return 0 };
        // What is resident and not mapped may be mapped along with a neighbour.
        if mapped != u32::from(at.resident) || reservations.key(id).order != LARGE_ORDER {
            return 0;
        }
        // The page that completes it is another matter, as is the one from which on the rest is prepared.
        let room = (u32::from(below) - 1)
            .saturating_sub(reservations.popcnt(id).into())
            .min(SLOTS - 1 - mapped);
        let slot = page.slot() as u16;
        match room {
            0 => 0,
            1 => u32::from(!reservations.is_populated(id, slot)),
            _ => reservations.clear_ahead(id, slot).min(room),
        }
    }

    /// Maps `count` pages of which [`Self::plain_ahead`] said that their faults are plain. `false`: nothing was done,
    /// no frame is free.
    #[inline]
    pub(crate) fn plain_faults(&mut self, page: Page, write: bool, count: u32) -> bool {
        if self.is_single {
            let (frame, zeroed) = if count > 1 {
                (self.memory.allocate_side_by_side(Mobility::Movable, 0, count), false)
            } else {
                match self.memory.allocate(0, Mobility::Movable, 0, self.physical.prefers_zeroed) {
                    Some(got) => (got.frame, got.zeroed),
                    None => return false,
                }
            };
            self.map_plain(page, frame, write, count);
            self.trap();
            self.charge_faults(u64::from(count - 1), u64::from(count) * u64::from(!zeroed));
            return true;
        }
        let id = self.spaces.reservations.find(page.0).expect("found when it was looked ahead");
        let base = self.spaces.reservations.base(id);
        let zeroes = u64::from(!self.blank.contains(&base.0));
        self.map_plain(page, Frame(base.0 + page.slot()), write, count);
        self.trap();
        self.charge_faults(0, zeroes);
        self.populate_plain(id, page.slot(), 1);
        if count > 1 {
            let more = u64::from(count - 1);
            self.charge_faults(more, more * zeroes);
            // The reservation's place on its queue is that of the last of several changes.
            self.populate_plain(id, page.slot() + 1, count - 1);
        }
        true
    }

    #[inline]
    fn populate_plain(&mut self, id: ReservationId, slot: u32, count: u32) {
        let now = self.clock.now();
        self.spaces.reservations.populate_run(id, slot as u16, count as u16, now);
    }

    /// Faults, and pages that they zeroed.
    #[inline(always)]
    pub(super) fn charge_faults(&mut self, faults: u64, zeroed: u64) {
        self.counters.faults += faults;
        self.clock.spend(Cause::Fault, self.costs.fault * faults);
        let beside = u64::from(self.clock.pace.threads.saturating_sub(1));
        self.clock.spend(Cause::Lock, self.costs.beside * beside * faults);
        self.counters.zeroed += zeroed;
        self.clock.spend(Cause::Zero, self.costs.zero_page * zeroed);
    }

    /// Maps `count` pages to the frames from `frame` on.
    #[inline]
    fn map_plain(&mut self, page: Page, frame: Frame, write: bool, count: u32) {
        if count == 1 {
            self.memory.set_owner(frame, Owner::Page(page));
        } else {
            self.memory.set_pages(frame, count, page);
        }
        let spaces = &mut self.spaces;
        let (number, slot) = (page.region().0 as usize, page.slot());
        let region = spaces.regions.extend(number);
        let dirty = write || !self.reads.has(Reads::WRITTEN);
        let entries = &mut spaces.tables.table_mut(region.place)[slot as usize..];
        for (entry, frame) in entries[..count as usize].iter_mut().zip(frame.0..) {
            let new = Entry::of(Frame(frame));
            *entry = if dirty { new.with(Entry::DIRTY) } else { new };
        }
        if count == 1 {
            spaces.tables.set_present(region.place, slot);
        } else {
            let present = spaces.tables.present_mut(region.place);
            reservation::set_run(present, slot as u16, count as u16);
        }
        region.resident += count as u16;
        region.flags |= ACCESSED;
        if !dirty {
            region.clean += count as u16;
            spaces.kinds[number] |= CHECK;
        }
        if region.process >= spaces.first_process {
            spaces.resident += u64::from(count);
        }
        self.populated(page.region().0, count as u16);
    }
}
