//! Page tables: what is mapped in each region, and where its frames are.
//!
//! A region is 512 base pages of one process, what one superpage can back. `kinds` (one byte each) is
//! all that the path of a TLB hit reads. A [`RegionEntry`] is read on a walk. Which of its base pages are mapped (a bitmap)
//! and where their frames lie (one entry of four bytes each) is known to the [`Tables`], which exist only for regions
//! that have base pages.

use memory::Frame;
use prefetch_index::prefetch_index;
use trace::{Region, SLOTS};

use crate::memory;

/// The byte of a region that the path of a TLB hit reads: a page size in the low bits, and [`CHECK`].
pub(crate) type Kind = u8;

/// Base pages, or nothing.
pub(crate) const BASE: Kind = 0;
/// Runs of 16 base pages, contiguous and aligned, each of which one TLB entry may hold.
pub(crate) const CONT: Kind = 1;
/// One superpage. The bit tells superpages from base pages.
pub(crate) const LARGE: Kind = 2;
/// A part of a superpage of several regions.
pub(crate) const HUGE: Kind = 3;
/// The page size of a kind. The numbers are those of `machine::Size`.
pub(crate) const SIZE: Kind = 3;
/// Writes must be looked at: a page may be written for the first time, or be shared, or be zeros.
pub(crate) const CHECK: Kind = 4;
/// A walk has nothing to look at and nothing to note: all pages are mapped, and the region was walked to. Only
/// the engine sets it; [`Regions::edit`] takes it away.
pub(crate) const QUIET: Kind = 8;

/// A region's mapping. 16 bytes: what costs more is kept where there are base pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionEntry {
    /// The number of its table; under a superpage its first frame.
    pub place: u32,
    /// The process it belongs to; [`NOBODY`] before it is first mapped.
    pub process: u32,
    /// Base pages that have a frame, mapped or not.
    pub resident: u16,
    /// [`ACCESSED`] and its like.
    pub flags: u16,
    /// Recent access coverage, as a daemon saw it: pages of 512, a moving average.
    pub coverage: u16,
    /// Mapped base pages that were not written since they were mapped.
    pub clean: u16,
}

/// No process.
pub(crate) const NOBODY: u32 = u32::MAX;
/// No table.
pub(crate) const NO_TABLE: u32 = u32::MAX;

/// Walked to since a daemon last looked.
pub(crate) const ACCESSED: u16 = 1;
/// The superpage is mapped writable and dirty.
pub(crate) const DIRTY: u16 = 2;
/// Frames are shared after a fork: a write copies.
pub(crate) const COW: u16 = 4;
/// Its frames lie in a reservation.
pub(crate) const RESERVED: u16 = 8;
/// It is on a list of candidates.
pub(crate) const LISTED: u16 = 16;
/// From an explicit pool.
pub(crate) const POOL: u16 = 32;
/// The shared superpage of zeros.
pub(crate) const ZEROS: u16 = 64;
/// Its pages were made read-only by the program.
pub(crate) const PROTECTED: u16 = 128;
/// A superpage that is mapped by its base pages for a while, to see which are accessed.
pub(crate) const WATCHED: u16 = 256;
/// Entries of it may be [`Entry::UNACCESSED`].
pub(crate) const UNACCESSED: u16 = 512;

impl RegionEntry {
    pub(crate) const EMPTY: Self =
        Self { place: NO_TABLE, process: NOBODY, resident: 0, flags: 0, coverage: 0, clean: 0 };

    #[inline]
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// All regions. Whoever may change one takes [`QUIET`] away, hence no `IndexMut`.
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
    /// Makes it larger.
    pub(crate) fn grow(&mut self, regions: usize) {
        self.0.resize(regions, RegionEntry::EMPTY);
    }
    /// A region, to change it.
    #[inline(always)]
    pub(crate) fn edit(&mut self, kinds: &mut [Kind], region: Region) -> &mut RegionEntry {
        kinds[region.index()] &= !QUIET;
        &mut self.0[region.index()]
    }
    /// A region, to change what a walk does not look at, or to map more of it.
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

/// A base page's entry: a frame or a mark, and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(pub(super) u32);

const FRAME: u32 = (1 << 28) - 1;
const SWAPPED: u32 = FRAME;
const ZERO_PAGE: u32 = FRAME - 1;

impl Entry {
    pub(crate) const EMPTY: Self = Self(0);
    /// Written since it was mapped.
    pub(crate) const DIRTY: u32 = 1 << 28;
    /// Walked to since a daemon last looked (kept only for designs that sample).
    pub(crate) const ACCESSED: u32 = 1 << 29;
    /// Shared after a fork: a write copies.
    pub(crate) const COW: u32 = 1 << 30;
    /// A fault on another page mapped it, and it was not walked to since (kept only for designs that look).
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
    /// Marks it written.
    #[inline]
    pub(crate) fn set_dirty(&mut self) {
        self.0 |= Self::DIRTY;
    }
    /// The same flags, another frame.
    #[must_use]
    pub(crate) fn at(self, frame: Frame) -> Self {
        Self(self.0 & !FRAME | (frame.0 + 1))
    }
}

/// Entries of a table.
const TABLE: usize = SLOTS as usize;

/// Which base pages of a region are mapped.
pub(crate) type Present = [u64; 8];

/// The page tables of base pages, by number.
#[derive(Debug)]
pub(crate) struct Tables {
    entries: Vec<Entry>,
    present: Vec<Present>,
    free: Vec<u32>,
}

impl Tables {
    /// None yet. So many are laid out without moving what there is; those that are not made cost no memory.
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
    /// An entry, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, table: u32, slot: u32) -> Entry {
        self.entries.get(table as usize * TABLE + slot as usize).copied().unwrap_or(Entry::EMPTY)
    }
    /// Brings what is asked at a fault into the host's caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, table: u32, slot: u32) {
        prefetch_index(&self.entries, table as usize * TABLE + slot as usize);
        prefetch_index(&self.present, table as usize);
    }
    /// Which base pages are mapped; none without a table.
    #[inline(always)]
    pub(crate) fn present(&self, table: u32) -> &Present {
        self.present.get(table as usize).unwrap_or(&[0; 8])
    }
    #[inline(always)]
    pub(crate) fn present_mut(&mut self, table: u32) -> &mut Present {
        &mut self.present[table as usize]
    }
    /// Whether a base page is mapped; none is without a table.
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
