//! Page tables: the mapping of each region, and the frames.
//!
//! A region is 512 base pages of one process, which one superpage can back. A TLB hit reads only `kinds`, one byte per
//! region. A walk also reads a [`RegionEntry`]. [`Tables`] record which base pages are mapped (a bitmap) and their
//! frames (four bytes per entry); only regions with base pages have a table.

use std::ops::Range;

use policy::Population;
use prefetch_index::prefetch_index;
use trace::{Backing, Page, Region, SLOTS};

use super::{FLUSH_CEILING, Mapping, Place, Spaces, TlbInvalidation};
use crate::memory::Frame;
use crate::reservation;

/// The byte of a region that a TLB hit reads: a page size in the low bits, [`CHECK`] and [`QUIET`].
pub(crate) type Kind = u8;

/// Base pages, or nothing mapped.
pub(crate) const BASE: Kind = 0;
/// Contiguous, aligned runs of 16 base pages, each of which may share one TLB entry.
pub(crate) const CONT: Kind = 1;
/// A superpage. This bit distinguishes superpages from base pages.
pub(crate) const LARGE: Kind = 2;
/// Part of a superpage of several regions.
pub(crate) const HUGE: Kind = 3;
/// Mask of the page size. The values equal those of `machine::Size`.
pub(crate) const SIZE: Kind = 3;
/// Writes must be checked: a page may be clean, shared, or zero.
pub(crate) const CHECK: Kind = 4;
/// A walk needs no check and records nothing: all pages are mapped, and the region was already walked to. Only the
/// engine sets this flag; [`Regions::edit`] clears it.
pub(crate) const QUIET: Kind = 8;

/// Mapping of a region, 16 bytes. Larger data is only in the tables of base pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionEntry {
    /// Number of the table; under a superpage, its first frame.
    pub place: u32,
    /// The owning process; [`NOBODY`] before the first mapping.
    pub process: u32,
    /// Number of base pages with a frame, mapped or not.
    pub resident: u16,
    /// Flags: [`ACCESSED`] etc.
    pub flags: u16,
    /// Moving average of the accessed pages (of 512), as sampled by a daemon.
    pub coverage: u16,
    /// Number of mapped base pages that were not written since they were mapped.
    pub clean: u16,
}

pub(crate) const NOBODY: u32 = u32::MAX;
pub(crate) const NO_TABLE: u32 = u32::MAX;

/// The region was walked to since a daemon's last sample.
pub(crate) const ACCESSED: u16 = 1;
/// A superpage mapped writable and dirty.
pub(crate) const DIRTY: u16 = 2;
/// Frames are shared after a fork; a write copies.
pub(crate) const COW: u16 = 4;
/// The region's frames lie in a reservation.
pub(crate) const RESERVED: u16 = 8;
/// The region is on a list of candidates.
pub(crate) const LISTED: u16 = 16;
/// The frames come from an explicit pool.
pub(crate) const POOL: u16 = 32;
/// Mapped to the shared zero superpage.
pub(crate) const ZEROS: u16 = 64;
/// The program made the pages read-only.
pub(crate) const PROTECTED: u16 = 128;
/// A superpage temporarily mapped by its base pages, to sample accesses.
pub(crate) const WATCHED: u16 = 256;
/// Entries may be [`Entry::UNACCESSED`].
pub(crate) const UNACCESSED: u16 = 512;

