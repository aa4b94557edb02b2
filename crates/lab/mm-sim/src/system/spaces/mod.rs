//! All virtual memory of the machine: processes, their mappings, regions, page tables, and what is resident of it.
//!
//! It knows frames by number alone: who else uses one is `super::frames`' matter, and whether it is free is
//! `crate::memory`'s. Nothing here is charged or decided. What must leave the TLBs is noted for the engine.
//!
//! `space` is a process's mappings, `region` the page tables of a region; `pages`, `emptied`, `large` and `shared` change what
//! is mapped, `walk` reads it as the processor does, `accessed` as a daemon does.

mod accessed;
mod emptied;
mod large;
mod misses;
mod pages;
mod processes;
pub(crate) mod region;
mod reuse;
mod shared;
pub(crate) mod space;
mod verify;
pub(crate) mod walk;

use std::collections::BTreeMap;

use trace::{Pages, Region, SLOTS};

use misses::Misses;
use region::{
    BASE, Entry, HUGE, Kind, LARGE, NO_TABLE, NOBODY, RegionEntry, Regions, SIZE, Tables,
};
use reuse::Lines;
use space::{Place, Process};

/// What must leave the TLBs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlbInvalidation {
    /// A base page.
    Page(u32),
    /// All of a region.
    Region(Region),
    /// Everything.
    All,
}

/// Beyond so many, emptying the TLB is what a kernel does, and quicker (Linux: 33 pages,
/// `tlb_single_page_flush_ceiling`).
pub(crate) const MANY: usize = 33;

/// The virtual memory of all processes.
#[derive(Debug)]
pub(crate) struct Spaces {
    kinds: Vec<Kind>,
    regions: Regions,
    tables: Tables,
    processes: BTreeMap<u32, Process>,
    running: u32,
    /// The mapping of the last fault.
    last: Option<Place>,
    /// First pages of the mappings of each shared object.
    objects: BTreeMap<u32, Vec<u32>>,
    /// Walks, for designs that ask for them.
    misses: Option<Misses>,
    /// Lines of the page table that walks read.
    lines: Lines,
    invalidations: Vec<TlbInvalidation>,
    /// The first process of the program and its first region: those before are the fragmenter's.
    first_process: u32,
    first_region: u32,
    /// Base pages resident for the program.
    resident: u64,
    /// Regions mapped as superpages for the program.
    superpages: u64,
    /// Of these, those that are parts of larger ones.
    parts: u64,
    /// Regions of the program mapped as zeros: superpages of their own, and parts of larger ones.
    zeros: (u64, u64),
    /// log2 of the regions of a larger one.
    group: u32,
    /// Pages swapped out now, and how many fit.
    swapped: u64,
    swap: u64,
}

impl Spaces {
    /// No process yet, on a machine of so many frames. Without `counts_misses` nobody asks for walks; `swap` is in pages.
    /// The largest superpages have 2^`group` regions.
    pub(crate) fn new(frames: u32, counts_misses: bool, swap: u64, group: u32) -> Self {
        Self {
            kinds: Vec::new(),
            regions: Regions::default(),
            tables: Tables::with_capacity((frames / SLOTS) as usize),
            processes: BTreeMap::new(),
            running: NOBODY,
            last: None,
            objects: BTreeMap::new(),
            misses: counts_misses.then(Misses::default),
            lines: Lines::default(),
            invalidations: Vec::new(),
            first_process: 0,
            first_region: 0,
            resident: 0,
            superpages: 0,
            parts: 0,
            zeros: (0, 0),
            group,
            swapped: 0,
            swap,
        }
    }

    /// From here on it is the program whose pages are counted.
    pub(crate) fn begin(&mut self, (first_region, first_process): (u32, u32)) {
        (self.first_region, self.first_process) = (first_region, first_process);
        self.lines.restart();
        (self.resident, self.superpages, self.parts) = (0, 0, 0);
        self.zeros = (0, 0);
    }

    /// Where the program's memory begins.
    pub(crate) fn first_region(&self) -> u32 {
        self.first_region
    }

    /// The lines of the page table that walks read.
    pub(crate) fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    /// Base pages resident for the program.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    /// Regions mapped as superpages for the program.
    #[inline]
    pub(crate) fn superpages(&self) -> u64 {
        self.superpages
    }

    /// Those of them that no superpage maps.
    pub(crate) fn base_pages(&self) -> u64 {
        let of_memory = self.superpages - self.zeros.0 - self.zeros.1;
        self.resident.saturating_sub(of_memory * u64::from(SLOTS))
    }

    /// Superpages of memory mapped for the program, not of zeros: those of one region, and larger ones.
    #[inline]
    pub(crate) fn superpages_by_size(&self) -> (u64, u64) {
        let (singly, parts) = self.zeros;
        (self.superpages - self.parts - singly, (self.parts - parts) >> self.group)
    }

