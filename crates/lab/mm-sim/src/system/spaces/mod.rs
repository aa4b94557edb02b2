//! All virtual memory of the machine: processes, their mappings, regions, page tables, and what is resident of it.
//!
//! It knows frames by number alone: who else uses one is `super::frames`' matter, and whether it is free is
//! `crate::memory`'s. Nothing here is charged or decided. What must leave the TLBs is noted for the engine.
//!
//! `space` is a process's mappings, `region` the page tables of a region; `pages`, `emptied`, `large` and `shared` change what
//! is mapped, `walk` reads it as the processor does, `accessed` as a daemon does.

mod processes;
pub(crate) mod region;
mod reuse;

use std::collections::BTreeMap;

use machine::{Level, Size};
use tlb_sim::Translate;
use trace::{Access, Backing, Page, Pages, Region, SLOTS};

use region::{
    ACCESSED, BASE, CHECK, CONT, Entry, HUGE, Kind, LARGE, NO_TABLE, NOBODY, QUIET, RegionEntry,
    Regions, SIZE, Tables, UNACCESSED, ZEROS,
};
use reuse::Lines;

/// A TLB invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlbInvalidation {
    /// A base page.
    Page(u32),
    /// A whole region.
    Region(Region),
    /// All entries.
    All,
}

/// Number of pages beyond which a kernel flushes the whole TLB, as that is faster (Linux: 33 pages,
/// `tlb_single_page_flush_ceiling`).
pub(crate) const FLUSH_CEILING: usize = 33;

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
    /// First process and first region of the program; earlier ones belong to the fragmenter.
    first_process: u32,
    first_region: u32,
    /// Resident base pages of the program.
    resident: u64,
    /// Regions of the program mapped as superpages.
    superpages: u64,
    /// Parts of larger superpages among them.
    parts: u64,
    /// Regions of the program mapped as zeros: superpages of their own, and parts of larger ones.
    zeros: (u64, u64),
    /// log2 of the regions per larger superpage.
    group: u32,
    /// Number of swapped-out pages, and the maximum.
    swapped: u64,
    swap: u64,
}

impl Spaces {
    /// No processes, on a machine of `frames` frames. Without `counts_misses`, walks are not counted; `swap` is
    /// in pages. The largest superpages have 2^`group` regions.
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

    /// Starts counting the program's pages.
    pub(crate) fn begin(&mut self, (first_region, first_process): (u32, u32)) {
        (self.first_region, self.first_process) = (first_region, first_process);
        self.lines.restart();
        (self.resident, self.superpages, self.parts) = (0, 0, 0);
        self.zeros = (0, 0);
    }

    /// First region of the program's memory.
    pub(crate) fn first_region(&self) -> u32 {
        self.first_region
    }

    /// The lines of the page table that walks read.
    pub(crate) fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    /// Resident base pages of the program.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    /// Regions of the program mapped as superpages.
    #[inline]
    pub(crate) fn superpages(&self) -> u64 {
        self.superpages
    }

    /// Resident pages of the program that no superpage maps.
    pub(crate) fn base_pages(&self) -> u64 {
        let of_memory = self.superpages - self.zeros.0 - self.zeros.1;
        self.resident.saturating_sub(of_memory * u64::from(SLOTS))
    }

    /// The program's mapped superpages without zero superpages: those of one region, and larger ones.
    #[inline]
    pub(crate) fn superpages_by_size(&self) -> (u64, u64) {
        let (singly, parts) = self.zeros;
        (self.superpages - self.parts - singly, (self.parts - parts) >> self.group)
    }

    /// Number of swapped-out pages.
    pub(crate) fn swapped(&self) -> u64 {
        self.swapped
    }

    /// Number of regions.
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

    /// A region, if it exists.
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

    /// Pending TLB invalidations.
    #[inline]
    pub(crate) fn invalidations(&self) -> &[TlbInvalidation] {
        &self.invalidations
    }

    /// Clears the pending invalidations.
    pub(crate) fn clear_invalidations(&mut self) {
        self.invalidations.clear();
    }

    /// Invalidates all TLB entries.
    pub(crate) fn invalidate_all(&mut self) {
        self.invalidations.push(TlbInvalidation::All);
    }