impl RegionEntry {
    pub(crate) const EMPTY: Self =
        Self { place: NO_TABLE, process: NOBODY, resident: 0, flags: 0, coverage: 0, clean: 0 };

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// All regions. Code that changes a region must clear [`QUIET`], so there is no `IndexMut`.
#[derive(Debug, Default)]
pub(crate) struct Regions(Vec<RegionEntry>);

impl Regions {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn get(&self, region: Region) -> Option<&RegionEntry> {
        self.0.get(region.index())
    }
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, RegionEntry> {
        self.0.iter()
    }
    pub(crate) fn grow(&mut self, regions: usize) {
        self.0.resize(regions, RegionEntry::EMPTY);
    }
    /// Returns a region for a change, and clears [`QUIET`].
    #[inline(always)]
    pub(crate) fn edit(&mut self, kinds: &mut [Kind], region: Region) -> &mut RegionEntry {
        kinds[region.index()] &= !QUIET;
        &mut self.0[region.index()]
    }
    /// Returns a region for a change that walks do not observe, or for additional mappings.
    #[inline(always)]
    pub(crate) fn extend(&mut self, region: Region) -> &mut RegionEntry {
        &mut self.0[region.index()]
    }
}

impl std::ops::Index<Region> for Regions {
    type Output = RegionEntry;
    #[inline(always)]
    fn index(&self, region: Region) -> &RegionEntry {
        &self.0[region.index()]
    }
}

/// Page-table entry of a base page: a frame or a special value, with flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(pub(super) u32);

const FRAME: u32 = (1 << 28) - 1;
const SWAPPED: u32 = FRAME;
const ZERO_PAGE: u32 = FRAME - 1;

impl Entry {
    pub(crate) const EMPTY: Self = Self(0);
    /// Written since it was mapped.
    pub(crate) const DIRTY: u32 = 1 << 28;
    /// Walked to since a daemon's last sample (only kept for designs that sample).
    pub(crate) const ACCESSED: u32 = 1 << 29;
    /// Shared after a fork; a write copies.
    pub(crate) const COW: u32 = 1 << 30;
    /// Mapped by a fault on another page and not walked to since (only kept for designs that read it).
    pub(crate) const UNACCESSED: u32 = 1 << 31;

    pub(crate) fn new(frame: Frame) -> Self {
        Self(frame.0 + 1)
    }
    pub(crate) const fn swapped() -> Self {
        Self(SWAPPED)
    }
    pub(crate) const fn zero_page() -> Self {
        Self(ZERO_PAGE)
    }
    pub(crate) fn frame(self) -> Option<Frame> {
        match self.0 & FRAME {
            0 | SWAPPED | ZERO_PAGE => None,
            number => Some(Frame(number - 1)),
        }
    }
    pub(crate) fn is_empty(self) -> bool {
        self.0 & FRAME == 0
    }
    pub(crate) fn is_swapped(self) -> bool {
        self.0 & FRAME == SWAPPED
    }
    pub(crate) fn is_zero_page(self) -> bool {
        self.0 & FRAME == ZERO_PAGE
    }
    #[inline]
    pub(crate) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
    #[inline]
    #[must_use]
    pub(crate) fn with(self, flag: u32) -> Self {
        Self(self.0 | flag)
    }
    #[inline]
    #[must_use]
    pub(crate) fn without(self, flag: u32) -> Self {
        Self(self.0 & !flag)
    }
    #[inline]
    pub(crate) fn set_dirty(&mut self) {
        self.0 |= Self::DIRTY;
    }
    #[must_use]
    pub(crate) fn at(self, frame: Frame) -> Self {
        Self(self.0 & !FRAME | (frame.0 + 1))
    }
}

const TABLE: usize = SLOTS as usize;

/// Bitmap of the mapped base pages of a region.
pub(crate) type Present = [u64; 8];

/// Page tables of base pages, by number.
#[derive(Debug)]
pub(crate) struct Tables {
    entries: Vec<Entry>,
    present: Vec<Present>,
    free: Vec<u32>,
}

impl Tables {
    /// Creates an empty set with capacity for `tables` tables. Unused capacity costs no memory.
    pub(crate) fn with_capacity(tables: usize) -> Self {
        Self {
            entries: Vec::with_capacity(tables * TABLE),
            present: Vec::with_capacity(tables),
            free: Vec::new(),
        }
    }
    pub(crate) fn make(&mut self) -> u32 {
        match self.free.pop() {
            Some(table) => table,
            None => {
                let table = self.entries.len() / TABLE;
                self.entries.resize(self.entries.len() + TABLE, Entry::EMPTY);
                self.present.push([0; 8]);
                table as u32
            }
        }
    }
    pub(crate) fn end(&mut self, table: u32) {
        self.table_mut(table).fill(Entry::EMPTY);
        self.present[table as usize] = [0; 8];
        self.free.push(table);
    }
    /// Returns an entry; empty if the table does not exist.
    #[inline(always)]
    pub(crate) fn get(&self, table: u32, slot: u32) -> Entry {
        self.entries.get(table as usize * TABLE + slot as usize).copied().unwrap_or(Entry::EMPTY)
    }
    /// Prefetches the data that a fault reads into the host's caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, table: u32, slot: u32) {
        prefetch_index(&self.entries, table as usize * TABLE + slot as usize);
        prefetch_index(&self.present, table as usize);
    }
    /// Returns the bitmap of mapped base pages; empty without a table.
    #[inline(always)]
    pub(crate) fn present(&self, table: u32) -> &Present {
        self.present.get(table as usize).unwrap_or(&[0; 8])
    }
    #[inline(always)]
    pub(crate) fn present_mut(&mut self, table: u32) -> &mut Present {
        &mut self.present[table as usize]
    }
    #[inline(always)]
    pub(crate) fn is_present(&self, table: u32, slot: u32) -> bool {
        self.present(table)[(slot / 64) as usize] >> (slot % 64) & 1 != 0
    }
    #[inline]
    pub(crate) fn set_present(&mut self, table: u32, slot: u32) {
        self.present_mut(table)[(slot / 64) as usize] |= 1 << (slot % 64);
    }
    #[inline]
    pub(crate) fn clear_present(&mut self, table: u32, slot: u32) {
        self.present_mut(table)[(slot / 64) as usize] &= !(1 << (slot % 64));
    }
    #[inline]
    pub(crate) fn table(&self, table: u32) -> &[Entry] {
        &self.entries[table as usize * TABLE..][..TABLE]
    }
    #[inline]
    pub(crate) fn table_mut(&mut self, table: u32) -> &mut [Entry] {
        &mut self.entries[table as usize * TABLE..][..TABLE]
    }
    #[inline]
    pub(crate) fn entry(&mut self, table: u32, slot: u32) -> &mut Entry {
        &mut self.entries[table as usize * TABLE + slot as usize]
    }
}

