//! Reuse distances, in walks, of the cache lines of leaf page tables. One line per region is sampled. See
//! docs/decisions/lab-model.md#17.

use std::ops::Range;

use machine::{Machine, Reuse, Size, Tally};
use tlb_sim::Translate;
use trace::{Page, Region, SLOTS};

use super::region::{ACCESSED, BASE, Entry, LARGE, NO_TABLE, RESERVED, WATCHED};
use super::{Misses, RUNS, Spaces, TlbInvalidation};
use crate::memory::Frame;

/// log2 of the number of base pages whose entries share a cache line.
const ENTRIES: u32 = 3;
/// log2 of the number of lines per region.
const LINES: u32 = 6;

/// Number of sampled walks before the price is first computed.
const FIRST: u32 = 128;
/// Maximum number of sampled walks between two computations of the price.
const ENOUGH: u32 = 4096;

/// Reuse of sampled lines since the program's pace changed. Walks are counted modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Number of walks when the pace changed.
    began: Option<u32>,
    /// Number of walks at the last read of each region's sampled line.
    last: Vec<u32>,
    seen: Reuse,
    /// Number of sampled walks.
    samples: u32,
    /// Number of sampled walks at which the price is computed next.
    next: u32,
    /// Mean cycles of a load of a leaf entry.
    price: Option<f64>,
}

impl Lines {
    /// Restarts at a new phase of the program.
    pub(crate) fn restart(&mut self) {
        *self = Self { last: std::mem::take(&mut self.last), next: FIRST, ..Self::default() };
    }

    /// Records that the last walk read a page's leaf entry.
    #[inline(always)]
    pub(crate) fn read<T: Translate>(&mut self, page: Page, tlb: &T) {
        self.read_before(page, tlb, 0);
    }

    /// As [`Self::read`], for a walk that was followed by `more` others.
    #[inline(always)]
    pub(crate) fn read_before<T: Translate>(&mut self, page: Page, tlb: &T, more: u32) {
        if is_sampled(page) {
            self.note(page, walks(tlb.tally()).wrapping_sub(more));
        }
    }

    #[cold]
    fn note(&mut self, page: Page, walks: u32) {
        let began = *self.began.get_or_insert(walks);
        let region = page.region().index();
        if region >= self.last.len() {
            // Unread lines count as read before the start.
            self.last.resize((region + 1).next_multiple_of(512), began.wrapping_sub(1));
        }
        let before = std::mem::replace(&mut self.last[region], walks);
        self.samples += 1;
        let distance = walks.wrapping_sub(before);
        if distance <= walks.wrapping_sub(began) {
            self.seen.again(distance);
        }
    }

    /// Returns the mean cycles of a load of a leaf entry, once enough samples exist. `bytes`: size of all leaf tables
    /// in use.
    pub(crate) fn price(&mut self, machine: &Machine, bytes: u64, tally: Tally) -> Option<f64> {
        let (Some(began), true) = (self.began, self.samples >= self.next) else {
            return self.price;
        };
        let now = walks(tally);
        let elapsed = now.wrapping_sub(began);
        let mut seen = self.seen.clone();
        let waited = self.last.iter().map(|last| now.wrapping_sub(*last));
        waited.filter(|walks| *walks <= elapsed).for_each(|walks| seen.waiting(walks));
        // Very hot lines may be missing from the sample or overrepresented. The expected number of samples corrects
        // this (Waldspurger et al., SHARDS, FAST 2015, 3.2).
        let expected = f64::from(elapsed) / f64::from(1 << LINES);
        seen.near(expected - f64::from(self.samples));
        self.price = Some(machine.leaf_cycles(&seen, bytes));
        self.next = self.samples + self.samples.min(ENOUGH);
        self.price
    }
}

fn walks(tally: Tally) -> u32 {
    (tally.walks_of(Size::Base) + tally.walks_of(Size::Cont)) as u32
}

