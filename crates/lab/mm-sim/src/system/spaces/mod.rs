//! The virtual memory of the machine: processes, mappings, regions, page tables, and their resident pages.
//!
//! This module knows frames only by number. `super::frames` records further users of frames, and `crate::memory` which
//! frames are free. This module decides and charges nothing. It records TLB invalidations for the engine.
//!
//! `processes` has the mappings of processes, `region` the page tables, and `reuse` samples of walks and of accesses.

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlbInvalidation {
    Page(u32),
    Region(Region),
    All,
}

/// Maximum number of pages to invalidate singly; above it a kernel flushes the whole TLB, which is faster (Linux: 33
/// pages, `tlb_single_page_flush_ceiling`).
pub(crate) const FLUSH_CEILING: usize = 33;

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
    /// Processes with a mapping of each fork tree.
    forks: Vec<Vec<u32>>,
    /// Walks by address, for designs or profiles that need them.
    misses: Option<Misses>,
    /// Accessed pages of each region in the middle of the window, until they are counted at its end.
    halves: Vec<u16>,
    /// Cache lines of the page tables that walks read.
    lines: Lines,
    invalidations: Vec<TlbInvalidation>,
    /// First process number of the program. Smaller numbers belong to the fragmenter.
    first_process: u32,
    /// First region number of the program. Smaller numbers belong to the fragmenter.
    first_region: u32,
    /// Resident base pages of the program.
    resident: u64,
    /// Regions of the program mapped as superpages.
    superpages: u64,
    /// Parts of larger superpages among `superpages`.
    parts: u64,
    /// Regions of the program mapped to zeros: by zero superpages of one region, and as parts of larger ones.
    zeros: (u64, u64),
    /// log2 of the regions per larger superpage.
    group: u32,
    /// Number of swapped-out pages.
    swapped: u64,
    /// Maximum number of swapped-out pages.
    swap: u64,
}

impl Spaces {
    /// Creates an empty state on a machine of `frames` frames. Walks are counted only with `counts_misses`. `swap` is
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
            forks: Vec::new(),
            halves: Vec::new(),
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

    /// Resets the counts at the program's start.
    pub(crate) fn begin(&mut self, (first_region, first_process): (u32, u32)) {
        (self.first_region, self.first_process) = (first_region, first_process);
        self.lines.restart();
        (self.resident, self.superpages, self.parts) = (0, 0, 0);
        self.zeros = (0, 0);
    }

    pub(crate) fn first_region(&self) -> u32 {
        self.first_region
    }

    pub(crate) fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    #[inline]
    pub(crate) fn superpages(&self) -> u64 {
        self.superpages
    }

    /// Returns the number of resident pages of the program outside superpages.
    pub(crate) fn base_pages(&self) -> u64 {
        let of_memory = self.superpages - self.zeros.0 - self.zeros.1;
        self.resident.saturating_sub(of_memory * u64::from(SLOTS))
    }

    /// Returns the numbers of the program's superpages without zero superpages: those of one region, and larger ones.
    #[inline]
    pub(crate) fn superpages_by_size(&self) -> (u64, u64) {
        let (singly, parts) = self.zeros;
        (self.superpages - self.parts - singly, (self.parts - parts) >> self.group)
    }

    pub(crate) fn swapped(&self) -> u64 {
        self.swapped
    }

