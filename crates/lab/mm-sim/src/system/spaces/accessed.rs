//! What was walked to: samples of accessed entries, misses by run, cycles by process.

use trace::{Page, Region, SLOTS};

use super::misses::{Misses, RUNS};
use super::region::{ACCESSED, Entry, NO_TABLE, WATCHED};
use super::{Spaces, TlbInvalidation};

impl Spaces {
    /// A sample of accesses begins. Returns how many entries were looked at.
    pub(crate) fn clear_accessed(&mut self) -> u64 {
        let mut tables = 0;
        for region in (0..self.region_count()).map(Region) {
            if !self.is_sampled(region) {
                continue;
            }
            for entry in self.tables.table_mut(self.regions[region].place) {
                *entry = entry.without(Entry::ACCESSED);
            }
            tables += 1;
        }
        if let Some(misses) = &mut self.misses {
            misses.clear();
        }
        // Entries that stay in a TLB are not walked to again: without this they would look unused.
        self.invalidations.push(TlbInvalidation::All);
        for process in self.processes.values_mut() {
            process.overhead = (0, 0);
        }
        tables * u64::from(SLOTS)
    }

    /// A sample of accesses ends, and weighs `newest` per cent. Returns how many entries were looked at.
    pub(crate) fn count_accessed(&mut self, newest: u32) -> u64 {
        if let Some(misses) = &mut self.misses {
            misses.sample(newest);
        }
        let mut tables = 0;
        for region in (0..self.region_count()).map(Region) {
            if !self.is_sampled(region) {
                continue;
            }
            let entries = self.tables.table(self.regions[region].place);
            let accessed = entries.iter().filter(|entry| entry.has(Entry::ACCESSED)).count() as u32;
            let at = self.regions.extend(region);
            at.coverage =
                ((u32::from(at.coverage) * (100 - newest) + accessed * newest) / 100) as u16;
            tables += 1;
        }
        tables * u64::from(SLOTS)
    }

    fn is_sampled(&self, region: Region) -> bool {
        let at = &self.regions[region];
        at.place != NO_TABLE && !self.is_large(region) && !at.has(WATCHED)
    }

    /// Whether a region was walked to since this was last asked of one of its pages: it is kept by region.
    pub(crate) fn was_accessed(&mut self, region: Region) -> bool {
        let at = self.region(region);
        let accessed = at.has(ACCESSED);
        at.flags &= !ACCESSED;
        accessed
    }

    /// Nothing of a region counts as accessed.
    pub(crate) fn forget_coverage(&mut self, region: Region) {
        self.region(region).coverage = 0;
    }

    /// The walks to the pages of a size from one on, in the last windows.
    pub(crate) fn misses(&self, first: Page, order: u8) -> u32 {
        let misses = self.misses.as_ref();
        misses
            .map_or(0, |misses| misses.average((first.0 >> 4) as usize, ((1 << order) / 16).max(1)))
    }

    /// The walks to a region in the last windows.
    pub(crate) fn misses_of(&self, region: Region) -> u32 {
        let misses = self.misses.as_ref();
        misses.map_or(0, |misses| misses.average(region.index() * RUNS, RUNS))
    }

    /// From here on walks to base pages are counted for a profile, where a design does not count them for itself.
    pub(crate) fn count_walks(&mut self) {
        self.misses = Some(Misses::for_profile(self.regions.len()));
    }

    /// Whether they are.
    pub(crate) fn counts_walks(&self) -> bool {
        self.misses.as_ref().is_some_and(Misses::is_for_profile)
    }

    /// The pace changes: each walk so far stood for `weight`.
    pub(crate) fn bank_walks(&mut self, weight: u32) {
        if let Some(misses) = &mut self.misses {
            misses.bank(weight);
        }
    }

    /// The walks to each region of the program's memory, if they are counted for a profile.
    pub(crate) fn walks(&mut self, weight: u32) -> Vec<u64> {
        let all = self.misses.as_mut().map_or(&[][..], |misses| misses.bank(weight));
        all.get(self.first_region as usize..).unwrap_or_default().to_vec()
    }

    /// The running process waited for walks.
    #[inline]
    pub(crate) fn note_walks(&mut self, cycles: u64, now: u64) {
        if let Some(process) = self.processes.get_mut(&self.running) {
            process.overhead.0 += cycles;
            process.overhead.1 = now;
        }
    }
}