    /// Grows to cover the regions of `pages`.
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

    /// The aligned regions of the larger superpage around a region.
    pub(crate) fn around(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let first = region.0 >> self.group << self.group;
        (first..first + (1 << self.group)).map(Region)
    }

    /// The regions of the superpage that maps a region.
    pub(crate) fn regions_of(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let group = if self.is_part(region) { self.group } else { 0 };
        let first = region.0 >> group << group;
        (first..first + (1 << group)).map(Region)
    }

    #[inline]
    pub(crate) fn is_ours(&self, process: u32) -> bool {
        process >= self.first_process && process != NOBODY
    }

    /// Adds `pages` resident base pages to a region (negative: removes).
    #[inline]
    fn count_resident(&mut self, region: Region, pages: i64) {
        let at = self.regions.extend(region);
        at.resident = (i64::from(at.resident) + pages) as u16;
        if at.process >= self.first_process {
            self.resident = self.resident.wrapping_add_signed(pages);
        }
    }

    /// Adds `count` mapped superpages to a region's process.
    fn count_superpages(&mut self, region: Region, count: i64) {
        let process = self.regions[region].process;
        if self.is_ours(process) {
            self.superpages = self.superpages.wrapping_add_signed(count);
        }
        if let Some(process) = self.processes.get_mut(&process) {
            process.superpages = process.superpages.wrapping_add_signed(count);
        }
    }

    /// Adds `count` regions mapped as zeros to a process.
    pub(super) fn count_zeros(&mut self, region: Region, count: i64) {
        let is_part = self.is_part(region);
        if self.is_ours(self.regions[region].process) {
            let zeros = if is_part { &mut self.zeros.1 } else { &mut self.zeros.0 };
            *zeros = zeros.wrapping_add_signed(count);
        }
    }

    /// Adds (or removes) one mapped part of larger superpages in a region's process.
    fn count_part(&mut self, region: Region, count: i64) {
        if self.is_ours(self.regions[region].process) {
            self.parts = self.parts.wrapping_add_signed(count);
        }
    }
}

// Address spaces: processes and what they mapped. Page tables are in `region`.

/// A process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Mappings by first page; neither empty nor overlapping.
    mappings: BTreeMap<u32, Mapping>,
    /// Number of mapped superpages.
    superpages: u64,
    /// At a daemon's last look: (cycles of walks, cycles in total).
    overhead: (u64, u64),
}

/// A mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The page after the mapping's last.
    pub end: u32,
    /// Backing.
    pub backing: Backing,
    /// The program's advice: superpages, no superpages, or none.
    pub advised: Option<bool>,
    /// Writable.
    pub writable: bool,
    /// Mapping number in the explicit pool, if the pool reserved superpages for it.
    pub pool: Option<u32>,
    /// First page of the original mapping; parts keep it, so that a page's index in its object is known.
    pub origin: u32,
}

/// A mapping with its first page.
pub(crate) type Place = (u32, Mapping);