const _: () = assert!(size_of::<RegionEntry>() == 16);

// Base pages: map, move, write.

impl Spaces {
    /// Returns the entry of a base page; empty if the region has no table.
    #[inline]
    pub(crate) fn entry(&self, page: Page) -> Entry {
        match self.regions[page.region()].place {
            NO_TABLE => Entry::EMPTY,
            table => self.tables.table(table)[page.slot() as usize],
        }
    }

    /// Returns the entry of a base page; creates the table if needed.
    #[inline]
    pub(super) fn entry_mut(&mut self, page: Page) -> &mut Entry {
        let region = self.regions.extend(page.region());
        if region.place == NO_TABLE {
            region.place = self.tables.make();
        }
        self.tables.entry(region.place, page.slot())
    }

    /// Returns whether a page is mapped as a base page.
    #[inline]
    pub(crate) fn is_present(&self, page: Page) -> bool {
        let region = page.region();
        !self.is_large(region) && self.tables.is_present(self.regions[region].place, page.slot())
    }

    /// Returns the bitmap of mapped base pages of a region without a superpage.
    #[inline]
    pub(crate) fn present(&self, region: Region) -> &Present {
        self.tables.present(self.regions[region].place)
    }

    /// Returns whether a page's entry is empty, in a region with base pages and a table.
    #[inline(always)]
    pub(crate) fn is_empty_beside_others(&self, page: Page) -> bool {
        let region = page.region();
        let place = self.regions[region].place;
        self.kinds[region.index()] & SIZE == BASE
            && place != NO_TABLE
            && self.tables.get(place, page.slot()) == Entry::EMPTY
    }

    /// Returns the entries from a page on, in a region with base pages and a table.
    #[inline]
    pub(crate) fn entries_from(&self, page: Page) -> Option<&[Entry]> {
        let region = page.region();
        let (kind, place) = (self.kinds[region.index()], self.regions[region].place);
        (kind & SIZE == BASE && place != NO_TABLE)
            .then(|| &self.tables.table(place)[page.slot() as usize..])
    }

