//! Latency distributions of single accesses and requests, recorded while a kernel runs.
//!
//! Distributions of several runs can be merged. Recorded values are ticks of [`crate::latency::ticks`]. They are
//! converted to seconds afterwards, with the ticks and the duration of the whole run. Recording allocates nothing: a
//! [`Recorder`] allocates all its memory when it is created.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::latency::ticks;

/// Number of significant decimal digits of a bucket: a bucket is at most 1 % wide.
const DIGITS: u8 = 2;
/// Maximum recorded ticks: seven minutes at 2.6 GHz. Longer latencies count as this value; the true
/// maximum is stored separately.
const MAX_TICKS: u64 = 1 << 40;
/// Number of consecutive counter readings, to measure the cost of a reading.
const READINGS: usize = 2001;

/// Latencies recorded by one thread.
#[derive(Debug, Clone)]
pub struct Recorder {
    ticks: Histogram<u64>,
    most: u64,
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Self {
        let ticks = Histogram::new_with_bounds(1, MAX_TICKS, DIGITS);
        Self { ticks: ticks.expect("bounds and digits that the crate takes"), most: 0 }
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.ticks.saturating_record(ticks.max(1));
        self.most = self.most.max(ticks);
    }

    /// Adds the latencies of another recorder.
    pub fn add(&mut self, other: &Self) {
        self.ticks.add(&other.ticks).expect("both have the same bounds");
        self.most = self.most.max(other.most);
    }

    fn distribution(&self, seconds_per_tick: f64) -> Distribution {
        let middle = |value: u64| self.ticks.median_equivalent(value).min(self.most);
        let mut buckets: Vec<(f64, u64)> = self
            .ticks
            .iter_recorded()
            .map(|found| {
                let ticks = middle(found.value_iterated_to());
                (ticks as f64 * seconds_per_tick, found.count_at_value())
            })
            .collect();
        if let Some(last) = buckets.last_mut() {
            last.0 = last.0.max(self.most as f64 * seconds_per_tick);
        }
        Distribution { buckets }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Converts ticks to seconds, and measures the cost of reading the counter.
#[derive(Debug)]
pub struct Clock {
    began: (Instant, u64),
    /// Median ticks between two consecutive readings.
    reading: u64,
}

impl Clock {
    /// Starts the clock, before the first recording.
    pub fn start() -> Self {
        let mut readings = [0u64; READINGS];
        for reading in &mut readings {
            let before = ticks();
            *reading = ticks().wrapping_sub(before);
        }
        readings.sort_unstable();
        Self { began: (Instant::now(), ticks()), reading: readings[READINGS / 2] }
    }

    /// Converts latencies recorded since the start.
    pub fn latency(&self, recorded: &Recorder) -> Latency {
        let ticks = ticks().wrapping_sub(self.began.1).max(1);
        let seconds_per_tick = self.began.0.elapsed().as_secs_f64() / ticks as f64;
        let timer_seconds = self.reading as f64 * seconds_per_tick;
        Latency { timer_seconds, distribution: recorded.distribution(seconds_per_tick) }
    }
}

/// A latency distribution, with the cost of timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Seconds that the timing itself takes. Included in every latency, not subtracted.
    pub timer_seconds: f64,
    /// Distribution of the latencies.
    pub distribution: Distribution,
}

/// A distribution of latencies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Pairs of a latency in seconds (exact to 1 %) and the number of recorded latencies in this bucket, ascending. The
    /// last latency is the exact maximum.
    pub buckets: Vec<(f64, u64)>,
}

impl Distribution {
    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The quantile `q` in seconds: the smallest time that at least a share `q` of the latencies did not exceed; `None`
    /// if empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let reached = self.buckets.iter().find(|(_, count)| {
            below += count;
            below >= rank
        });
        reached.or(self.buckets.last()).map(|(seconds, _)| *seconds)
    }

    /// The maximum in seconds.
    pub fn longest(&self) -> Option<f64> {
        self.buckets.last().map(|(seconds, _)| *seconds)
    }

    /// Merges the distributions of several runs.
    pub fn joined<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut buckets: Vec<(f64, u64)> =
            all.into_iter().flat_map(|one| one.buckets.iter().copied()).collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            values in prop::collection::vec(1u64..1 << 34, 1..400),
            cut in 0usize..400,
            q in 0.0f64..=1.0,
        ) {
            let mut parts = [Recorder::new(), Recorder::new()];
            for (place, value) in values.iter().enumerate() {
                parts[usize::from(place < cut)].record(*value);
            }
            let joined = Distribution::joined(&parts.clone().map(|part| part.distribution(0.5)));
            let [mut together, other] = parts;
            together.add(&other);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let exact = sorted[rank - 1] as f64 * 0.5;
            for found in [&together.distribution(0.5), &joined] {
                prop_assert_eq!(found.count(), values.len() as u64);
                let quantile = found.quantile(q).unwrap();
                prop_assert!((quantile / exact - 1.0).abs() <= 0.01, "{} for {}", quantile, exact);
                let longest = *sorted.last().unwrap() as f64 * 0.5;
                prop_assert_eq!(found.longest(), Some(longest));
            }
        }
    }

    #[test]
    fn nothing_and_what_is_beyond_the_bounds() {
        assert_eq!(Recorder::new().distribution(1.0).quantile(0.5), None);
        let mut recorder = Recorder::new();
        recorder.record(0);
        recorder.record(u64::MAX / 2);
        let found = recorder.distribution(1.0);
        assert_eq!((found.count(), found.longest()), (2, Some((u64::MAX / 2) as f64)));
    }

    #[test]
    fn the_clock_knows_what_it_costs() {
        let clock = Clock::start();
        let mut recorder = Recorder::new();
        for _ in 0..1000 {
            let start = ticks();
            recorder.record(ticks().wrapping_sub(start));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        let latency = clock.latency(&recorder);
        assert!(latency.timer_seconds > 0.0 && latency.distribution.count() == 1000);
    }
}