impl Process {
    /// All mappings, by address.
    pub(crate) fn mappings(&self) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.iter().map(|(&first, &mapping)| (first, mapping))
    }

    /// The mappings that begin before a page.
    pub(crate) fn mappings_before(&self, page: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.range(..page).map(|(&first, &mapping)| (first, mapping))
    }

    /// The mappings that begin at or after a page.
    pub(crate) fn mappings_from(&self, page: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.range(page..).map(|(&first, &mapping)| (first, mapping))
    }

    /// Whether a mapping begins at a page.
    pub(crate) fn begins_at(&self, page: u32) -> bool {
        self.mappings.contains_key(&page)
    }

    /// Cycles that it waited for walks, and that passed in all, since a daemon last looked.
    pub(crate) fn overhead(&self) -> (u64, u64) {
        self.overhead
    }

    /// The mapping that holds `page`.
    pub(crate) fn find(&self, page: Page) -> Option<Place> {
        let (&first, &mapping) = self.mappings.range(..=page.0).next_back()?;
        (page.0 < mapping.end).then_some((first, mapping))
    }

    /// The mapping that holds `pages` and extends beyond both ends.
    fn strictly_within(&self, pages: Pages) -> Option<Place> {
        let end = pages.end().0;
        self.find(pages.first)
            .filter(|(first, mapping)| *first < pages.first.0 && end < mapping.end)
    }

    /// Splits mappings so that none crosses the ends of `pages`.
    fn cut(&mut self, pages: Pages) {
        for at in [pages.first.0, pages.end().0] {
            if let Some((first, mapping)) = self.find(Page(at))
                && first < at
            {
                self.mappings.insert(at, mapping);
                self.mappings.get_mut(&first).expect("found above").end = at;
            }
        }
    }

    /// Whether any of these pages is mapped.
    pub(crate) fn meets(&self, pages: Pages) -> bool {
        let before = self.mappings.range(..pages.end().0).next_back();
        before.is_some_and(|(_, mapping)| mapping.end > pages.first.0)
    }

    /// The mappings that lie within `pages`, after a cut.
    fn within(&self, pages: Pages) -> Vec<Place> {
        let range = pages.first.0..pages.end().0;
        self.mappings.range(range).map(|(&first, &mapping)| (first, mapping)).collect()
    }

    /// Merges identical neighbours over and beside `pages`, as kernels do.
    fn join(&mut self, pages: Pages) {
        for at in [pages.end().0, pages.first.0] {
            let Some(&right) = self.mappings.get(&at) else { continue };
            let Some((&first, &left)) = self.mappings.range(..at).next_back() else { continue };
            if left.end == at && (Mapping { end: right.end, ..left }) == right {
                self.mappings.remove(&at);
                self.mappings.get_mut(&first).expect("found above").end = right.end;
            }
        }
    }
}

impl Mapping {
    /// Whether the 512 pages from `window` on lie in the mapping, which begins at `first`.
    pub(crate) fn holds_window(&self, first: u32, window: u32) -> bool {
        first <= window && window + trace::SLOTS <= self.end
    }
    /// Whether the mapping is anonymous memory.
    pub(crate) fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Anonymous | Backing::Heap)
    }
}

// The page tables as the processor reads them: a stream's accesses through the TLB, up to where one needs attention.
//
// A hit reads the region's one byte and the TLB, nothing else; a walk reads the region's line.

/// Why the loop was left, and at which access.
pub(crate) enum Attention {
    /// All accesses are done.
    None,
    /// The page is not mapped.
    Absent(usize),
    /// The write must be checked.
    Check(usize),
}

/// Superpages as the TLB sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Superpage {
    /// Base pages of one that one entry translates: for those the filter takes any page.
    pub same: u32,
    /// log2 of the regions of one that has several, where the TLB has no size for it of its own: its page's number is that
    /// of the superpage.
    pub group: u32,
    /// The TLB's size for larger superpages.
    pub size: Size,
}

impl Superpage {
    /// What the TLB is asked for, of a page of a region of this kind.
    #[inline(always)]
    pub(crate) fn of(self, page: u32, kind: Kind) -> (u32, Size) {
        match kind & SIZE {
            HUGE => (page >> self.group, self.size),
            other => (page, size_of(other)),
        }
    }
}

/// The page size of a kind, for the TLB.
const fn size_of(kind: Kind) -> Size {
    match kind & SIZE {
        BASE => Size::Base,
        CONT => Size::Cont,
        LARGE => Size::Large,
        // See `Superpage::of`; named so that the numbers are those of `Size` and there is nothing to do.
        _ => Size::Huge,
    }
}

