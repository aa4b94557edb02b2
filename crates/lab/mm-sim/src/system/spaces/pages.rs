//! Base pages: mapped, moved, written.

use std::ops::Range;

use trace::{Page, Region, SLOTS};

use super::region::{
    ACCESSED, BASE, CHECK, CONT, COW, Entry, LARGE, NO_TABLE, PROTECTED, Present, SIZE, UNACCESSED,
    ZEROS,
};
use super::{MANY, Spaces, TlbInvalidation};
use crate::memory::Frame;
use crate::reservation;

impl Spaces {
    /// The entry of a base page; empty where the region has no table.
    #[inline]
    pub(crate) fn entry(&self, page: Page) -> Entry {
        match self.regions[page.region()].place {
            NO_TABLE => Entry::EMPTY,
            table => self.tables.table(table)[page.slot() as usize],
        }
    }

    /// The entry of a base page, in a table that is made if need be.
    #[inline]
    pub(super) fn entry_mut(&mut self, page: Page) -> &mut Entry {
        let region = self.regions.extend(page.region());
        if region.place == NO_TABLE {
            region.place = self.tables.make();
        }
        self.tables.entry(region.place, page.slot())
    }

    /// Whether a page is mapped, singly.
    #[inline]
    pub(crate) fn is_present(&self, page: Page) -> bool {
        let region = page.region();
        !self.is_large(region) && self.tables.is_present(self.regions[region].place, page.slot())
    }

    /// Which base pages of a region without a superpage are mapped.
    #[inline]
    pub(crate) fn present(&self, region: Region) -> &Present {
        self.tables.present(self.regions[region].place)
    }

    /// Whether a page of a region with base pages, and with a table, has nothing.
    #[inline(always)]
    pub(crate) fn is_empty_beside_others(&self, page: Page) -> bool {
        let region = page.region();
        let place = self.regions[region].place;
        self.kinds[region.index()] & SIZE == BASE
            && place != NO_TABLE
            && self.tables.get(place, page.slot()) == Entry::EMPTY
    }

    /// The entries from a page on, in a region with base pages that has a table.
    #[inline]
    pub(crate) fn entries_from(&self, page: Page) -> Option<&[Entry]> {
        let region = page.region();
        let (kind, place) = (self.kinds[region.index()], self.regions[region].place);
        (kind & SIZE == BASE && place != NO_TABLE)
            .then(|| &self.tables.table(place)[page.slot() as usize..])
    }

    /// How many pages of a region with base pages are mapped; `None`: others are resident too.
    #[inline(always)]
    pub(crate) fn mapped_if_all(&self, region: Region) -> Option<u32> {
        let at = &self.regions[region];
        let mapped = self.tables.present(at.place).iter().map(|word| word.count_ones()).sum();
        (mapped == u32::from(at.resident)).then_some(mapped)
    }

    /// Maps a page whose entry holds a frame (or the page of zeros).
    #[inline]
    pub(super) fn map_entry(&mut self, page: Page, entry: Entry) {
        let number = page.region();
        *self.entry_mut(page) = entry;
        let region = self.regions.extend(number);
        debug_assert!(!self.tables.is_present(region.place, page.slot()));
        self.tables.set_present(region.place, page.slot());
        if self.kinds[number.index()] & SIZE == CONT {
            // What the TLB has of whole runs stays true.
            self.kinds[number.index()] &= !SIZE;
        }
        if !entry.has(Entry::DIRTY) || entry.has(Entry::COW) {
            region.clean += u16::from(!entry.has(Entry::DIRTY));
            self.kinds[number.index()] |= CHECK;
        }
    }

    /// Maps a page to a frame, which becomes its own.
    #[inline]
    pub(crate) fn map_page(&mut self, page: Page, frame: Frame, dirty: bool) {
        let entry = Entry::new(frame);
        self.map_entry(page, if dirty { entry.with(Entry::DIRTY) } else { entry });
        self.count_resident(page.region(), 1);
    }

    /// Maps `count` pages that have nothing, in a region with base pages that has a table, to the frames from `frame`
    /// on, as walked to: what [`Self::map_page`] does for each, and at once.
    #[inline(always)]
    pub(crate) fn map_run(&mut self, page: Page, frame: Frame, count: u32, dirty: bool) {
        let (number, slot) = (page.region(), page.slot());
        let region = self.regions.extend(number);
        let entry = |frame: u32| {
            let new = Entry::new(Frame(frame));
            if dirty { new.with(Entry::DIRTY) } else { new }
        };
        if count == 1 {
            *self.tables.entry(region.place, slot) = entry(frame.0);
            self.tables.set_present(region.place, slot);
        } else {
            let entries = &mut self.tables.table_mut(region.place)[slot as usize..];
            for (at, frame) in entries[..count as usize].iter_mut().zip(frame.0..) {
                *at = entry(frame);
            }
            let present = self.tables.present_mut(region.place);
            reservation::set_run(present, slot as u16, count as u16);
        }
        region.resident += count as u16;
        region.flags |= ACCESSED;
        if !dirty {
            region.clean += count as u16;
            self.kinds[number.index()] |= CHECK;
        }
        if region.process >= self.first_process {
            self.resident += u64::from(count);
        }
    }

    /// Maps the page of zeros.
    pub(crate) fn map_zero_page(&mut self, page: Page) {
        self.map_entry(page, Entry::zero_page());
    }