    /// Returns the number of mapped pages of a region with base pages; `None` if unmapped pages are resident.
    #[inline(always)]
    pub(crate) fn mapped_if_all(&self, region: Region) -> Option<u32> {
        let at = &self.regions[region];
        let mapped = self.tables.present(at.place).iter().map(|word| word.count_ones()).sum();
        (mapped == u32::from(at.resident)).then_some(mapped)
    }

    /// Maps a page with an entry that has a frame or is the zero page.
    #[inline]
    pub(super) fn map_entry(&mut self, page: Page, entry: Entry) {
        let number = page.region();
        *self.entry_mut(page) = entry;
        let region = self.regions.extend(number);
        debug_assert!(!self.tables.is_present(region.place, page.slot()));
        self.tables.set_present(region.place, page.slot());
        if self.kinds[number.index()] & SIZE == CONT {
            // TLB entries of whole runs remain valid.
            self.kinds[number.index()] &= !SIZE;
        }
        if !entry.has(Entry::DIRTY) || entry.has(Entry::COW) {
            region.clean += u16::from(!entry.has(Entry::DIRTY));
            self.kinds[number.index()] |= CHECK;
        }
    }

    #[inline]
    pub(crate) fn map_page(&mut self, page: Page, frame: Frame, dirty: bool) {
        let entry = Entry::new(frame);
        self.map_entry(page, if dirty { entry.with(Entry::DIRTY) } else { entry });
        self.count_resident(page.region(), 1);
    }

    /// Maps `count` pages to the frames from `frame` on, as walked to. Their entries must be empty, in a region with
    /// base pages and a table. Equals [`Self::map_page`] for each page.
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

    pub(crate) fn map_zero_page(&mut self, page: Page) {
        self.map_entry(page, Entry::zero_page());
    }

    pub(crate) fn map_resident(&mut self, page: Page, write: bool) {
        let entry = self.entry(page);
        self.map_entry(page, if write { entry.with(Entry::DIRTY) } else { entry });
    }

    /// Maps the resident unmapped pages of a region among `pages`, as if read, with these flags. Returns their number.
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

    /// Returns whether a fully mapped region has a page that a fault on another page mapped and that was not used
    /// since.
    pub(crate) fn has_unaccessed(&self, region: Region) -> bool {
        self.at(region).has(UNACCESSED)
            && (0..SLOTS)
                .any(|slot| self.entry(Page(region.first().0 + slot)).has(Entry::UNACCESSED))
    }

    /// Gives contiguous frames to pages with empty entries, without mapping them.
    pub(crate) fn make_resident(&mut self, first: Page, frame: Frame, count: u32) {
        for ahead in 0..count {
            *self.entry_mut(Page(first.0 + ahead)) = Entry::new(Frame(frame.0 + ahead));
        }
        self.count_resident(first.region(), count.into());
    }

    /// Records the first write to a mapped page.
    pub(crate) fn set_dirty(&mut self, page: Page) {
        self.entry_mut(page).set_dirty();
        self.region(page.region()).clean -= 1;
    }

    /// Makes a page writable for its only remaining user.
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

    pub(crate) fn move_page(&mut self, page: Page, frame: Frame) {
        let entry = self.entry_mut(page);
        *entry = entry.at(frame);
        self.scatter(page.region());
    }

