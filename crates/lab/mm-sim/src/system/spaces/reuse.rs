//! How many walks pass until they read a line of leaves again: of one line in each region.
//! See docs/decisions/lab-model.md#17.

use machine::{Machine, Reuse, Size, Tally};
use tlb_sim::Translate;
use trace::Page;

/// Base pages whose entries share a cache line, as log2.
const ENTRIES: u32 = 3;
/// Lines of a region, as log2.
const LINES: u32 = 6;

/// Walks of sampled lines before the price is worked out for the first time, and at most between two times.
const FIRST: u32 = 128;
const ENOUGH: u32 = 4096;

/// What was seen of the walks, since the program's pace changed. Walks are counted modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Walks when the pace changed.
    began: Option<u32>,
    /// Walks when the sampled line of each region was read last.
    last: Vec<u32>,
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
        *self = Self { last: std::mem::take(&mut self.last), next: FIRST, ..Self::default() };
    }

    /// The leaf of a page was read, by the last of the walks that the TLB counted.
    #[inline(always)]
    pub(crate) fn read<T: Translate>(&mut self, page: Page, tlb: &T) {
        self.read_before(page, tlb, 0);
    }

    /// The same, by a walk after which it counted so many more.
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
            // Never read: before it began.
            self.last.resize((region + 1).next_multiple_of(512), began.wrapping_sub(1));
        }
        let before = std::mem::replace(&mut self.last[region], walks);
        self.samples += 1;
        let distance = walks.wrapping_sub(before);
        if distance <= walks.wrapping_sub(began) {
            self.seen.again(distance);
        }
    }

    /// Mean cycles of a leaf's load, once enough was seen, with so many bytes of leaves in use and this much walked.
    pub(crate) fn price(&mut self, machine: &Machine, bytes: u64, tally: Tally) -> Option<f64> {
        let (Some(began), true) = (self.began, self.samples >= self.next) else {
            return self.price;
        };
        let now = walks(tally);
        let elapsed = now.wrapping_sub(began);
        let mut seen = self.seen.clone();
        let waited = self.last.iter().map(|last| now.wrapping_sub(*last));
        waited.filter(|walks| *walks <= elapsed).for_each(|walks| seen.waiting(walks));
        // A few lines that are read all the time may or may not be among the sampled: their walks are known to be there,
        // or too many (Waldspurger et al., SHARDS, FAST 2015, 3.2).
        let expected = f64::from(elapsed) / f64::from(1 << LINES);
        seen.near(expected - f64::from(self.samples));
        self.price = Some(machine.leaf_cycles(&seen, bytes));
        self.next = self.samples + self.samples.min(ENOUGH);
        self.price
    }
}

/// Walks to base pages.
fn walks(tally: Tally) -> u32 {
    (tally.walks_of(Size::Base) + tally.walks_of(Size::Cont)) as u32
}

/// Whether the line of a page is the sampled one of its region.
#[inline(always)]
fn is_sampled(page: Page) -> bool {
    // Regions differ in which it is, so that no stride falls on all or none.
    page.slot() >> ENTRIES == page.region().0.wrapping_mul(0x9e37_79b9) >> (32 - LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(walks: u32) -> Tally {
        let mut tally = Tally::default();
        tally.walks[Size::Base as usize][1] = walks.into();
        tally
    }

    /// The price after these walks, the first `began` of which another pace had.
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

    /// Random numbers of 32 bits.
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
            // They are written in order, and then some of the lines are read.
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
        // One page of each of 8 regions is read nine times in ten, and any page of 4 GiB the tenth time: hot lines that
        // are sampled, or not, cost the same.
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
        // The rest finds its line again after ten times as many walks as there are lines.
        let (least, most) = (0.9 * near, 0.9 * near + 0.1 * f64::from(machine.memory_cycles));
        assert!(prices.iter().all(|price| (least..1.1 * most).contains(price)), "{prices:?}");
        assert!((prices[0] / prices[1] - 1.0).abs() < 0.05, "{prices:?}");
    }
}
