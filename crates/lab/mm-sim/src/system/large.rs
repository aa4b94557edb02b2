//! Superpages are mapped, and split with all their sharers.

use policy::{Action, Event, Facts};
use trace::{Page, Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::spaces::region::{COW, ZEROS};
use crate::Cause;
use crate::memory::{Frame, Owner};

impl System {
    /// Maps a superpage of memory.
    pub(crate) fn map_superpage(&mut self, region: Region, base: Frame, dirty: bool) {
        self.memory.set_superpage(base, true);
        self.spaces.map_large(region, base, dirty);
    }

    /// Splits a region's superpage mapping, in all address spaces that share it: pages are mapped singly, frames
    /// stay where they are. Of a larger superpage the other regions stay as they are when it is split.
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

    /// What was a superpage of zeros is a page of zeros in each place (`__split_huge_zero_page_pmd` of Linux), but in one
    /// that is written now.
    pub(crate) fn map_zeros_singly(&mut self, region: Region, but: Option<Page>) {
        for page in (0..SLOTS).map(|slot| Page::new(region, slot)) {
            if Some(page) != but {
                self.spaces.map_zero_page(page);
            }
        }
        self.clock.spend(Cause::Map, self.costs.split);
    }

    /// The same, not paid for. Returns in how many address spaces.
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