    /// Checks an access where [`CHECK`] is set. Returns whether it needs no fault.
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
            // Not mapped: the walk finds out and faults once.
            return true;
        }
        let entry = self.entry_mut(page);
        if entry.is_zero_page() {
            // Unmaps the zero page, so that the fault finds the page absent.
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
            // Write-protected by an attempted promotion (FreeBSD): the write faults, and the fault retries the
            // promotion.
            return false;
        }
        // The processor sets the dirty bit.
        entry.set_dirty();
        let at = self.region(region);
        at.clean -= 1;
        if at.clean == 0 && !at.has(COW) {
            self.kinds[region.index()] &= !CHECK;
        }
        true
    }

    /// Invalidates a page in the TLBs. Above [`FLUSH_CEILING`] all is flushed, so no more pages are recorded.
    #[inline]
    pub(crate) fn invalidate_page(&mut self, page: Page) {
        if self.invalidations.len() <= FLUSH_CEILING {
            self.invalidations.push(TlbInvalidation::Page(page.0));
        }
    }

    /// Ends the sharing of TLB entries in a region, because its runs of 16 pages are no longer contiguous or wholly
    /// mapped.
    #[inline]
    pub(super) fn scatter(&mut self, region: Region) {
        if self.kinds[region.index()] & SIZE == CONT {
            self.kinds[region.index()] &= !SIZE;
            self.invalidations.push(TlbInvalidation::Region(region));
        }
    }

    /// Returns an entry; empty if it does not exist.
    #[inline]
    pub(crate) fn get_entry(&self, page: Page) -> Entry {
        self.table_of(page).map_or(Entry::EMPTY, |table| self.tables.get(table, page.slot()))
    }

    /// Prefetches the data of a page's table that faults and discards read into the host's caches.
    #[inline]
    pub(crate) fn prefetch(&self, page: Page) {
        if let Some(table) = self.table_of(page) {
            self.tables.prefetch(table, page.slot());
        }
    }

    /// Returns the `place` of a page's region, if the region has base pages.
    #[inline]
    fn table_of(&self, page: Page) -> Option<u32> {
        let region = page.region();
        let kind = self.kinds.get(region.index())?;
        (kind & LARGE == 0).then(|| self.regions[region].place)
    }
}

// Superpages and runs of 16 pages: map, split, unmap, and tests for contiguity.

impl Spaces {
    /// Maps a region to the 512 frames from `base` on. Its table must be empty or hold these frames.
    pub(crate) fn map_large(&mut self, region: Region, base: Frame, dirty: bool) {
        let resident = i64::from(self.regions[region].resident);
        self.count_resident(region, i64::from(SLOTS) - resident);
        self.count_superpages(region, 1);
        let at = self.region(region);
        let table = std::mem::replace(&mut at.place, base.0);
        at.clean = 0;
        at.flags &= RESERVED | POOL;
        if dirty {
            at.flags |= DIRTY;
        }
        self.kinds[region.index()] = if dirty { LARGE } else { LARGE | CHECK };
        if table != NO_TABLE {
            self.tables.end(table);
            self.invalidations.push(TlbInvalidation::Region(region));
        }
    }

    /// Maps a region to the shared zero superpage. None of it is resident.
    pub(crate) fn map_zeros(&mut self, region: Region) {
        self.map_large(region, Frame(0), false);
        self.mark(region, ZEROS);
        self.count_resident(region, -i64::from(SLOTS));
        self.count_zeros(region, 1);
    }

    /// Makes a region that is mapped as a superpage part of a larger one, if the design has larger ones.
    pub(crate) fn join_larger(&mut self, region: Region) {
        if self.group > 0 {
            let zeros = i64::from(self.regions[region].has(ZEROS));
            self.count_zeros(region, -zeros);
            self.kinds[region.index()] |= HUGE;
            self.count_part(region, 1);
            self.count_zeros(region, zeros);
        }
    }

    /// Makes part of a larger superpage a superpage of one region.
    pub(crate) fn leave_larger(&mut self, region: Region) {
        self.invalidations.push(TlbInvalidation::Region(region));
        self.count_part(region, -1);
        self.kinds[region.index()] = self.kinds[region.index()] & CHECK | LARGE;
    }

    pub(crate) fn base(&self, region: Region) -> Frame {
        debug_assert!(self.is_large(region));
        Frame(self.regions[region].place)
    }

    /// Splits a superpage: maps its pages singly to the same frames.
    pub(crate) fn split(&mut self, region: Region) {
        self.invalidations.push(TlbInvalidation::Region(region));
        self.count_superpages(region, -1);
        let table = self.tables.make();
        let at = self.region(region);
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
        *self.tables.present_mut(table) = [!0; 8];
        for (slot, entry) in (0..).zip(self.tables.table_mut(table)) {
            *entry = flags.at(Frame(base + slot));
        }
        self.kinds[region.index()] = if dirty && !cow { BASE } else { BASE | CHECK };
    }

