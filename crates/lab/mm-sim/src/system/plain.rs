//! The commonest faults in one piece, for their speed: base pages of anonymous memory in a region that has some
//! already, from free memory or from the region's reservation, where the design's rules consider nothing else.
//! Pages that a program touches side by side are mapped together. All of it does what `fault` would, page by page,
//! no more and no less; only `engine` calls it.
//! See docs/decisions/policy.md#5.

use policy::{Plain, Reads};
use trace::{Access, Page, SLOTS};

use super::System;
use super::frames::LARGE_ORDER;
use super::spaces::region::Entry;
use crate::Cause;
use crate::memory::{Frame, Mobility, Owner};
use crate::reservation::ReservationId;

impl System {
    /// How many plain faults `accesses` begin with, if the first found its page absent: of pages side by side whose
    /// frames will lie side by side.
    #[inline]
    pub(crate) fn plain_ahead(&self, accesses: &[Access]) -> u32 {
        let (Some(access), Some((first, mapping))) = (accesses.first(), self.spaces.last_place())
        else {
            return 0;
        };
        #[cfg(test)]
        if self.serves_singly {
            return 0;
        }
        if self.page_order > 0 {
            return 0;
        }
        let page = access.page();
        let is_ours = (*first..mapping.end).contains(&page.0);
        let is_plain = mapping.is_anonymous() && mapping.pool.is_none();
        if !is_ours || !is_plain {
            return 0;
        }
        // Without a table a superpage may be wanted.
        let Some(entries) = self.spaces.entries_from(page) else { return 0 };
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
    fn reserved_ahead(&self, page: Page, below: u32) -> u32 {
        // What is resident and not mapped may be mapped along with a neighbour.
        let Some(mapped) = self.spaces.mapped_if_all(page.region()) else { return 0 };
        let reservations = self.frames.reservations();
        let Some(id) = reservations.find(page.0) else { return 0 };
        if reservations.key(id).order != LARGE_ORDER {
            return 0;
        }
        // The page that completes it is another matter, as is the one from which on the rest is prepared.
        let most = (below - 1).saturating_sub(reservations.popcnt(id)).min(SLOTS - 1 - mapped);
        let slot = page.slot();
        match most {
            0 => 0,
            1 => u32::from(!reservations.is_populated(id, slot)),
            _ => reservations.clear_ahead(id, slot).min(most),
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
        let reservations = self.frames.reservations();
        let id = reservations.find(page.0).expect("found when it was looked ahead");
        let base = reservations.base(id);
        let zeroes = u64::from(!self.frames.is_zeroed(base));
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
        self.frames.populate(id, slot, count, now);
    }

    /// Faults, and pages that they zeroed.
    #[inline(always)]
    pub(super) fn charge_faults(&mut self, faults: u64, zeroed: u64) {
        self.counters.faults += faults;
        self.clock.spend(Cause::Fault, self.costs.fault * faults);
        let beside = u64::from(self.clock.pace().threads.saturating_sub(1));
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
        let dirty = write || !self.reads.has(Reads::WRITTEN);
        self.spaces.map_run(page, frame, count, dirty);
        self.populated(page.region(), count as u16);
    }
}
