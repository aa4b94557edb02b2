//! The commonest fault in one piece, for its speed: one base page of anonymous memory in a region that has
//! some already, by rules that consider nothing else. It does what `fault` would, no more and no less;
//! only `engine` calls it.

use trace::Page;

use super::System;
use super::region::{ACCESSED, BASE, CHECK, Entry, NO_TABLE, SIZE};
use crate::Cause;
use crate::memory::{Mobility, Owner};

impl System {
    /// Maps a page that was accessed and is absent. `false`: nothing was done, it takes `fault` to do it.
    #[inline]
    pub(crate) fn plain_fault(&mut self, page: Page, write: bool) -> bool {
        let Some((first, mapping)) = &self.last else { return false };
        let is_ours = (*first..mapping.end).contains(&page.0);
        let is_plain = mapping.is_anonymous() && mapping.pool.is_none();
        let zeros = !write && self.design.allocation.zero_page;
        if !self.rules.one_page || !is_ours || !is_plain || zeros {
            return false;
        }
        let number = page.region().0 as usize;
        let spaces = &mut self.spaces;
        // Without a table a superpage may be wanted.
        let (kind, place) = (spaces.kinds[number], spaces.regions[number].place);
        if kind & SIZE != BASE || place == NO_TABLE {
            return false;
        }
        let entry = spaces.tables.entry(place, page.slot());
        if *entry != Entry::EMPTY {
            return false;
        }
        let Some(got) = self.memory.allocate(0, Mobility::Movable, 0, self.rules.prezero) else {
            return false;
        };
        self.memory.set_owner(got.frame, Owner::Page(page));
        let dirty = write || !self.rules.track_clean;
        let new = Entry::of(got.frame);
        *entry = if dirty { new.with(Entry::DIRTY) } else { new };
        let region = spaces.regions.extend(number);
        region.set_present(page.slot());
        region.resident += 1;
        region.flags |= ACCESSED;
        if !dirty {
            region.clean += 1;
            spaces.kinds[number] |= CHECK;
        }
        if region.process >= spaces.first_process {
            spaces.resident += 1;
        }
        self.populated(page.region().0);
        self.trap();
        if !got.zeroed {
            self.counters.zeroed += 1;
            self.clock.spend(Cause::Zero, self.costs.zero_page);
        }
        true
    }
}
