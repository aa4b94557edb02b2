//! The share of a process's time that superpages would save, from sampled accesses.
//!
//! A sample stands for a piece of time in which a thread waited for an access. With the price of the access on base
//! pages, c = data + translation, and the price of its translation on superpages, the saved share of that piece is
//! (translation - translation on superpages) / c. So no count of accesses is needed, which sampling could not give.
//!
//! The prices depend on the reuse distance: how many other pages were used since the last use of this page. Samples are
//! too far apart to see it, so accesses are taken as independent of each other (independent reference model): the
//! distance follows from how often each page is used. Time on a page, divided by the price of its accesses, is that
//! frequency; prices and distances are computed in turns until they agree. (Che, Tung and Wang, JSAC 2002, for caches.)
//!
//! Samples that were replayed ([`crate::replay`]) show what independent references do not: an access to a page used shortly
//! before needs no walk, and a walk may be hidden behind other work. An instruction that was replayed often enough has the
//! share of its replayed time that translation takes ([`crate::core`]); others are priced as above.
//!
//! What goes through memory in order is not independent. It is recognized by its rate ([`crate::streams`]). The rate times what
//! the end of a base page costs a stream is the share of the time that superpages save. See docs/decisions/advise.md#7.

mod popularity;
mod price;
mod replayed;
mod working_set;

use std::collections::BTreeMap;

use prediction::{Near, Prices, Sequential};

use self::popularity::Popularity;
use self::price::Table;
pub use self::replayed::Replayed;
use self::replayed::{Sums, sums};
use crate::memory::{On, Seen, Shifts};
use crate::streams::Orders;

/// A machine's costs of accesses.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Of random accesses, of several streams, and of first touches.
    pub accesses: Prices,
    /// Nanoseconds of a base page that is read in the only stream.
    pub one_stream: Sequential,
    /// On base pages with neighbouring frames; `None`: not known apart.
    pub near: Option<Near>,
}

impl Costs {
    /// The costs for a process with this spread of frames: [`prediction::Frames::spread`].
    pub fn at(&self, spread: Option<f64>) -> Self {
        let accesses = match (&self.near, spread) {
            (Some(near), Some(spread)) => near.at(&self.accesses, spread),
            _ => self.accesses.clone(),
        };
        Self { accesses, one_stream: self.one_stream, near: None }
    }
}

/// What the model finds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimate {
    /// Share of the sampled time that superpages would save, 0 to 1.
    pub saved: f64,
    /// The part of `saved` of each base page, by its first address. Mappings may meet within a superpage-sized block, never
    /// within a page.
    pub by_page: BTreeMap<u64, f64>,
    /// Share of the samples that are to accesses in order.
    pub sequential: f64,
    /// Effective number of base pages in use in random order.
    pub pages: f64,
    /// Share of the samples that are to pages of which each is rarely used: they may be in no cache.
    pub exposed: f64,
    /// Number of replayed windows.
    pub windows: usize,
    /// Share of the samples whose instruction was replayed often enough.
    pub replayed: f64,
}

/// What samples and replays say about a process, from which estimates are made.
pub struct Model<'a> {
    total: f64,
    shifts: Shifts,
    orders: &'a Orders,
    table: Table,
    pages: Popularity,
    windows: Vec<BTreeMap<u64, Sums>>,
    /// Share of the time that superpages save at the ends of pages that streams pass.
    in_order: f64,
}

impl<'a> Model<'a> {
    /// Computes how often pages are used, and what the accesses of the windows cost. `total` is the number of all
    /// samples, of which `seen` are those at accesses.
    pub fn new(
        seen: &[Seen],
        windows: &[Replayed],
        total: f64,
        prices: &Costs,
        shifts: Shifts,
        orders: &'a Orders,
    ) -> Self {
        let table = Table::new(&prices.accesses);
        let random: Vec<&Seen> = seen.iter().filter(|one| !orders.is_sequential(one)).collect();
        let pages = Popularity::new(&random, total, &table, shifts, orders);
        let windows = sums(windows, &pages, &table, prices, shifts);
        let stream = match orders.number_of_streams() {
            0 | 1 => prices.one_stream,
            _ => prices.accesses.sequential_reads,
        };
        let crossing = (stream.base - stream.superpage).max(0.0) * 1e-9;
        let in_order = (crossing * orders.eligible_pages_per_second(shifts)).min(1.0);
        Self { total, shifts, orders, table, pages, windows, in_order }
    }