    /// Maps a page that is in memory, as it is or as written.
    pub(crate) fn map_resident(&mut self, page: Page, write: bool) {
        let entry = self.entry(page);
        self.map_entry(page, if write { entry.with(Entry::DIRTY) } else { entry });
    }

    /// Maps those pages of a region that are in memory and not mapped, as if read, with these flags. Returns how many.
    pub(crate) fn map_neighbours(&mut self, pages: Range<u32>, flags: u32) -> u64 {
        let region = Page(pages.start).region();
        let mut mapped = 0;
        for beside in pages.map(Page) {
            let entry = self.entry(beside);
            if entry.frame().is_some() && !self.is_present(beside) {
                self.map_entry(beside, entry.without(Entry::DIRTY).with(flags));
                mapped += 1;
            }
        }
        if mapped > 0 && flags & Entry::UNACCESSED != 0 {
            self.region(region).flags |= UNACCESSED;
        }
        mapped
    }

    /// Whether a page of a region, all of which are mapped, was mapped by a fault on another one and not used since.
    pub(crate) fn has_unaccessed(&self, region: Region) -> bool {
        self.at(region).has(UNACCESSED)
            && (0..SLOTS)
                .any(|slot| self.entry(Page(region.first().0 + slot)).has(Entry::UNACCESSED))
    }

    /// Pages that have nothing get frames side by side, and are not mapped.
    pub(crate) fn make_resident(&mut self, first: Page, frame: Frame, count: u32) {
        for ahead in 0..count {
            *self.entry_mut(Page(first.0 + ahead)) = Entry::new(Frame(frame.0 + ahead));
        }
        self.count_resident(first.region(), count.into());
    }

    /// A page's first write, where it is mapped.
    pub(crate) fn set_dirty(&mut self, page: Page) {
        self.entry_mut(page).set_dirty();
        self.region(page.region()).clean -= 1;
    }

    /// The page is the writer's alone, and may be written.
    pub(crate) fn take_page(&mut self, page: Page) {
        let entry = self.entry_mut(page);
        let was_clean = !entry.has(Entry::DIRTY);
        *entry = entry.with(Entry::DIRTY).without(Entry::COW);
        let at = self.regions.edit(&mut self.kinds, page.region());
        if self.tables.is_present(at.place, page.slot()) {
            at.clean -= u16::from(was_clean);
        } else {
            self.tables.set_present(at.place, page.slot());
        }
    }

    /// A page's contents are in another frame now.
    pub(crate) fn move_page(&mut self, page: Page, frame: Frame) {
        let entry = self.entry_mut(page);
        *entry = entry.at(frame);
        self.scatter(page.region());
    }

    /// What the engine asks before a write (or a read) where [`CHECK`] is set: is all well without a fault?
    pub(crate) fn is_fine(&mut self, page: Page, write: bool) -> bool {
        let region = page.region();
        if !write {
            return true;
        }
        let kind = self.kinds[region.index()];
        let at = self.region(region);
        if kind & LARGE != 0 {
            return at.has(super::region::DIRTY) && !at.has(COW | ZEROS);
        }
        let (place, protected) = (at.place, at.has(PROTECTED));
        if !self.tables.is_present(place, page.slot()) {
            // Not mapped: the walk will find that out, and fault once.
            return true;
        }
        let entry = self.entry_mut(page);
        if entry.is_zero_page() {
            // Its mapping is taken away, so that the fault finds it absent.
            *entry = Entry::EMPTY;
            self.tables.clear_present(place, page.slot());
            self.region(region).clean -= 1;
            self.invalidations.push(TlbInvalidation::Page(page.0));
            return false;
        }
        if entry.has(Entry::COW) {
            return false;
        }
        if entry.has(Entry::DIRTY) {
            return true;
        }
        if protected {
            // Write-protected by an attempt at promotion (FreeBSD): the write faults and retries it.
            return false;
        }
        // The processor sets the dirty bit by itself.
        entry.set_dirty();
        let at = self.region(region);
        at.clean -= 1;
        if at.clean == 0 && !at.has(COW) {
            self.kinds[region.index()] &= !CHECK;
        }
        true
    }

    /// A page must leave the TLBs. Of more than [`MANY`] only the number counts: more are not noted.
    #[inline]
    pub(crate) fn invalidate_page(&mut self, page: Page) {
        if self.invalidations.len() <= MANY {
            self.invalidations.push(TlbInvalidation::Page(page.0));
        }
    }

    /// A region's pages do not lie in runs of 16 any more, or a run is not mapped whole.
    #[inline]
    pub(super) fn scatter(&mut self, region: Region) {
        if self.kinds[region.index()] & SIZE == CONT {
            self.kinds[region.index()] &= !SIZE;
            self.invalidations.push(TlbInvalidation::Region(region));
        }
    }

    /// An entry, if there is one.
    #[inline]
    pub(crate) fn get_entry(&self, page: Page) -> Entry {
        self.table_of(page).map_or(Entry::EMPTY, |table| self.tables.get(table, page.slot()))
    }

    /// Brings what faults and discards read of a page's table into the host's caches.
    #[inline]
    pub(crate) fn prefetch(&self, page: Page) {
        if let Some(table) = self.table_of(page) {
            self.tables.prefetch(table, page.slot());
        }
    }

    /// What stands for the table of a page's region, if that is one of base pages.
    #[inline]
    fn table_of(&self, page: Page) -> Option<u32> {
        let region = page.region();
        let kind = self.kinds.get(region.index())?;
        (kind & LARGE == 0).then(|| self.regions[region].place)
    }
}