    /// Unmaps a superpage; the caller frees its frames. A reservation of the region stays.
    pub(crate) fn unmap_large(&mut self, region: Region) {
        let at = self.regions[region];
        if at.has(ZEROS) {
            self.count_zeros(region, -1);
        }
        self.count_superpages(region, -1);
        self.count_part(region, -i64::from(self.is_part(region)));
        self.count_resident(region, -i64::from(at.resident));
        self.invalidations.push(TlbInvalidation::Region(region));
        self.kinds[region.index()] = BASE;
        let at = self.region(region);
        *at = RegionEntry { process: at.process, flags: at.flags & RESERVED, ..RegionEntry::EMPTY };
    }

    /// Makes a superpage writable for its only remaining user.
    pub(crate) fn take_large(&mut self, region: Region) {
        let at = self.region(region);
        at.flags = at.flags & !COW | DIRTY;
        self.kinds[region.index()] &= !CHECK;
    }

    /// Returns whether a region has nothing mapped, or only whole runs of 16.
    pub(crate) fn may_have_runs(&self, region: Region) -> bool {
        self.kinds[region.index()] & SIZE == CONT || *self.present(region) == [0; 8]
    }

    /// Records that all mapped pages of a region are in whole runs of 16.
    pub(crate) fn set_runs(&mut self, region: Region) {
        self.kinds[region.index()] |= CONT;
    }

    /// Tests whether aligned runs of 16 pages may share TLB entries: each run must be wholly mapped or empty, and
    /// contiguous. In a reservation that holds unless a page was copied to another frame.
    pub(crate) fn find_runs(&mut self, region: Region) {
        let at = &self.regions[region];
        if !at.resident.is_multiple_of(16) || self.is_large(region) {
            return;
        }
        let lanes = self
            .present(region)
            .iter()
            .flat_map(|word| (0..4).map(move |lane| (word >> (16 * lane)) as u16));
        let whole = at.resident > 0
            && at.place != NO_TABLE
            && lanes.clone().all(|lane| lane == 0 || lane == !0)
            && lanes.enumerate().all(|(run, lane)| {
                lane == 0 || self.lies_together(Page::new(region, 16 * run as u32), 4)
            });
        let kind = &mut self.kinds[region.index()];
        let new = if whole { *kind & CHECK | CONT } else { *kind & CHECK };
        if *kind & SIZE != new & SIZE {
            *kind = new;
            self.invalidations.push(TlbInvalidation::Region(region));
        }
    }

    /// Returns whether the 2^`order` pages from `first` on, in a region with a table, have contiguous, aligned frames.
    pub(crate) fn lies_together(&self, first: Page, order: u8) -> bool {
        let Some(table) = self.table(first.region()) else { return false };
        let mut frames =
            table[first.slot() as usize..][..1 << order].iter().map(|entry| entry.frame());
        let is_aligned = |frame: &Frame| frame.0.trailing_zeros() >= order.into();
        let first = frames.next().flatten().filter(is_aligned);
        first.is_some_and(|first| {
            (first.0 + 1..).zip(frames).all(|(next, frame)| frame == Some(Frame(next)))
        })
    }

    pub(crate) fn lies_at(&self, region: Region, base: Frame) -> bool {
        if self.is_large(region) {
            return self.base(region) == base;
        }
        self.table(region).is_some_and(|table| {
            (base.0..).zip(table).all(|(frame, entry)| entry.frame() == Some(Frame(frame)))
        })
    }

    pub(crate) fn dirty_map(&self, region: Region) -> Population {
        let mut dirty = [0; 8];
        for (slot, entry) in self.table(region).into_iter().flatten().enumerate() {
            dirty[slot / 64] |= u64::from(entry.has(Entry::DIRTY)) << (slot % 64);
        }
        dirty
    }