    /// Places of the windows.
    pub fn windows(&self) -> std::ops::Range<usize> {
        0..self.windows.len()
    }

    /// Estimates what superpages save, from these samples and the windows at these places: all of them, or as many drawn
    /// from them.
    pub fn estimate(&self, seen: &[Seen], windows: impl Iterator<Item = usize>) -> Estimate {
        let (orders, shifts) = (self.orders, self.shifts);
        let mut result = Estimate {
            pages: self.pages.groups.iter().map(|group| group.pages).sum(),
            exposed: self.pages.exposed() / self.total,
            windows: self.windows.len(),
            ..Estimate::default()
        };
        let mut sites: BTreeMap<u64, Sums> = BTreeMap::new();
        for (site, more) in windows.flat_map(|at| &self.windows[at]) {
            sites.entry(*site).or_default().add(more);
        }
        let eligible = |one: &Seen| orders.is_sequential(one) && matches!(one.on, On::Base { .. });
        let number = seen.iter().filter(|one| eligible(one)).count() as f64;
        let by_page = &mut result.by_page;
        let mut add = |one: &Seen, saved: f64| {
            let start = one.access.address >> shifts.base << shifts.base;
            *by_page.entry(start).or_default() += saved;
        };
        for one in seen {
            let share = orders.waits(one.access.site) / self.total;
            if orders.is_sequential(one) {
                result.sequential += 1.0 / self.total;
                if eligible(one) {
                    let saved = self.in_order.min(number / self.total) / number;
                    result.saved += saved;
                    add(one, saved);
                }
                continue;
            }
            let part = match sites.get(&one.access.site).and_then(Sums::part) {
                Some(part) => {
                    result.replayed += 1.0 / self.total;
                    part
                }
                None => self.pages.part(&self.table, one, shifts),
            };
            let saved = share * (part.base - part.superpage).max(0.0);
            result.saved += saved;
            if saved > 0.0 && matches!(one.on, On::Base { .. }) {
                add(one, saved);
            }
        }
        result
    }
}

/// Shares of the time of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Part {
    /// Spent on translation now.
    base: f64,
    /// What of that superpages leave.
    superpage: f64,
}

#[cfg(test)]
pub(crate) mod tests {
    use prediction::{Curve, Faults, Pair};
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use units::Pid;

    use super::*;
    use crate::code::{Access, Kind};
    use crate::replay::{Step, Window};

    const SHIFTS: Shifts = Shifts { base: 12, superpage: 21 };
    const START: u64 = 1 << 40;

    /// 4 ns, 100 more beyond 2^14 pages of data, 50 more beyond 2^11 entries of the TLB.
    pub(crate) fn prices() -> Costs {
        let step = |from: usize, cost: f64, k: usize| if k > from { cost } else { 0.0 };
        let curve = |price: &dyn Fn(usize) -> f64| Curve {
            first: 6,
            ns: (6..20)
                .map(|k| 4.0 + (7..=k).fold(0.0, |mean, k| (mean + price(k)) / 2.0))
                .collect(),
        };
        let base = |k| step(14, 100.0, k) + step(11, 50.0, k);
        let superpage = |k| step(14, 100.0, k) + step(20, 50.0, k);
        let pair = Pair { base: curve(&base), superpage: curve(&superpage) };
        let accesses = Prices {
            dependent: pair.clone(),
            reads: pair.clone(),
            writes: pair,
            sequential_reads: Sequential { base: 160.0, superpage: 160.0 },
            sequential_writes: Sequential { base: 160.0, superpage: 160.0 },
            faults: Faults { base: 1000.0, superpage: 100_000.0 },
        };
        Costs { accesses, one_stream: Sequential { base: 220.0, superpage: 200.0 }, near: None }
    }

    fn seen(at: usize, address: u64, on: On) -> Seen {
        let access =
            Access { site: 0x1000, address, kind: Kind::Load, is_next: false, is_dependent: true };
        Seen { access, thread: Pid(1), time: at as u64 * 1_000_003, on }
    }

    const BASE: On = On::Base { resident: 512 };

    /// Samples on the pages that `page` draws.
    pub(crate) fn samples(count: usize, on: On, mut page: impl FnMut(u64) -> u64) -> Vec<Seen> {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        (0..count)
            .map(|at| {
                let line = random.next_u64() % 64;
                seen(at, START + (page(random.next_u64()) << 12) + 64 * line, on)
            })
            .collect()
    }