impl Spaces {
    /// Everything that is a hit, or a walk to a page that is mapped. With `sample`, entries are marked accessed and
    /// walks counted.
    #[inline(always)]
    pub(crate) fn walk<T: Translate>(
        &mut self,
        tlb: &mut T,
        last: &mut u32,
        accesses: &[Access],
        from: usize,
        sample: bool,
        superpage: Superpage,
    ) -> Attention {
        let Self { kinds, regions, tables, misses, lines, .. } = self;
        let kinds = &mut kinds[..];
        let mut previous = *last;
        for (ahead, access) in accesses[from..].iter().enumerate() {
            let at = from + ahead;
            let access = access.0;
            // The same page again, read, or written after a write: the first-level TLB has it at its front.
            if access | (previous & Access::WRITE) == previous {
                continue;
            }
            let page = Page(access & !Access::WRITE);
            let region = page.region();
            let Some(kind_of) = kinds.get_mut(region.index()) else {
                *last = previous;
                return Attention::Absent(at);
            };
            let kind = *kind_of;
            if kind & CHECK != 0 && access & Access::WRITE != 0 {
                *last = previous;
                return Attention::Check(at);
            }
            // The same superpage again is a hit too.
            if kind & LARGE != 0 && (page.0 ^ previous & !Access::WRITE) < superpage.same {
                previous = access;
                continue;
            }
            let (number, size) = superpage.of(page.0, kind);
            if tlb.look_up(number, size) != Level::Walk {
                previous = access;
                continue;
            }
            if kind & LARGE == 0 {
                lines.read(page, tlb);
            }
            if kind & QUIET == 0 {
                let found = regions.extend(region);
                let large = kind & LARGE != 0;
                if !large && !tables.is_present(found.place, page.slot()) {
                    *last = previous;
                    return Attention::Absent(at);
                }
                found.flags |= ACCESSED;
                let noted = found.flags & UNACCESSED != 0 && !large;
                if noted {
                    let entry = tables.entry(found.place, page.slot());
                    *entry = entry.without(Entry::UNACCESSED);
                }
                if sample && !large {
                    let entry = tables.entry(found.place, page.slot());
                    *entry = entry.with(Entry::ACCESSED);
                    if let Some(misses) = misses {
                        misses.count(page);
                    }
                } else if !noted && (large || *tables.present(found.place) == [!0; 8]) {
                    *kind_of |= QUIET;
                }
            }
            previous = access;
        }
        *last = previous;
        Attention::None
    }

    /// Marks a region accessed by a walk.
    pub(crate) fn walked(&mut self, region: Region) {
        self.region(region).flags |= ACCESSED;
    }
}

// Walks of the page table, counted by runs of 16 base pages (64 KiB): TLB misses, as a profiler samples them. Each is
// counted, where perf would take one of every N.

/// Number of runs of 16 base pages per region.
pub(crate) const RUNS: usize = 32;

/// Counts of walks to base pages. Walks that found no page are faults, and not counted.
#[derive(Debug, Default)]
pub(crate) struct Misses {
    /// Counts since the window began, by run.
    now: Vec<u32>,
    /// A moving average over windows, by run.
    average: Vec<u32>,
    /// Counts before `now`, by region: for a profile.
    before: Option<Vec<u64>>,
}

impl Misses {
    /// Grows to this number of regions.
    pub(crate) fn cover(&mut self, regions: usize) {
        self.now.resize(regions * RUNS, 0);
        self.average.resize(regions * RUNS, 0);
    }

    /// Counts a walk to a page.
    #[inline(always)]
    pub(crate) fn count(&mut self, page: Page) {
        if let Some(now) = self.now.get_mut((page.0 >> 4) as usize) {
            *now = now.saturating_add(1);
        }
    }

    /// Starts a window.
    pub(crate) fn clear(&mut self) {
        self.now.fill(0);
    }

    /// Ends a window, which weighs `newest` percent.
    pub(crate) fn sample(&mut self, newest: u32) {
        for (average, now) in self.average.iter_mut().zip(&self.now) {
            let old = u64::from(*average) * u64::from(100 - newest);
            *average = ((old + u64::from(*now) * u64::from(newest)) / 100) as u32;
        }
    }

    /// Counts for a profile of this number of regions only.
    pub(crate) fn for_profile(regions: usize) -> Self {
        let mut misses = Self { before: Some(Vec::new()), ..Self::default() };
        misses.cover(regions);
        misses
    }

    /// Whether the counts are for a profile.
    pub(crate) fn is_for_profile(&self) -> bool {
        self.before.is_some()
    }

    /// Each walk so far stood for `weight`, if it is for a profile. Returns the walks to each region.
    pub(crate) fn bank(&mut self, weight: u32) -> &[u64] {
        let Some(before) = &mut self.before else { return &[] };
        let regions = self.now.chunks(RUNS);
        before.resize(regions.len(), 0);
        for (sum, runs) in before.iter_mut().zip(regions) {
            *sum += runs.iter().map(|&run| u64::from(run)).sum::<u64>() * u64::from(weight);
        }
        self.now.fill(0);
        before
    }