    /// Returns whether some pages of a region were written, and whether all were, except perhaps `but`.
    pub(crate) fn is_dirty(&self, region: Region, but: Option<Page>) -> (bool, bool) {
        let at = self.at(region);
        if self.is_large(region) {
            return (at.has(DIRTY), at.has(DIRTY));
        }
        if at.clean == 0 && *self.present(region) == [!0; 8] {
            return (true, true);
        }
        let mut dirty = self.dirty_map(region);
        let is_any = dirty != [0; 8];
        if let Some(page) = but.filter(|page| page.region() == region) {
            dirty[page.slot() as usize / 64] |= 1 << (page.slot() % 64);
        }
        (is_any, dirty == [!0; 8])
    }
}

// Memory that several address spaces map: after a fork, and of shared objects.

impl Spaces {
    /// Shares a page with a child, which maps it `offset` pages further on. A private page is shared until a write.
    /// Returns the shared frame, if any.
    pub(crate) fn share_page(&mut self, page: Page, offset: u32, private: bool) -> Option<Frame> {
        let entry = self.entry(page);
        let twin = Page(page.0 + offset);
        if entry.is_swapped() && private {
            *self.entry_mut(twin) = entry;
            self.swapped += 1;
        }
        let frame = entry.frame()?;
        let (region, child) = (page.region(), twin.region());
        let shared = if private { entry.with(Entry::COW) } else { entry };
        *self.entry_mut(page) = shared;
        if private {
            self.kinds[region.index()] |= CHECK;
            self.region(region).flags |= COW;
        }
        self.map_entry(twin, shared);
        if private {
            self.region(child).flags |= COW;
        }
        self.count_resident(child, 1);
        Some(frame)
    }

    /// Shares a superpage with a child. Returns its first frame, if the superpage has frames of its own.
    pub(crate) fn share_large(&mut self, region: Region, child: Region) -> Option<Frame> {
        self.region(region).flags |= COW;
        self.kinds[region.index()] |= CHECK;
        let at = self.regions[region];
        let process = self.regions[child].process;
        *self.region(child) = RegionEntry {
            process,
            resident: 0,
            flags: at.flags & (DIRTY | COW | POOL | ZEROS),
            ..at
        };
        self.kinds[child.index()] = self.kinds[region.index()];
        self.count_resident(child, i64::from(at.resident));
        self.count_superpages(child, 1);
        self.count_part(child, i64::from(self.is_part(child)));
        if at.has(ZEROS) {
            self.count_zeros(child, 1);
        }
        (!at.has(ZEROS | POOL)).then_some(Frame(at.place))
    }

    /// Adds a mapping of a shared object that begins at page `origin`.
    pub(crate) fn add_to_object(&mut self, object: u32, origin: u32) {
        let places = self.objects.entry(object).or_default();
        if !places.contains(&origin) {
            places.push(origin);
        }
    }

    /// Removes a mapping of the running process from its shared object, when its last part is gone.
    pub(super) fn leave_object(&mut self, mapping: Mapping) {
        let Backing::Shared(object) = mapping.backing else { return };
        let is_part =
            |(_, other): Place| other.backing == mapping.backing && other.origin == mapping.origin;
        if !self.own().mappings().any(is_part)
            && let Some(places) = self.objects.get_mut(&object)
        {
            places.retain(|&place| place != mapping.origin);
        }
    }

    /// Returns the page of another mapping of the same object that has this page in memory.
    pub(crate) fn in_object(&self, page: Page, (_, mapping): Place) -> Option<Page> {
        let Backing::Shared(object) = mapping.backing else { return None };
        let at = page.0 - mapping.origin;
        let places = self.objects.get(&object)?;
        places.iter().find_map(|&origin| {
            let other = Page(origin.saturating_add(at));
            let of_object =
                |(_, found): Place| found.backing == mapping.backing && found.origin == origin;
            let region = other.region();
            let owner = self.regions.get(region);
            let owner = owner.and_then(|region| self.processes.get(&region.process));
            let is_mapped =
                other != page && owner.and_then(|own| own.find(other)).is_some_and(of_object);
            let is_there =
                is_mapped && (self.is_large(region) || self.entry(other).frame().is_some());
            is_there.then_some(other)
        })
    }
}
