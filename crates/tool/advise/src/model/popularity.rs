//! How often the pages of a process are used, from samples: the independent reference model.

use std::collections::BTreeMap;

use super::Part;
use super::price::{KINDS, Price, Table, kind_of};
use super::working_set::WorkingSet;
use crate::memory::{LINE, On, Seen, Shifts};
use crate::streams::Orders;

/// Turns of computing prices and frequencies from each other.
const TURNS: usize = 5;
/// Samples on one page from which the page counts by itself.
const HEAVY: usize = 8;
/// Pairs of samples on one page that are supposed before any is seen, as if all pages of a block were used alike: few
/// samples of much memory show so few pairs that chance decides.
const SUPPOSED: f64 = 10.0;

/// A group of equally often used pages.
pub struct Group {
    /// First address of its superpage-sized block.
    pub block: u64,
    /// The page, if the group is one page.
    pub page: Option<u64>,
    /// What memory it is.
    pub on: On,
    /// Number of pages of the group.
    pub pages: f64,
    /// Samples by kind of access.
    pub samples: [f64; KINDS],
    /// Index of the block.
    pub of_block: usize,
    /// Share of its pages' lines in use. Of pages with few samples: all.
    pub lines: f64,
}

/// How often a superpage-sized block is used.
pub struct BlockRate {
    /// What memory it is.
    pub on: On,
    /// Uses a nanosecond.
    pub rate: f64,
}

/// How often the pages of a process are used.
pub struct Popularity {
    /// All pages in use.
    pub groups: Vec<Group>,
    /// Uses a nanosecond of one page of each group.
    rates: Vec<f64>,
    blocks: Vec<BlockRate>,
    working: WorkingSet,
    /// Groups of single pages, by page number.
    heavy: BTreeMap<u64, usize>,
    /// Groups of a block's other pages, by the block's first address.
    light: BTreeMap<u64, usize>,
}

impl Popularity {
    /// Computes frequencies from samples at accesses in no order. `total` is the number of all samples.
    pub fn new(
        random: &[&Seen],
        total: f64,
        table: &Table,
        shifts: Shifts,
        orders: &Orders,
    ) -> Self {
        let groups = groups(random, shifts, orders);
        let number = groups.iter().map(|group| group.of_block + 1).max().unwrap_or(0);
        // Pages a nanosecond that streams bring in.
        let streamed = orders.pages_per_second(shifts) * 1e-9;
        let first = |kind: usize| table.floor[kind] + table.prices[kind].data[20];
        let mut costs = vec![std::array::from_fn::<f64, KINDS, _>(first); groups.len()];
        let none = || BlockRate { on: On::Stays, rate: 0.0 };
        let mut turn = 0;
        loop {
            let mut blocks: Vec<BlockRate> = (0..number).map(|_| none()).collect();
            let mut rates = Vec::with_capacity(groups.len());
            for (group, cost) in groups.iter().zip(&costs) {
                let uses: f64 = group
                    .samples
                    .iter()
                    .zip(cost)
                    .map(|(samples, cost)| samples / total / cost)
                    .sum();
                let block = &mut blocks[group.of_block];
                block.on = group.on;
                block.rate += uses;
                rates.push(uses / group.pages);
            }
            let working = WorkingSet::new(&groups, &rates, &blocks, streamed, shifts);
            turn += 1;
            if turn == TURNS {
                let (mut heavy, mut light) = (BTreeMap::new(), BTreeMap::new());
                for (at, group) in groups.iter().enumerate() {
                    match group.page {
                        Some(page) => heavy.insert(page, at),
                        None => light.insert(group.block, at),
                    };
                }
                return Self { groups, rates, blocks, working, heavy, light };
            }
            for (at, group) in groups.iter().enumerate() {
                let block_rate = blocks[group.of_block].rate;
                for (kind, cost) in costs[at].iter_mut().enumerate() {
                    if group.samples[kind] > 0.0 {
                        let price = table.price(
                            kind,
                            rates[at],
                            block_rate,
                            group.lines,
                            group.on,
                            &working,
                        );
                        *cost = (*cost * price.whole).sqrt();
                    }
                }
            }
        }
    }

    /// The price of a use of the page at an address, used as often as samples say.
    pub fn price(&self, table: &Table, kind: usize, address: u64, on: On, shifts: Shifts) -> Price {
        let start = address >> shifts.superpage << shifts.superpage;
        let group = self.heavy.get(&(address >> shifts.base)).or_else(|| self.light.get(&start));
        let (rate, block_rate, lines) = match group {
            Some(&at) => {
                let group = &self.groups[at];
                (self.rates[at], self.blocks[group.of_block].rate, group.lines)
            }
            // No sample was on it: used more rarely than anything that was.
            None => {
                let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
                let least = if least.is_finite() { least } else { 1e-9 };
                (least, least * 8.0, 1.0)
            }
        };
        table.price(kind, rate, block_rate.max(rate), lines, on, &self.working)
    }

