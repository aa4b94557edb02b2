//! Which lines of leaves walks read, and how many walks pass until they read them again: of one line in sixteen.

use machine::{Machine, Reuse};
use trace::Page;

/// Base pages whose entries share a cache line, as log2.
const ENTRIES: u32 = 3;
/// Lines of a region, as log2; one in 2^[`ONE_IN`] is sampled.
const LINES: u32 = 6;
const ONE_IN: u32 = 4;
const SAMPLED: usize = 1 << (LINES - ONE_IN);

/// Walks of sampled lines before the price is worked out for the first time, and at most between two times.
const FIRST: u32 = 128;
const ENOUGH: u32 = 8192;

/// What was seen of the walks, since the program's pace changed.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Walks so far, modulo 2^32.
    walks: u32,
    /// The same when the pace changed.
    began: u32,
    /// When the sampled lines of each region were read last.
    last: Vec<[u32; SAMPLED]>,
    seen: Reuse,
    /// Walks of sampled lines, and how many there are to be before the price is worked out again.
    samples: u32,
    next: u32,
    /// Mean cycles of a leaf's load.
    price: Option<f64>,
}

impl Lines {
    /// The program does something else from now on.
    pub(crate) fn restart(&mut self) {
        let (walks, last) = (self.walks, std::mem::take(&mut self.last));
        *self = Self { walks, began: walks, last, next: FIRST, ..Self::default() };
    }

    /// The leaf of a page was read.
    #[inline(always)]
    pub(crate) fn read(&mut self, page: Page) {
        self.walks = self.walks.wrapping_add(1);
        if let Some(line) = sampled(page) {
            self.note(page, line);
        }
    }

    /// Those of so many pages side by side were.
    pub(crate) fn read_run(&mut self, page: Page, count: u32) {
        (0..count).for_each(|ahead| self.read(Page(page.0 + ahead)));
    }

    #[cold]
    fn note(&mut self, page: Page, line: usize) {
        let region = page.region().index();
        if region >= self.last.len() {
            // Never read: as long ago as can be.
            let never = [self.began.wrapping_sub(1); SAMPLED];
            self.last.resize((region + 1).next_multiple_of(512), never);
        }
        let before = std::mem::replace(&mut self.last[region][line], self.walks);
        self.samples += 1;
        let walks = self.walks.wrapping_sub(before);
        if walks < self.elapsed() {
            self.seen.again(walks);
        }
    }

    fn elapsed(&self) -> u32 {
        self.walks.wrapping_sub(self.began)
    }

    /// Mean cycles of a leaf's load, once enough was seen, with so many bytes of leaves in use.
    pub(crate) fn price(&mut self, machine: &Machine, bytes: u64) -> Option<f64> {
        if self.samples >= self.next {
            let mut seen = self.seen.clone();
            for last in self.last.iter().flatten() {
                let walks = self.walks.wrapping_sub(*last);
                if walks < self.elapsed() {
                    seen.waiting(walks);
                }
            }
            // A few lines that are read all the time may or may not be among the sampled: their walks are known to be
            // there, or too many (Waldspurger et al., SHARDS, FAST 2015, 3.2).
            let expected = f64::from(self.elapsed()) / f64::from(1 << ONE_IN);
            seen.near(expected - f64::from(self.samples));
            self.price = Some(machine.leaf_cycles(&seen, bytes));
            self.next = self.samples + self.samples.min(ENOUGH);
        }
        self.price
    }
}

/// The number of a page's line among the sampled ones of its region.
#[inline(always)]
fn sampled(page: Page) -> Option<usize> {
    let line = page.slot() >> ENTRIES;
    // Regions differ in which they are, so that no stride falls on all or none.
    let first = page.region().0.wrapping_mul(0x9e37_79b9) >> (32 - ONE_IN);
    (line & ((1 << ONE_IN) - 1) == first).then_some((line >> ONE_IN) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_sixteen_is_sampled() {
        for region in 0..40 {
            let pages = (0..512).filter_map(|slot| sampled(Page(region * 512 + slot)));
            let mut counts = [0; SAMPLED];
            pages.for_each(|line| counts[line] += 1);
            assert_eq!(counts, [8; SAMPLED]);
        }
    }

    #[test]
    fn pages_used_alike_cost_what_the_formula_says() {
        let machine = machine::preset("e3-1245v6").unwrap();
        for pages in [1u32 << 16, 1 << 20, 11 << 17] {
            let (mut lines, mut seed) = (Lines::default(), 1u64);
            lines.read_run(Page(0), pages);
            lines.restart();
            // A part of the lines is read at all.
            for _ in 0..pages / 2 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                lines.read(Page(((seed >> 33) % u64::from(pages)) as u32));
                lines.price(&machine, u64::from(pages) * 8);
            }
            let (price, alike) = (lines.price.unwrap(), machine.load_cycles(u64::from(pages) * 8));
            assert!((price / alike - 1.0).abs() < 0.08, "{pages} pages: {price}, not {alike}");
        }
    }

    #[test]
    fn few_hot_pages_are_cheap_wherever_they_are() {
        let machine = machine::preset("e3-1245v6").unwrap();
        let near = f64::from(machine.caches[0].cycles);
        // One page of each region is read nine times in ten, and any page of 4 GiB the tenth time: hot lines that are
        // all sampled, or none, cost the same.
        let mut prices = Vec::new();
        for hot in [sampled_slot(true), sampled_slot(false)] {
            let (mut lines, mut seed) = (Lines::default(), 1u32);
            for at in 0..4_000_000u32 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let page = if at % 10 == 0 { seed >> 12 } else { 512 * (at % 8 + 1) + hot };
                lines.read(Page(page));
                lines.price(&machine, (1 << 20) * 8);
            }
            prices.push(lines.price.unwrap());
        }
        // Nine of ten are near; the rest finds its line again after ten times as many walks as there are lines.
        let (least, most) = (0.9 * near, 0.9 * near + 0.1 * f64::from(machine.memory_cycles));
        assert!(prices.iter().all(|price| (least..1.1 * most).contains(price)), "{prices:?}");
        assert!((prices[0] / prices[1] - 1.0).abs() < 0.05, "{prices:?}");
    }

    /// A slot that is sampled in the first eight regions, or in none of them.
    fn sampled_slot(wanted: bool) -> u32 {
        let hits = |slot: &u32| {
            (1..9).filter(|region| sampled(Page(region * 512 + slot)).is_some()).count()
        };
        let by_hits = |slot: &u32| hits(slot);
        match wanted {
            true => (0..512).max_by_key(by_hits).unwrap(),
            false => (0..512).find(|slot| hits(slot) == 0).unwrap(),
        }
    }
}