    /// The average of `count` runs from one on.
    pub(crate) fn average(&self, first: usize, count: usize) -> u32 {
        let runs = self.average.get(first..first + count).unwrap_or_default();
        runs.iter().fold(0, |sum, run| sum.saturating_add(*run))
    }
}

// What mappings must be like: for tests, and once at the end of a run in debug builds.

impl Spaces {
    /// Mappings are neither empty nor overlapping, lie in regions of their process, and shared objects know
    /// where they are mapped.
    pub(crate) fn verify_mappings(&self) -> Result<(), String> {
        for (number, process) in &self.processes {
            let mut end = 0;
            for (&first, mapping) in &process.mappings {
                let name = format!("mapping {first}..{} of process {number}", mapping.end);
                if first < end || mapping.end <= first {
                    return Err(format!("{name} is empty or overlaps another"));
                }
                end = mapping.end;
                for region in (Pages { first: Page(first), count: end - first }).regions() {
                    let owner = self.regions.get(region).map(|at| at.process);
                    if owner != Some(*number) {
                        return Err(format!("{name}: {region:?} is of {owner:?}"));
                    }
                }
                let origin = mapping.origin;
                let known = |places: &Vec<u32>| places.contains(&origin);
                if let Backing::Shared(object) = mapping.backing
                    && !self.objects.get(&object).is_some_and(known)
                {
                    return Err(format!("{name}: object {object} does not know it"));
                }
            }
        }
        Ok(())
    }

    /// What is counted: of each process, and of the program, for which so many pages should be swapped out.
    pub(crate) fn verify_counts(&self, swapped: u64) -> Result<(), String> {
        let (mut resident, mut superpages, mut parts) = (0, 0, 0);
        let mut zeros = (0, 0);
        let mut by_process = BTreeMap::<u32, u64>::new();
        for (region, at) in self.regions() {
            if at.process >= self.first_process {
                resident += u64::from(at.resident);
            }
            if self.is_large(region) {
                superpages += u64::from(self.is_ours(at.process));
                parts += u64::from(self.is_ours(at.process) && self.is_part(region));
                if at.has(ZEROS) && self.is_ours(at.process) {
                    *(if self.is_part(region) { &mut zeros.1 } else { &mut zeros.0 }) += 1;
                }
                *by_process.entry(at.process).or_default() += 1;
            }
        }
        let kept = (self.resident, self.superpages, self.parts, self.swapped);
        if self.zeros != zeros {
            return Err(format!("{zeros:?} regions of zeros; kept {:?}", self.zeros));
        }
        if kept != (resident, superpages, parts, swapped) {
            return Err(format!(
                "{resident} resident, {superpages} superpages, {parts} of them parts, {swapped} swapped; kept {kept:?}"
            ));
        }
        for (number, process) in &self.processes {
            let counted = by_process.remove(number).unwrap_or(0);
            if process.superpages != counted {
                let kept = process.superpages;
                return Err(format!("process {number} has {counted} superpages, kept {kept}"));
            }
        }
        match by_process.into_keys().next() {
            Some(number) => Err(format!("process {number} is gone and has a superpage mapped")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod misses_tests {
    use super::*;

    #[test]
    fn windows_weigh_as_they_are_told() {
        let mut misses = Misses::default();
        misses.cover(2);
        (0..100).for_each(|_| misses.count(Page(17)));
        misses.count(Page(512));
        misses.count(Page(99_999));
        misses.sample(50);
        assert_eq!((misses.average(0, RUNS), misses.average(1, 1)), (50, 50));
        misses.clear();
        (0..10).for_each(|_| misses.count(Page(0)));
        misses.sample(50);
        assert_eq!(
            [misses.average(0, RUNS), misses.average(0, 1), misses.average(1, 1)],
            [30, 5, 25]
        );
        assert_eq!((misses.average(RUNS, RUNS), misses.average(9 * RUNS, RUNS)), (0, 0));
    }
}
