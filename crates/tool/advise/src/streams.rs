//! Which instructions go through memory in order.
//!
//! Samples are milliseconds apart, so neighbouring pages are never seen. But what goes through memory in order goes at
//! a nearly constant rate: the bytes between two samples, divided by the time between them, are the same for most
//! pairs. Random addresses give every rate, of both signs. See docs/decisions/advise.md#7.

use std::collections::BTreeMap;

use units::Pid;

use crate::memory::{On, Seen, Shifts};

/// A sampled access of one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// The thread.
    pub thread: Pid,
    /// Time of the sample in nanoseconds.
    pub time: u64,
    /// The address.
    pub address: u64,
}

/// How an instruction goes through memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// In order, at this many bytes a second of CPU time; less than 0: downwards.
    Sequential(f64),
    /// In no order that samples show.
    Random,
    /// Too few samples to tell.
    Unknown,
}

/// Pairs of samples needed to tell. Of 24 random pairs, the chance that 60 % lie within a factor of two of their median
/// is below 1e-4: such a range holds at most a third of a triangular distribution around 0.
const MIN_PAIRS: usize = 24;
/// Share of pairs at the same rate from which an instruction is sequential. Each return to the begin costs a pair.
const SEQUENTIAL: f64 = 0.6;
/// Longest time between the two samples of a pair, in nanoseconds; a thread that slept meanwhile gives no rate.
const NEAR: u64 = 8 * crate::sampler::PERIOD;

/// Length of code, in bytes to both sides, whose instructions share a time besides waiting.
const AROUND: u64 = 64;
/// Mean length of an instruction, in bytes (inferred: compiled code has 3.5 to 4.5).
const INSTRUCTION: u64 = 4;

/// Tells the order of one instruction's visits, which are sorted by thread and time.
pub fn order(visits: &[Visit]) -> Order {
    let mut rates: Vec<f64> = Vec::with_capacity(visits.len());
    let mut moved = 0;
    for pair in visits.windows(2) {
        let time = pair[1].time.saturating_sub(pair[0].time);
        if pair[0].thread != pair[1].thread || time == 0 || time > NEAR {
            continue;
        }
        let bytes = pair[1].address.wrapping_sub(pair[0].address) as i64;
        moved += usize::from(bytes != 0);
        rates.push(bytes as f64 / time as f64 * 1e9);
    }
    if rates.len() < MIN_PAIRS {
        return Order::Unknown;
    }
    if moved * 2 < rates.len() {
        return Order::Random;
    }
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let (low, high) = (median.abs() / 2.0, median.abs() * 2.0);
    let near = rates
        .iter()
        .filter(|rate| rate.signum() == median.signum() && (low..=high).contains(&rate.abs()));
    match median != 0.0 && near.count() as f64 >= SEQUENTIAL * rates.len() as f64 {
        true => Order::Sequential(median),
        false => Order::Random,
    }
}

/// Sorts visits by instruction, and each instruction's by thread and time.
pub fn by_site(visits: impl Iterator<Item = (u64, Visit)>) -> BTreeMap<u64, Vec<Visit>> {
    let mut sites: BTreeMap<u64, Vec<Visit>> = BTreeMap::new();
    for (site, visit) in visits {
        sites.entry(site).or_default().push(visit);
    }
    for visits in sites.values_mut() {
        visits.sort_unstable_by_key(|visit| (visit.thread, visit.time));
    }
    sites
}

/// Which instructions go in order, and how much of their time is waiting.
#[derive(Debug, Clone, Default)]
pub struct Orders {
    sites: BTreeMap<u64, Order>,
    /// Rates of distinct streams: several instructions of a loop follow one.
    streams: Vec<(f64, bool)>,
    /// Share of each site's samples that waited.
    waiting: BTreeMap<u64, f64>,
}

impl Orders {
    /// Finds what goes in order. `counts` are all samples by instruction pointer, whatever they show.
    pub fn new(seen: &[Seen], counts: &BTreeMap<u64, u32>) -> Self {
        let visit =
            |one: &Seen| Visit { thread: one.thread, time: one.time, address: one.access.address };
        let by_site = by_site(seen.iter().map(|one| (one.access.site, visit(one))));
        let orders = by_site.iter().map(|(site, visits)| (*site, order(visits)));
        let mut result = Self { sites: orders.collect(), ..Self::default() };
        result.join();
        // Distinct streams: those whose site is not within a loop's length of a faster one at the same place in memory.
        let mut known: Vec<(u64, u64, f64)> = Vec::new();
        for (site, visits) in &by_site {
            let Some(Order::Sequential(rate)) = result.sites.get(site) else { continue };
            let middle = visits[visits.len() / 2].address;
            let is_known = known.iter().any(|(other, at, speed)| {
                site.abs_diff(*other) < 4 * AROUND
                    && (speed / rate - 1.0).abs() < 0.5
                    && at.abs_diff(middle) < 1 << 32
            });
            if !is_known {
                known.push((*site, middle, *rate));
                let eligible = seen
                    .iter()
                    .filter(|one| one.access.site == *site)
                    .filter(|one| matches!(one.on, On::Base { .. }));
                result.streams.push((rate.abs(), eligible.count() * 2 > visits.len()));
            }
        }
        result.waiting = waiting(by_site.keys().copied(), counts);
        result
    }

