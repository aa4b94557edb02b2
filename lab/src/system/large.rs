//! Mapping superpages and splitting them.

use policy::{Action, Event, Facts};
use trace::{Page, SLOTS};

use super::System;
use super::allocate::Payer;
use super::region::{
    BASE, CHECK, COW, DIRTY, Entry, LARGE, NO_TABLE, POOL, RESERVED, Region, ZEROS,
};
use super::spaces::Shoot;
use crate::Cause;
use crate::memory::{Frame, Owner};

impl System {
    /// Maps a superpage of memory.
    pub(crate) fn map_superpage(&mut self, region: u32, base: Frame, dirty: bool) {
        self.memory.set_superpage(base, true);
        self.map_large(region, base, dirty);
    }

    /// Maps a region to the 512 frames from `base` on. What its table held must be gone or be these frames.
    /// The frames' owners are those of its pages where the frames came singly, else only the first has one.
    pub(crate) fn map_large(&mut self, region: u32, base: Frame, dirty: bool) {
        let resident = i64::from(self.spaces.regions[region as usize].resident);
        self.spaces.count_resident(region, i64::from(SLOTS) - resident);
        self.spaces.count_superpages(region, 1);
        let at = self.spaces.region(region);
        let table = std::mem::replace(&mut at.place, base.0);
        at.clean = 0;
        at.flags &= RESERVED | POOL;
        if dirty {
            at.flags |= DIRTY;
        }
        let had_table = table != NO_TABLE;
        self.spaces.kinds[region as usize] = if dirty { LARGE } else { LARGE | CHECK };
        if had_table {
            self.spaces.tables.end(table);
            self.spaces.shoot.push(Shoot::Region(region));
        }
    }

    /// Splits a superpage mapping, in all address spaces that share it: pages are mapped singly, frames
    /// stay where they are.
    pub(crate) fn demote(&mut self, region: u32, payer: Payer) {
        debug_assert!(self.spaces.is_large(region));
        let at = self.spaces.regions[region as usize];
        if at.has(ZEROS) {
            return self.unmap_zeros(region);
        }
        let base = at.place;
        let singly_owned = self.memory.owner(Frame(base + 1)) != Owner::None;
        let reserved = self.spaces.reservations.at(Frame(base)).is_some();
        let mut group = vec![region];
        if at.has(COW) {
            group = self.mappers(Frame(base));
            group.iter_mut().for_each(|page| *page >>= 9);
            self.spaces.shares.remove(&base);
        }
        for &region in &group {
            self.split_mapping(region, payer);
        }
        self.memory.set_superpage(Frame(base), false);
        if !singly_owned || group.len() > 1 {
            for slot in 0..SLOTS {
                let page = Page((group[0] << 9) + slot);
                self.memory.set_owner(Frame(base + slot), Owner::Page(page));
                if group.len() > 1 {
                    let others = group[1..].iter().map(|region| (region << 9) + slot);
                    self.spaces.shares.insert(base + slot, others.collect());
                }
            }
        }
        let demoted = Event::Demoted { reserved };
        if self.policy.on(demoted, &Facts::default()) == Action::Hold {
            self.spaces.folios.insert(base, SLOTS as u16);
        }
    }

    /// All pages that map a frame of anonymous memory.
    fn mappers(&self, frame: Frame) -> Vec<u32> {
        match self.memory.owner(frame) {
            Owner::Page(page) => self.spaces.mappers(page.0, frame),
            _ => Vec::new(),
        }
    }

    fn split_mapping(&mut self, region: u32, payer: Payer) {
        self.counters.demoted += 1;
        self.charge(payer, Cause::Map, self.costs.split);
        self.charge(payer, Cause::Shootdown, self.costs.shootdown);
        self.spaces.shoot.push(Shoot::Region(region));
        self.spaces.count_superpages(region, -1);
        let table = self.spaces.tables.make();
        let at = self.spaces.region(region);
        let base = std::mem::replace(&mut at.place, table);
        let (dirty, cow) = (at.has(DIRTY), at.has(COW));
        at.flags &= if cow { RESERVED | COW } else { RESERVED };
        at.clean = if dirty { 0 } else { SLOTS as u16 };
        let mut flags = Entry::EMPTY;
        if dirty {
            flags = flags.with(Entry::DIRTY);
        }
        if cow {
            flags = flags.with(Entry::COW);
        }
        *self.spaces.tables.present_mut(table) = [!0; 8];
        for (slot, entry) in (0..).zip(self.spaces.tables.table_mut(table)) {
            *entry = flags.at(Frame(base + slot));
        }
        self.spaces.kinds[region as usize] = if dirty && !cow { BASE } else { BASE | CHECK };
    }

    /// Takes away the shared superpage of zeros: nothing was allocated for it.
    pub(crate) fn unmap_zeros(&mut self, region: u32) {
        self.spaces.shoot.push(Shoot::Region(region));
        self.spaces.count_resident(region, -i64::from(SLOTS));
        self.spaces.count_superpages(region, -1);
        self.spaces.kinds[region as usize] = BASE;
        *self.spaces.region(region) =
            Region { process: self.spaces.regions[region as usize].process, ..Region::EMPTY };
    }
}