    fn saved(seen: &[Seen], windows: &[Replayed]) -> f64 {
        let counts = BTreeMap::from([(0x1004, seen.len() as u32)]);
        let orders = Orders::new(seen, &counts);
        saved_of(seen, windows, seen.len() as f64, &orders)
    }

    fn saved_of(seen: &[Seen], windows: &[Replayed], total: f64, orders: &Orders) -> f64 {
        let model = Model::new(seen, windows, total, &prices(), SHIFTS, orders);
        model.estimate(seen, model.windows()).saved
    }

    /// What uniform use of 1 GiB spends on translation: 50 of 154 ns, less what the nearest distances do not.
    const UNIFORM: f64 = 50.0 / 154.0;

    #[test]
    fn uniform_use_saves_the_price_of_its_translation() {
        let found = saved(&samples(8000, BASE, |random| random % (1 << 18)), &[]);
        assert!((found - UNIFORM).abs() < 0.03, "{found} {UNIFORM}");
        // Half of the samples show no access.
        let half = samples(8000, BASE, |random| random % (1 << 18));
        let orders = Orders::new(&half, &BTreeMap::new());
        let found = saved_of(&half, &[], 16_000.0, &orders);
        assert!((found - UNIFORM / 2.0).abs() < 0.02, "{found}");
    }

    #[test]
    fn little_memory_memory_on_superpages_and_memory_that_stays_save_nothing() {
        assert!(saved(&samples(8000, BASE, |random| random % 64), &[]) < 0.002);
        assert!(saved(&samples(8000, BASE, |random| random % 1024), &[]) < 0.01);
        for on in [On::Superpage, On::Stays] {
            let found = saved(&samples(8000, on, |random| random % (1 << 18)), &[]);
            assert!(found < 0.002, "{on:?} {found}");
        }
        assert_eq!(saved(&[], &[]), 0.0);
    }

    #[test]
    fn skewed_use_saves_less_than_uniform_use() {
        // Half of the uses are of 64 pages. They are half of the accesses if those are as slow; here samples are time.
        let skewed = samples(8000, BASE, |random| match random % 2 {
            0 => (random >> 1) % 64,
            _ => (random >> 1) % (1 << 18),
        });
        let found = saved(&skewed, &[]);
        assert!(found > 0.3 * UNIFORM && found < 0.6 * UNIFORM, "{found}");
    }

    #[test]
    fn what_goes_in_order_saves_the_ends_of_its_pages() {
        let in_order = |pages: u64| {
            let mut at = 0;
            let all = samples(4000, BASE, |_| {
                at = (at + pages) % (1 << 18);
                at
            });
            saved(&all, &[])
        };
        // 20 ns at each of 2.5 million pages a second; slower, because it computes.
        assert!((in_order(2500) - 0.05).abs() < 0.005, "{}", in_order(2500));
        assert!((in_order(250) - 0.005).abs() < 0.001, "{}", in_order(250));
    }

    /// Windows in which each page is used on `lines` different lines in a row.
    fn windows(lines: u64) -> Vec<Replayed> {
        let mut random = Pcg64Mcg::seed_from_u64(9);
        let window = |_| {
            let mut window = Window::default();
            for at in 0..400u64 {
                if at % lines == 0 {
                    random.next_u64();
                }
                let page = random.clone().next_u64() % (1 << 18);
                // Not neighbouring lines, which would be prefetched.
                let address = START + (page << 12) + 64 * (at % lines * 7 % 64);
                window.steps.push(Step {
                    site: 0x1000,
                    address,
                    kind: Kind::Load,
                    after: 4 * at as u32,
                    from: (at as u32).checked_sub(1),
                    branch: None,
                });
            }
            let on = vec![Some(BASE); window.steps.len()];
            Replayed { window, on }
        };
        (0..20).map(window).collect()
    }

    #[test]
    fn repeated_uses_of_a_page_need_its_translation_once() {
        let uniform = samples(8000, BASE, |random| random % (1 << 18));
        let (once, often) = (saved(&uniform, &windows(1)), saved(&uniform, &windows(8)));
        assert!((once - UNIFORM).abs() < 0.04, "{once}");
        // One of eight accesses to main memory has a walk: 50 of 8 × 104 + 50 ns.
        let expected = 50.0 / (8.0 * 104.0 + 50.0);
        assert!((often - expected).abs() < 0.02, "{often} {expected}");
    }
}