    /// Number of samples on pages that have few each.
    pub fn exposed(&self) -> f64 {
        let light = self.groups.iter().filter(|group| group.page.is_none());
        light.flat_map(|group| group.samples).sum()
    }

    /// The parts of a sampled access, as if independent of all others.
    pub fn part(&self, table: &Table, one: &Seen, shifts: Shifts) -> Part {
        let price = self.price(table, kind_of(&one.access), one.access.address, one.on, shifts);
        Part { base: price.base / price.whole, superpage: price.superpage / price.whole }
    }
}

/// Groups samples: heavily used pages by themselves, the rest of each block together.
fn groups(random: &[&Seen], shifts: Shifts, orders: &Orders) -> Vec<Group> {
    let mut pages: BTreeMap<u64, (On, usize, [f64; KINDS])> = BTreeMap::new();
    let mut lines: BTreeMap<u64, BTreeMap<u64, usize>> = BTreeMap::new();
    for one in random {
        let page = one.access.address >> shifts.base;
        let entry = pages.entry(page).or_insert((one.on, 0, [0.0; KINDS]));
        *lines.entry(page).or_default().entry(one.access.address >> LINE).or_default() += 1;
        entry.1 += 1;
        entry.2[kind_of(&one.access)] += orders.waits(one.access.site);
    }
    let within = shifts.superpage - shifts.base;
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64 / 2.0;
    // Pages in effective use per block, from how often two samples of a block are on one page.
    let mut blocks: BTreeMap<u64, (usize, f64)> = BTreeMap::new();
    for (page, (_, count, _)) in &pages {
        if *count < HEAVY {
            let block = blocks.entry(page >> within).or_default();
            block.0 += *count;
            block.1 += pairs(*count);
        }
    }
    let all: f64 = blocks.values().map(|(count, _)| pairs(*count)).sum();
    let same: f64 = blocks.values().map(|(_, same)| same).sum();
    let most = f64::from(1u32 << within);
    let mean = (all + SUPPOSED * most) / (same + SUPPOSED);
    let mut groups: Vec<Group> = Vec::new();
    let mut light: BTreeMap<u64, usize> = BTreeMap::new();
    let mut numbers: BTreeMap<u64, usize> = BTreeMap::new();
    for (page, (on, count, samples)) in pages {
        let block = page >> within;
        let next = numbers.len();
        let of_block = *numbers.entry(block).or_insert(next);
        let start = block << shifts.superpage;
        if count >= HEAVY {
            let lines = lines_in_use(&lines[&page], shifts);
            let page = Some(page);
            groups.push(Group { block: start, page, on, pages: 1.0, samples, of_block, lines });
            continue;
        }
        let place = *light.entry(block).or_insert_with(|| {
            let (count, same) = blocks[&block];
            let own = if same >= 16.0 { pairs(count) / same } else { mean };
            let most = match on {
                On::Base { resident } => f64::from(resident.max(1)),
                _ => f64::from(1u32 << within),
            };
            let pages = own.max(1.0).min(most);
            groups.push(Group {
                block: start,
                page: None,
                on,
                pages,
                samples: [0.0; KINDS],
                of_block,
                lines: 1.0,
            });
            groups.len() - 1
        });
        for (sum, more) in groups[place].samples.iter_mut().zip(samples) {
            *sum += more;
        }
    }
    groups.retain(|group| group.samples.iter().sum::<f64>() > 0.0);
    groups
}

/// The share of a page's lines in use, from how often two of its samples are on one line.
fn lines_in_use(lines: &BTreeMap<u64, usize>, shifts: Shifts) -> f64 {
    let most = f64::from(1u32 << (shifts.base - LINE));
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64 / 2.0;
    let same: f64 = lines.values().copied().map(pairs).sum();
    (pairs(lines.values().sum()) / same.max(1.0)).clamp(1.0, most) / most
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::model::tests::samples;

    #[test]
    fn few_samples_of_much_memory_do_not_make_it_little() {
        let shifts = Shifts { base: 12, superpage: 21 };
        let pages = |count: usize, seed: u64, used: u64| -> f64 {
            let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
            // Of each of 512 blocks, these pages.
            let all = samples(count, On::Base { resident: 512 }, |_| {
                let draw = random.next_u64();
                ((draw % 512) << 9) | ((draw >> 32) % used)
            });
            let all: Vec<&Seen> = all.iter().collect();
            let groups = groups(&all, shifts, &Orders::default());
            groups.iter().map(|group| group.pages).sum::<f64>() / groups.len() as f64
        };
        for seed in 0..20 {
            let uniform = pages(1200, seed, 512);
            assert!((300.0..=512.0).contains(&uniform), "{uniform}");
            let few = pages(8000, seed, 16);
            assert!((12.0..=24.0).contains(&few), "{few}");
        }
    }
}