    /// Pages that are swapped out.
    pub(crate) fn swapped(&self) -> u64 {
        self.swapped
    }

    /// How many regions there are.
    pub(crate) fn region_count(&self) -> u32 {
        self.regions.len() as u32
    }

    /// All regions, with their numbers.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (Region, &RegionEntry)> {
        (0..).map(Region).zip(self.regions.iter())
    }

    /// A region.
    #[inline(always)]
    pub(crate) fn at(&self, region: Region) -> &RegionEntry {
        &self.regions[region]
    }

    /// A region, if there is one of that number.
    pub(crate) fn get(&self, region: Region) -> Option<&RegionEntry> {
        self.regions.get(region)
    }

    /// A region's kind.
    #[inline(always)]
    pub(crate) fn kind(&self, region: Region) -> Kind {
        self.kinds[region.index()]
    }

    /// Sets a flag of a region.
    pub(crate) fn mark(&mut self, region: Region, flag: u16) {
        self.region(region).flags |= flag;
    }

    /// Clears a flag of a region.
    pub(crate) fn unmark(&mut self, region: Region, flag: u16) {
        self.region(region).flags &= !flag;
    }

    /// The entries of a region with base pages, if it has a table.
    #[inline]
    pub(crate) fn table(&self, region: Region) -> Option<&[Entry]> {
        let place = self.regions[region].place;
        (place != NO_TABLE && !self.is_large(region)).then(|| self.tables.table(place))
    }

    /// What must leave the TLBs since it was last taken note of.
    #[inline]
    pub(crate) fn invalidations(&self) -> &[TlbInvalidation] {
        &self.invalidations
    }

    /// All of that left them.
    pub(crate) fn clear_invalidations(&mut self) {
        self.invalidations.clear();
    }

    /// All entries must leave the TLBs.
    pub(crate) fn invalidate_all(&mut self) {
        self.invalidations.push(TlbInvalidation::All);
    }

    /// Grows so that it covers the regions of `pages`.
    pub(crate) fn cover(&mut self, pages: Pages) {
        let regions = ((pages.end().0).div_ceil(SLOTS) + 1) as usize;
        if regions > self.regions.len() {
            self.regions.grow(regions);
            self.kinds.resize(regions, BASE);
            if let Some(misses) = &mut self.misses {
                misses.cover(regions);
            }
        }
    }

    #[inline]
    fn region(&mut self, region: Region) -> &mut RegionEntry {
        self.regions.edit(&mut self.kinds, region)
    }

    #[inline]
    pub(crate) fn is_large(&self, region: Region) -> bool {
        self.kinds[region.index()] & LARGE != 0
    }

    /// Whether a region is a part of a larger superpage.
    #[inline]
    pub(crate) fn is_part(&self, region: Region) -> bool {
        self.kinds.get(region.index()).is_some_and(|kind| kind & SIZE == HUGE)
    }

    /// The aligned regions around one that a larger superpage has.
    pub(crate) fn around(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let first = region.0 >> self.group << self.group;
        (first..first + (1 << self.group)).map(Region)
    }

    /// The regions of the superpage that a region is mapped by.
    pub(crate) fn regions_of(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let group = if self.is_part(region) { self.group } else { 0 };
        let first = region.0 >> group << group;
        (first..first + (1 << group)).map(Region)
    }

    #[inline]
    pub(crate) fn is_ours(&self, process: u32) -> bool {
        process >= self.first_process && process != NOBODY
    }

    /// `pages` more base pages (fewer, if negative) are resident in a region.
    #[inline]
    fn count_resident(&mut self, region: Region, pages: i64) {
        let at = self.regions.extend(region);
        at.resident = (i64::from(at.resident) + pages) as u16;
        if at.process >= self.first_process {
            self.resident = self.resident.wrapping_add_signed(pages);
        }
    }

    /// `count` more superpages are mapped in a region's process.
    fn count_superpages(&mut self, region: Region, count: i64) {
        let process = self.regions[region].process;
        if self.is_ours(process) {
            self.superpages = self.superpages.wrapping_add_signed(count);
        }
        if let Some(process) = self.processes.get_mut(&process) {
            process.superpages = process.superpages.wrapping_add_signed(count);
        }
    }

    /// `count` more regions of a process are mapped as zeros.
    pub(super) fn count_zeros(&mut self, region: Region, count: i64) {
        let is_part = self.is_part(region);
        if self.is_ours(self.regions[region].process) {
            let zeros = if is_part { &mut self.zeros.1 } else { &mut self.zeros.0 };
            *zeros = zeros.wrapping_add_signed(count);
        }
    }

    /// One part more (or less) of larger superpages is mapped in a region's process.
    fn count_part(&mut self, region: Region, count: i64) {
        if self.is_ours(self.regions[region].process) {
            self.parts = self.parts.wrapping_add_signed(count);
        }
    }
}
