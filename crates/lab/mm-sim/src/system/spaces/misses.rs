//! Walks of the page table, counted by runs of 16 base pages (64 KiB): TLB misses, as a profiler samples them. Each is
//! counted, where perf would take every so many.

use trace::Page;

/// Runs of 16 base pages in a region.
pub(crate) const RUNS: usize = 32;

/// Counts of walks to base pages. Those that found no page are faults, and are not counted.
#[derive(Debug, Default)]
pub(crate) struct Misses {
    /// Since the window began, by run.
    now: Vec<u32>,
    /// A moving average over windows, by run.
    average: Vec<u32>,
    /// By region, before `now`: for a profile.
    before: Option<Vec<u64>>,
}

impl Misses {
    /// Grows to so many regions.
    pub(crate) fn cover(&mut self, regions: usize) {
        self.now.resize(regions * RUNS, 0);
        self.average.resize(regions * RUNS, 0);
    }

    /// A walk to a page.
    #[inline(always)]
    pub(crate) fn count(&mut self, page: Page) {
        if let Some(now) = self.now.get_mut((page.0 >> 4) as usize) {
            *now = now.saturating_add(1);
        }
    }

    /// A window begins.
    pub(crate) fn clear(&mut self) {
        self.now.fill(0);
    }

    /// A window is over: it weighs `newest` per cent.
    pub(crate) fn sample(&mut self, newest: u32) {
        for (average, now) in self.average.iter_mut().zip(&self.now) {
            let old = u64::from(*average) * u64::from(100 - newest);
            *average = ((old + u64::from(*now) * u64::from(newest)) / 100) as u32;
        }
    }

    /// For a profile of so many regions: nobody else asks.
    pub(crate) fn for_profile(regions: usize) -> Self {
        let mut misses = Self { before: Some(Vec::new()), ..Self::default() };
        misses.cover(regions);
        misses
    }

    /// Whether it is for a profile.
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

#[cfg(test)]
mod tests {
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