    pub(crate) fn region_count(&self) -> u32 {
        self.regions.len() as u32
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = (Region, &RegionEntry)> {
        (0..).map(Region).zip(self.regions.iter())
    }

    #[inline(always)]
    pub(crate) fn at(&self, region: Region) -> &RegionEntry {
        &self.regions[region]
    }

    pub(crate) fn get(&self, region: Region) -> Option<&RegionEntry> {
        self.regions.get(region)
    }

    #[inline(always)]
    pub(crate) fn kind(&self, region: Region) -> Kind {
        self.kinds[region.index()]
    }

    pub(crate) fn mark(&mut self, region: Region, flag: u16) {
        self.region(region).flags |= flag;
    }

    pub(crate) fn unmark(&mut self, region: Region, flag: u16) {
        self.region(region).flags &= !flag;
    }

    /// Returns the entries of a region with base pages, if it has a table.
    #[inline]
    pub(crate) fn table(&self, region: Region) -> Option<&[Entry]> {
        let place = self.regions[region].place;
        (place != NO_TABLE && !self.is_large(region)).then(|| self.tables.table(place))
    }

    #[inline]
    pub(crate) fn invalidations(&self) -> &[TlbInvalidation] {
        &self.invalidations
    }

    pub(crate) fn clear_invalidations(&mut self) {
        self.invalidations.clear();
    }

    pub(crate) fn invalidate_all(&mut self) {
        self.invalidations.push(TlbInvalidation::All);
    }

    /// Grows the tables to cover the regions of `pages`.
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

    #[inline]
    pub(crate) fn is_part(&self, region: Region) -> bool {
        self.kinds.get(region.index()).is_some_and(|kind| kind & SIZE == HUGE)
    }

    /// Returns the aligned group of regions around a region, as large as a larger superpage.
    pub(crate) fn around(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let first = region.0 >> self.group << self.group;
        (first..first + (1 << self.group)).map(Region)
    }

    /// Returns the regions of the superpage that maps a region.
    pub(crate) fn regions_of(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let group = if self.is_part(region) { self.group } else { 0 };
        let first = region.0 >> group << group;
        (first..first + (1 << group)).map(Region)
    }

    #[inline]
    pub(crate) fn is_ours(&self, process: u32) -> bool {
        process >= self.first_process && process != NOBODY
    }

    /// Adds `pages` resident base pages to a region; negative removes.
    #[inline]
    fn count_resident(&mut self, region: Region, pages: i64) {
        let at = self.regions.extend(region);
        at.resident = (i64::from(at.resident) + pages) as u16;
        if at.process >= self.first_process {
            self.resident = self.resident.wrapping_add_signed(pages);
        }
    }

    /// Adds `count` mapped superpages to a region's process; negative removes.
    fn count_superpages(&mut self, region: Region, count: i64) {
        let process = self.regions[region].process;
        if self.is_ours(process) {
            self.superpages = self.superpages.wrapping_add_signed(count);
        }
        if let Some(process) = self.processes.get_mut(&process) {
            process.superpages = process.superpages.wrapping_add_signed(count);
        }
    }

    /// Adds `count` zero-mapped regions to the program's count; negative removes.
    pub(super) fn count_zeros(&mut self, region: Region, count: i64) {
        let is_part = self.is_part(region);
        if self.is_ours(self.regions[region].process) {
            let zeros = if is_part { &mut self.zeros.1 } else { &mut self.zeros.0 };
            *zeros = zeros.wrapping_add_signed(count);
        }
    }

    /// Adds `count` mapped parts of larger superpages to the program's count; negative removes.
    fn count_part(&mut self, region: Region, count: i64) {
        if self.is_ours(self.regions[region].process) {
            self.parts = self.parts.wrapping_add_signed(count);
        }
    }
}

// Address spaces: processes and their mappings.

#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Mappings by first page, non-empty and disjoint.
    mappings: BTreeMap<u32, Mapping>,
    superpages: u64,
    /// At a daemon's last sample: (cycles of walks, total cycles).
    overhead: (u64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The page after the mapping's last.
    pub end: u32,
    /// Backing.
    pub backing: Backing,
    /// Advice of the program: use superpages (`true`), do not (`false`), or none.
    pub advised: Option<bool>,
    /// Whether the mapping is writable.
    pub writable: bool,
    /// Number of the mapping in the explicit pool, if the pool backs it.
    pub pool: Option<u32>,
    /// First page of the original mapping. Parts keep it, because it determines a page's index in its object.
    pub origin: u32,
    /// Number of the fork tree of private memory that had pages when its process forked.
    pub fork: Option<u32>,
    /// Whether a page was ever swapped out.
    pub was_swapped: bool,
}

/// A mapping, with its first page.
pub(crate) type Place = (u32, Mapping);

impl Process {
    pub(crate) fn mappings(&self) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.iter().map(|(&first, &mapping)| (first, mapping))
    }

    pub(crate) fn mappings_before(&self, page: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.range(..page).map(|(&first, &mapping)| (first, mapping))
    }

    pub(crate) fn mappings_from(&self, page: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.range(page..).map(|(&first, &mapping)| (first, mapping))
    }

    pub(crate) fn begins_at(&self, page: u32) -> bool {
        self.mappings.contains_key(&page)
    }

    /// Returns the cycles of walks and the total cycles of the last sample.
    pub(crate) fn overhead(&self) -> (u64, u64) {
        self.overhead
    }

    pub(crate) fn find(&self, page: Page) -> Option<Place> {
        let (&first, &mapping) = self.mappings.range(..=page.0).next_back()?;
        (page.0 < mapping.end).then_some((first, mapping))
    }

    /// Returns the mapping that contains `pages` and extends beyond both ends.
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

    /// Returns whether any of these pages is mapped.
    pub(crate) fn meets(&self, pages: Pages) -> bool {
        let before = self.mappings.range(..pages.end().0).next_back();
        before.is_some_and(|(_, mapping)| mapping.end > pages.first.0)
    }

    /// Returns the mappings within `pages`, which must have been cut.
    fn within(&self, pages: Pages) -> Vec<Place> {
        let range = pages.first.0..pages.end().0;
        self.mappings.range(range).map(|(&first, &mapping)| (first, mapping)).collect()
    }