/// Returns whether a page's line is the sampled line of its region.
#[inline(always)]
fn is_sampled(page: Page) -> bool {
    // The sampled line differs between regions, so no stride hits all or none of them.
    page.slot() >> ENTRIES == page.region().0.wrapping_mul(0x9e37_79b9) >> (32 - LINES)
}

// Sampling of walks: which entries were accessed, the misses of each run of 16 pages, the cycles of each process.

impl Spaces {
    /// Starts a sample of accesses. Returns the number of entries scanned.
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
        // Entries cached in a TLB are not walked to: without a flush they would look unused.
        self.invalidations.push(TlbInvalidation::All);
        for process in self.processes.values_mut() {
            process.overhead = (0, 0);
        }
        tables * u64::from(SLOTS)
    }

    /// Notes how many pages of each region were accessed in the first half of the window.
    pub(crate) fn note_half(&mut self, watched: bool) {
        self.halves.resize(self.regions.len(), 0);
        for region in (0..self.region_count()).map(Region) {
            let of_window =
                if watched { self.regions[region].has(WATCHED) } else { self.is_sampled(region) };
            if of_window {
                self.halves[region.index()] = self.bits(region);
            }
        }
    }

    /// Number of pages of a region whose accessed bits are set.
    fn bits(&self, region: Region) -> u16 {
        let entries = self.tables.table(self.regions[region].place);
        entries.iter().filter(|entry| entry.has(Entry::ACCESSED)).count() as u16
    }

    /// Ends a region's window: returns how many of its pages the program accessed. Each access of the stream stands for
    /// `weight` of them. See docs/decisions/lab-model.md#20.
    pub(crate) fn accessed(&mut self, region: Region, weight: u32) -> u32 {
        if self.regions[region].place == NO_TABLE || self.is_large(region) {
            return 0;
        }
        let all = self.bits(region);
        let half = self.halves.get_mut(region.index()).map_or(0, std::mem::take);
        likely_accessed(half, all, self.regions[region].resident, weight)
    }

    /// Ends a sample of accesses, whose weight is `newest` percent. Returns the number of entries scanned.
    pub(crate) fn count_accessed(&mut self, newest: u32, weight: u32) -> u64 {
        if let Some(misses) = &mut self.misses {
            misses.sample(newest);
        }
        let mut tables = 0;
        for region in (0..self.region_count()).map(Region) {
            if !self.is_sampled(region) {
                continue;
            }
            let accessed = self.accessed(region, weight);
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

    /// Returns whether a region was walked to since the last call for it, and clears the mark.
    pub(crate) fn was_accessed(&mut self, region: Region) -> bool {
        let at = self.region(region);
        let accessed = at.has(ACCESSED);
        at.flags &= !ACCESSED;
        accessed
    }

    pub(crate) fn forget_coverage(&mut self, region: Region) {
        self.region(region).coverage = 0;
    }

    /// Returns the average number of walks to the 2^`order` pages from `first` on, over recent windows.
    pub(crate) fn misses(&self, first: Page, order: u8) -> u32 {
        let misses = self.misses.as_ref();
        misses
            .map_or(0, |misses| misses.average((first.0 >> 4) as usize, ((1 << order) / 16).max(1)))
    }

    pub(crate) fn misses_of(&self, region: Region) -> u32 {
        let misses = self.misses.as_ref();
        misses.map_or(0, |misses| misses.average(region.index() * RUNS, RUNS))
    }

    pub(crate) fn count_walks(&mut self) {
        self.misses = Some(Misses::for_profile(self.regions.len()));
    }

    pub(crate) fn counts_walks(&self) -> bool {
        self.misses.as_ref().is_some_and(Misses::is_for_profile)
    }

    /// Adds the walks since the last change of pace, times `weight`, to the profile. Called when the pace changes.
    pub(crate) fn bank_walks(&mut self, weight: u32) {
        if let Some(misses) = &mut self.misses {
            misses.bank(weight);
        }
    }

    /// Returns the number of walks to each region of the program's memory, if counted for a profile.
    pub(crate) fn walks(&mut self, weight: u32) -> Vec<u64> {
        let all = self.misses.as_mut().map_or(&[][..], |misses| misses.bank(weight));
        all.get(self.first_region as usize..).unwrap_or_default().to_vec()
    }

    #[inline]
    pub(crate) fn note_walks(&mut self, cycles: u64, now: u64) {
        if let Some(process) = self.processes.get_mut(&self.running) {
            process.overhead.0 += cycles;
            process.overhead.1 = now;
        }
    }
}

/// Number of pages accessed in a window, of a region with `resident` pages, of which the stream accessed `half` in the
/// window's first half and `all` in the whole window.
///
/// Both halves are samples of the pages in use, of about the same size, so `2 * half - all` pages are in both. The
/// number in use follows from them (Chapman's estimator of capture and recapture, unbiased for small samples). A page in
/// use escapes one sampled access with probability `1 - all / used`, and `weight` real ones with its power.
fn likely_accessed(half: u16, all: u16, resident: u16, weight: u32) -> u32 {
    let [half, all, resident] = [half, all, resident].map(f64::from);
    let both = (2.0 * half - all).max(0.0);
    let used = (half + 1.0) * (half + 1.0) / (both + 1.0) - 1.0;
    let used = used.min(resident).max(all);
    if used <= all || weight <= 1 {
        return all as u32;
    }
    (used * (1.0 - (1.0 - all / used).powf(f64::from(weight)))).round() as u32
}

// Removal of base pages: unmap, swap out.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Emptied {
    /// Number of removed mappings.
    pub mappings: u32,
    /// The frame of the last page that had one.
    pub frame: Option<Frame>,
}

