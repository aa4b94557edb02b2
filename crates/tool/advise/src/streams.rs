//! Which instructions go through memory in order.
//!
//! Samples are milliseconds apart, so neighbouring pages are never seen. But what goes through memory in order goes at
//! a nearly constant rate: the bytes between two samples, divided by the time between them, are the same for most
//! pairs. Random addresses give every rate, of both signs.

use std::collections::BTreeMap;

use units::Pid;

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
}