    /// Merges identical neighbours within and next to `pages`, as kernels do.
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
    /// Returns whether the 512 pages from `window` on lie in the mapping, which begins at `first`.
    pub(crate) fn holds_window(&self, first: u32, window: u32) -> bool {
        first <= window && window + trace::SLOTS <= self.end
    }
    pub(crate) fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Anonymous | Backing::Heap)
    }
}

// Page walks: runs accesses through the TLB until one needs attention.
//
// A TLB hit reads only the region's kind and the TLB. A walk also reads the region's entry.

/// Reason for leaving the loop, with the index of the access.
pub(crate) enum Attention {
    /// All accesses are done.
    None,
    Absent(usize),
    /// The write must be checked.
    Check(usize),
}

/// Superpages as the TLB sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Superpage {
    /// Base pages per TLB entry of a superpage. An access that uses the same entry as the preceding access counts as a
    /// hit without a look-up.
    pub same: u32,
    /// log2 of the regions per larger superpage, if the TLB has no page size for it; the TLB then gets the superpage's
    /// number as page number.
    pub group: u32,
    /// The TLB's page size for larger superpages.
    pub size: Size,
}

impl Superpage {
    /// Returns the page number and size for a TLB look-up of a page in a region of this kind.
    #[inline(always)]
    pub(crate) fn of(self, page: u32, kind: Kind) -> (u32, Size) {
        match kind & SIZE {
            HUGE => (page >> self.group, self.size),
            other => (page, size_of(other)),
        }
    }
}

const fn size_of(kind: Kind) -> Size {
    match kind & SIZE {
        BASE => Size::Base,
        CONT => Size::Cont,
        LARGE => Size::Large,
        // See `Superpage::of`. The values equal those of `Size`, so the match compiles to nothing.
        _ => Size::Huge,
    }
}

impl Spaces {
    /// Executes hits, and walks to mapped pages. With `sample`, marks entries accessed and counts walks.
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
            // A repeated page, read again or written after a write, is the first-level TLB's most recent entry.
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
            // A repeated superpage is a hit too.
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

    pub(crate) fn walked(&mut self, region: Region) {
        self.region(region).flags |= ACCESSED;
    }
}

// TLB misses: page walks by runs of 16 base pages (64 KiB). A profiler samples one of every N; here each is counted.

/// Number of runs of 16 base pages per region.
pub(crate) const RUNS: usize = 32;

/// Number of walks to base pages. Walks to absent pages are faults and are not counted.
#[derive(Debug, Default)]
pub(crate) struct Misses {
    /// Counts in the current window, by run.
    now: Vec<u32>,
    /// Moving average over windows, by run.
    average: Vec<u32>,
    /// Counts that `bank` has added up, by region, for a profile.
    before: Option<Vec<u64>>,
}

impl Misses {
    pub(crate) fn cover(&mut self, regions: usize) {
        self.now.resize(regions * RUNS, 0);
        self.average.resize(regions * RUNS, 0);
    }

    #[inline(always)]
    pub(crate) fn count(&mut self, page: Page) {
        if let Some(now) = self.now.get_mut((page.0 >> 4) as usize) {
            *now = now.saturating_add(1);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.now.fill(0);
    }

    /// Ends a window; the new counts weigh `newest` percent.
    pub(crate) fn sample(&mut self, newest: u32) {
        for (average, now) in self.average.iter_mut().zip(&self.now) {
            let old = u64::from(*average) * u64::from(100 - newest);
            *average = ((old + u64::from(*now) * u64::from(newest)) / 100) as u32;
        }
    }

    /// Creates counts that serve only a profile of `regions` regions.
    pub(crate) fn for_profile(regions: usize) -> Self {
        let mut misses = Self { before: Some(Vec::new()), ..Self::default() };
        misses.cover(regions);
        misses
    }

    pub(crate) fn is_for_profile(&self) -> bool {
        self.before.is_some()
    }

    /// Adds the current counts, times `weight`, to the profile. Returns the walks to each region; empty without a
    /// profile.
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

    /// Returns the sum of the averages of `count` runs from `first` on.
    pub(crate) fn average(&self, first: usize, count: usize) -> u32 {
        let runs = self.average.get(first..first + count).unwrap_or_default();
        runs.iter().fold(0, |sum, run| sum.saturating_add(*run))
    }
}

// Invariants, for tests and once at the end of a run in debug builds.

impl Spaces {
    /// Checks mappings: non-empty and disjoint, within regions of their process, and known to their shared objects and
    /// fork trees.
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
                if let Some(fork) = mapping.fork
                    && !self.forks[fork as usize].contains(number)
                {
                    return Err(format!("{name}: fork tree {fork} does not know it"));
                }
            }
        }
        Ok(())
    }

    /// Checks the counts of each process and of the program. `swapped` is the expected number of swapped-out pages.
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
