//! Base pages go: taken away, or swapped out.

use std::ops::Range;

use trace::{Page, Region};

use super::Spaces;
use super::region::{BASE, Entry, LARGE, NO_TABLE, RESERVED};
use crate::memory::Frame;

/// Entries that were emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Emptied {
    /// Mappings that went.
    pub mappings: u32,
    /// The frame of the last one.
    pub frame: Option<Frame>,
}

impl Spaces {
    /// A page is written out. Its frame is the caller's matter.
    pub(crate) fn swap_out(&mut self, page: Page) {
        self.unmap_entry(page);
        *self.entry_mut(page) = Entry::swapped();
        self.count_resident(page.region(), -1);
        self.swapped += 1;
    }

    /// Whether a page's contents are in swap; there they are no more.
    pub(crate) fn leave_swap(&mut self, page: Page) -> bool {
        let was_swapped = self.entry(page).is_swapped();
        self.swapped -= u64::from(was_swapped);
        was_swapped
    }

    /// Takes a page's mapping away; its frame stays.
    fn unmap_entry(&mut self, page: Page) {
        let clean = !self.entry(page).has(Entry::DIRTY);
        self.scatter(page.region());
        let region = self.regions.edit(&mut self.kinds, page.region());
        if self.tables.is_present(region.place, page.slot()) {
            self.tables.clear_present(region.place, page.slot());
            region.clean -= u16::from(clean);
            self.invalidate_page(page);
        }
    }

    /// Empties an entry of a region that has a table.
    pub(crate) fn empty_entry(&mut self, page: Page) -> Emptied {
        let region = page.region();
        let place = self.regions[region].place;
        let entry = std::mem::replace(self.tables.entry(place, page.slot()), Entry::EMPTY);
        let mut mappings = 0;
        if !entry.is_empty() {
            self.scatter(region);
            let at = self.regions.edit(&mut self.kinds, region);
            if self.tables.is_present(place, page.slot()) {
                self.tables.clear_present(place, page.slot());
                at.clean -= u16::from(!entry.has(Entry::DIRTY));
                mappings = 1;
                self.invalidate_page(page);
            }
            self.swapped -= u64::from(entry.is_swapped());
            if entry.frame().is_some() {
                self.count_resident(region, -1);
            }
        }
        Emptied { mappings, frame: entry.frame() }
    }

    /// Empties entries of a region that has a table, and hands over each page that had a frame. Returns how many
    /// mappings went.
    #[inline]
    pub(crate) fn empty_entries(
        &mut self,
        region: Region,
        slots: Range<u32>,
        mut gone: impl FnMut(Page, Frame),
    ) -> u32 {
        let place = self.regions[region].place;
        let mut present = *self.tables.present(place);
        let (mut any, mut mappings, mut clean, mut frames) = (false, 0, 0, 0);
        for slot in slots {
            let at = self.tables.entry(place, slot);
            let entry = *at;
            if entry.is_empty() {
                continue;
            }
            *at = Entry::EMPTY;
            any = true;
            let page = Page::new(region, slot);
            let word = &mut present[(slot / 64) as usize];
            if *word >> (slot % 64) & 1 != 0 {
                *word &= !(1 << (slot % 64));
                mappings += 1;
                clean += u16::from(!entry.has(Entry::DIRTY));
                self.invalidate_page(page);
            }
            self.swapped -= u64::from(entry.is_swapped());
            if let Some(frame) = entry.frame() {
                frames += 1;
                gone(page, frame);
            }
        }
        if any {
            self.scatter(region);
            *self.tables.present_mut(place) = present;
            self.region(region).clean -= clean;
            self.count_resident(region, -frames);
        }
        mappings
    }

    /// Gives a region's table back if nothing is in it.
    pub(crate) fn tidy(&mut self, region: Region) {
        let at = self.regions.edit(&mut self.kinds, region);
        if self.kinds[region.index()] & LARGE == 0
            && at.place != NO_TABLE
            && at.resident == 0
            && self.tables.table(at.place).iter().all(|entry| entry.is_empty())
        {
            self.tables.end(at.place);
            at.place = NO_TABLE;
            at.clean = 0;
            at.flags &= RESERVED;
            self.kinds[region.index()] = BASE;
        }
    }

    /// Whether a page more can be swapped out.
    pub(crate) fn can_swap(&self) -> bool {
        self.swapped < self.swap
    }
}