impl Spaces {
    /// Swaps a page out; the caller frees its frame.
    pub(crate) fn swap_out(&mut self, page: Page) {
        self.unmap_entry(page);
        *self.entry_mut(page) = Entry::swapped();
        self.count_resident(page.region(), -1);
        self.swapped += 1;
    }

    /// Removes a page's contents from swap. Returns whether there were any.
    pub(crate) fn leave_swap(&mut self, page: Page) -> bool {
        let was_swapped = self.entry(page).is_swapped();
        self.swapped -= u64::from(was_swapped);
        was_swapped
    }

    /// Unmaps a page, which keeps its frame.
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

    /// Empties entries of a region with a table. Calls `gone` for each page that had a frame. Returns the number of
    /// removed mappings.
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

    /// Frees a region's table if empty.
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

    /// Sets the maximum number of swapped-out pages. Returns the old one.
    pub(crate) fn set_swap(&mut self, swap: u64) -> u64 {
        std::mem::replace(&mut self.swap, swap)
    }

    pub(crate) fn can_swap(&self) -> bool {
        self.swapped < self.swap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(walks: u32) -> Tally {
        let mut tally = Tally::default();
        tally.walks[Size::Base as usize][1] = walks.into();
        tally
    }

    /// Returns the price after these walks. The pace changes at walk `began`.
    fn price(pages: impl Iterator<Item = u32>, began: u32, bytes: u64) -> f64 {
        let machine = machine::preset("e3-1245v6").unwrap();
        let mut lines = Lines::default();
        for (walks, page) in (1..).zip(pages) {
            if walks == began {
                lines.restart();
            }
            if is_sampled(Page(page)) {
                lines.note(Page(page), walks);
            }
            lines.price(&machine, bytes, tally(walks));
        }
        lines.price.unwrap()
    }

    fn random() -> impl FnMut() -> u32 {
        let mut seed = 1u64;
        move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 32) as u32
        }
    }

    #[test]
    fn one_line_of_a_region_is_sampled() {
        for region in 0..400 {
            let sampled = (0..512).filter(|slot| is_sampled(Page(region * 512 + slot)));
            assert_eq!(sampled.count(), 8);
        }
    }

    #[test]
    fn pages_used_alike_cost_what_the_formula_says() {
        let machine = machine::preset("e3-1245v6").unwrap();
        for pages in [1u32 << 16, 1 << 20, 11 << 17] {
            let mut random = random();
            // All pages are written in order, then some lines are read again.
            let used = (0..pages).chain((0..pages / 2).map(|_| random() % pages));
            let price = price(used, pages, u64::from(pages) * 8);
            let alike = machine.load_cycles(u64::from(pages) * 8);
            assert!((price / alike - 1.0).abs() < 0.1, "{pages} pages: {price}, not {alike}");
        }
    }

    #[test]
    fn few_hot_pages_are_cheap_wherever_they_are() {
        let machine = machine::preset("e3-1245v6").unwrap();
        let near = f64::from(machine.caches[0].cycles);
        // Nine of ten accesses read one page of each of 8 regions, the tenth any page of 4 GiB. Hot lines cost the same
        // whether sampled or not.
        let hits = |slot: &u32| (1..9).filter(|at| is_sampled(Page(at * 512 + slot))).count();
        let most = (0..512).max_by_key(hits).unwrap();
        let none = (0..512).find(|slot| hits(slot) == 0).unwrap();
        let prices = [most, none].map(|hot| {
            let mut random = random();
            let page = |at: u32| {
                if at.is_multiple_of(10) { random() >> 12 } else { 512 * (at % 8 + 1) + hot }
            };
            price((0..4_000_000).map(page), 1, (1 << 20) * 8)
        });
        // A tenth of the walks goes to random lines, so the mean distance to the next read of a random line is ten
        // times the number of random lines.
        let (least, most) = (0.9 * near, 0.9 * near + 0.1 * f64::from(machine.memory_cycles));
        assert!(prices.iter().all(|price| (least..1.1 * most).contains(price)), "{prices:?}");
        assert!((prices[0] / prices[1] - 1.0).abs() < 0.05, "{prices:?}");
    }

    /// Of `used` pages of a region, streams of `weight` access a sample in each half window.
    #[test]
    fn what_a_thinned_stream_accessed_is_estimated() {
        for used in [16u16, 70, 128, 450, 512] {
            for (sampled, weight) in [(128u32, 1024u32), (512, 1024), (512, 256), (4096, 64)] {
                let mut random = 0x9e37_79b9_7f4a_7c15u64;
                let (mut estimates, rounds) = (0.0, 200);
                for _ in 0..rounds {
                    let (mut pages, mut half) = ([false; 512], 0);
                    for at in 0..sampled {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        pages[(random >> 32) as usize % usize::from(used)] = true;
                        if at + 1 == sampled / 2 {
                            half = pages.iter().filter(|&&page| page).count() as u16;
                        }
                    }
                    let all = pages.iter().filter(|&&page| page).count() as u16;
                    estimates +=
                        f64::from(likely_accessed(half, all, 512, weight)) / f64::from(rounds);
                }
                let error = estimates / f64::from(used) - 1.0;
                assert!(
                    error.abs() < 0.16,
                    "{used} pages, {sampled} accesses of {weight}: {error}"
                );
            }
        }
    }

    /// Every access is in the stream: what it accessed is what the program accessed.
    #[test]
    fn a_whole_stream_is_counted() {
        for (half, all) in [(0, 0), (0, 7), (3, 6), (200, 300), (512, 512)] {
            assert_eq!(likely_accessed(half, all, 512, 1), u32::from(all));
        }
        assert_eq!(likely_accessed(9, 9, 512, 1024), 9);
        assert_eq!(likely_accessed(0, 1, 512, 1024), 1);
        assert!(likely_accessed(100, 200, 150, 1024) <= 200);
    }
}