    /// Gives sites with too few samples the order of the site before or after them in the code.
    fn join(&mut self) {
        let known: Vec<(u64, Order)> = self
            .sites
            .iter()
            .filter(|(_, order)| **order != Order::Unknown)
            .map(|(site, order)| (*site, *order))
            .collect();
        for (site, order) in &mut self.sites {
            if *order == Order::Unknown
                && let Some((_, near)) = known
                    .iter()
                    .filter(|(other, _)| other.abs_diff(*site) < 4 * AROUND)
                    .min_by_key(|(other, _)| other.abs_diff(*site))
            {
                *order = *near;
            }
        }
    }

    /// Whether an access is of an instruction that goes in order.
    pub fn is_sequential(&self, one: &Seen) -> bool {
        self.is_in_order(one.access.site)
    }

    fn is_in_order(&self, site: u64) -> bool {
        matches!(self.sites.get(&site), Some(Order::Sequential(_)))
    }

    /// Base pages that all streams pass in a second of CPU time.
    pub fn pages_per_second(&self, shifts: Shifts) -> f64 {
        self.streams.iter().map(|(rate, _)| rate / f64::from(1u32 << shifts.base)).sum()
    }

    /// Number of distinct streams.
    pub fn number_of_streams(&self) -> usize {
        self.streams.len()
    }

    /// Base pages that superpages could hold, and that streams pass in a second of CPU time.
    pub fn eligible_pages_per_second(&self, shifts: Shifts) -> f64 {
        let eligible = self.streams.iter().filter(|(_, is_eligible)| *is_eligible);
        eligible.map(|(rate, _)| rate / f64::from(1u32 << shifts.base)).sum()
    }

    /// The share of a site's samples in which the thread waited, 0 to 1.
    pub fn waits(&self, site: u64) -> f64 {
        self.waiting.get(&site).copied().unwrap_or(1.0)
    }
}

/// The share of each site's samples that waited: those beyond the median of the instructions around it. Every
/// instruction takes time to execute, also one whose access hits, and so has samples without a wait.
fn waiting(sites: impl Iterator<Item = u64>, counts: &BTreeMap<u64, u32>) -> BTreeMap<u64, f64> {
    sites
        .map(|site| {
            let near = counts.range(site.saturating_sub(AROUND)..site + AROUND);
            let mut near: Vec<u32> = near.map(|(_, count)| *count).collect();
            near.sort_unstable();
            let number = (2 * AROUND / INSTRUCTION) as usize;
            // Instructions without samples come first in the order.
            let median = (number / 2 + near.len())
                .checked_sub(number)
                .and_then(|at| near.get(at).copied())
                .unwrap_or(0);
            // The samples of a site are on the instruction after it.
            let most = counts.range(site..site + 16).map(|(_, count)| *count).max().unwrap_or(0);
            let share = match most {
                0 => 1.0,
                most => 1.0 - f64::from(median.min(most)) / f64::from(most),
            };
            (site, share)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand_core::Rng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn visits(addresses: impl Iterator<Item = u64>) -> Vec<Visit> {
        let visit = |(at, address)| Visit { thread: Pid(1), time: at as u64 * 1_000_003, address };
        addresses.enumerate().map(visit).collect()
    }

    #[test]
    fn a_pass_over_an_array_is_sequential_and_its_rate_is_found() {
        // 10 GB/s over 512 MiB: a pass takes 54 samples.
        for step in [10_000_000i64, -10_000_000] {
            let at = |i: i64| (i * step).rem_euclid(512 << 20) as u64 + (1 << 40);
            match order(&visits((0..500).map(at))) {
                Order::Sequential(rate) => {
                    assert!((rate / step as f64 / 1000.0 - 1.0).abs() < 0.05, "{rate}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn random_addresses_and_one_address_are_in_no_order() {
        let mut random = Pcg64Mcg::new(7);
        let anywhere: Vec<u64> = (0..4000).map(|_| random.next_u64() % (1 << 30)).collect();
        assert_eq!(order(&visits(anywhere.into_iter())), Order::Random);
        assert_eq!(order(&visits(std::iter::repeat_n(4096, 100))), Order::Random);
        assert_eq!(order(&visits(0..10)), Order::Unknown);
    }

    /// Over many seeds, as few samples as are accepted never look sequential.
    #[test]
    fn few_random_addresses_are_not_taken_for_a_sequence() {
        let mut taken = 0;
        for seed in 0..2000 {
            let mut random = Pcg64Mcg::new(seed);
            let few: Vec<u64> = (0..=MIN_PAIRS).map(|_| random.next_u64() % (1 << 30)).collect();
            taken += usize::from(matches!(order(&visits(few.into_iter())), Order::Sequential(_)));
        }
        assert!(taken < 20, "{taken} of 2000");
    }

    #[test]
    fn an_instruction_among_others_as_slow_does_not_wait() {
        let near = (0..32u64).map(|at| (0x1000 + 4 * at, 100));
        let counts: BTreeMap<u64, u32> = near.collect();
        assert!(waiting([0x1040].into_iter(), &counts)[&0x1040] < 0.01);
        let alone = BTreeMap::from([(0x1044, 1000)]);
        assert!(waiting([0x1040].into_iter(), &alone)[&0x1040] > 0.99);
    }
}
