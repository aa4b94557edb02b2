//! Counts how many superpages each rule of a design made, and how long after they qualified.

use std::collections::BTreeMap;

/// The rule by which a policy wants a superpage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cause {
    /// The reservation has as many pages as the rule requires.
    #[default]
    Mapping,
    /// A daemon fills reservations.
    Filling,
    /// A daemon's scan found the extent.
    Scan,
}

impl Cause {
    pub(crate) const ALL: [Self; 3] = [Self::Mapping, Self::Filling, Self::Scan];

    /// Returns the key of the rule in the design's file.
    pub fn rule(self) -> &'static str {
        match self {
            Self::Mapping => "mapping.when",
            Self::Filling => "preparation.background",
            Self::Scan => "mapping.scan",
        }
    }
}

/// By rule, in the order of [`Cause::ALL`]: the number of extents that were wanted and not made, and of those held.
pub(crate) type Left = [(u64, u64); 3];

/// Counts of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// The rule.
    pub cause: Cause,
    /// Number of superpages that the policy wanted.
    pub wanted: u64,
    /// Number of superpages that were made.
    pub made: u64,
    /// Number of superpages that were made without a copy.
    pub in_place: u64,
    /// Number of superpages that lacked pages. They were filled with zeroed pages.
    pub filled: u64,
    /// Number of zeroed pages added to these superpages.
    pub filled_pages: u64,
    /// Number of failed attempts, by errno.
    pub failed: BTreeMap<&'static str, u64>,
    /// Number of superpages whose memory was unmapped, or whose process ended, before they were made.
    pub gone: u64,
    /// Number of superpages that waited at the end, because making them would have held the program up for over 2 % of its
    /// CPU time.
    pub waiting: u64,
    /// Number of superpages that were not made, because too much filled memory is unused.
    pub held: u64,
    /// Delay from when memory qualified to when it was a superpage; `None`: no superpage was made.
    pub latency: Option<Latency>,
}

/// Delays of many superpages, in seconds. They are upper bounds, because memory qualified at some time before the look
/// that saw it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Median.
    pub median_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
}

impl Latency {
    /// Computes the percentiles of delays in microseconds.
    pub fn from_ticks(ticks: Vec<u64>) -> Option<Self> {
        Delays(ticks).latency()
    }
}

impl Account {
    pub(crate) fn new(cause: Cause) -> Self {
        Self {
            cause,
            wanted: 0,
            made: 0,
            in_place: 0,
            filled: 0,
            filled_pages: 0,
            failed: BTreeMap::new(),
            gone: 0,
            waiting: 0,
            held: 0,
            latency: None,
        }
    }
}

/// Delays in ticks; a tick is a microsecond.
#[derive(Debug, Default)]
pub(crate) struct Delays(Vec<u64>);

impl Delays {
    pub(crate) fn add(&mut self, ticks: u64) {
        self.0.push(ticks);
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Returns the percentile in seconds; `None` if there are no delays.
    pub(crate) fn within(&mut self, percent: usize) -> Option<f64> {
        self.0.sort_unstable();
        let index = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(index).map(|&ticks| ticks as f64 / 1e6)
    }

    pub(crate) fn latency(&mut self) -> Option<Latency> {
        let (median_seconds, p99_seconds) = (self.within(50)?, self.within(99)?);
        Some(Latency { median_seconds, p99_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ticks: impl IntoIterator<Item = u64>) -> Delays {
        let mut delays = Delays::default();
        ticks.into_iter().for_each(|ticks| delays.add(ticks));
        delays
    }

    #[test]
    fn so_many_took_no_longer() {
        assert_eq!(of([]).latency(), None);
        let one = of([7]).latency().unwrap();
        assert_eq!((one.median_seconds, one.p99_seconds), (7e-6, 7e-6));
        // The delays are sorted. Of an even number, the median is the lower of the two middle values.
        let few = of([40, 10, 30, 20]).latency().unwrap();
        assert_eq!((few.median_seconds, few.p99_seconds), (20e-6, 40e-6));
        let many = of((1..=1000).rev()).latency().unwrap();
        assert_eq!((many.median_seconds, many.p99_seconds), (500e-6, 990e-6));
    }

    /// Reference model: sorts all delays.
    #[test]
    fn each_percentile_is_the_least_that_so_many_are_within() {
        let mut seed = 1u64;
        for count in [1, 2, 3, 10, 99, 100, 101, 1000] {
            let ticks: Vec<u64> = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                seed >> 44
            })
            .take(count)
            .collect();
            for percent in [1, 50, 95, 99, 100] {
                let is_within = |most: &&u64| {
                    ticks.iter().filter(|at| at <= most).count() * 100 >= count * percent
                };
                let least = ticks.iter().filter(is_within).min().map(|&at| at as f64 / 1e6);
                assert_eq!(of(ticks.clone()).within(percent), least, "{percent} % of {count}");
            }
        }
    }

    #[test]
    fn what_is_appended_counts_anew() {
        let (mut all, mut more) = (of([1, 2]), of([30]));
        assert_eq!(all.within(100), Some(2e-6));
        all.append(&mut more);
        assert_eq!((all.within(100), more.within(100)), (Some(30e-6), None));
    }
}
