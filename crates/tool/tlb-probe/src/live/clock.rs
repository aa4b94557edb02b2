//! `Meter`: converts ticks of the time-stamp counter to core cycles. The counter's frequency is constant; the core
//! clock is measured with one-cycle additions before and after every chase.

use std::time::Instant;

use workload::latency::{adds, ticks};

use crate::probe::Clock;
use crate::statistics::median;

#[derive(Debug)]
pub(super) struct Meter {
    start: (Instant, u64),
    /// Number of core cycles per tick, one value for each chase.
    ratios: Vec<f64>,
    retried: u32,
}

/// Tolerated relative change of the clock during a chase.
const CLOCK_TOLERANCE: f64 = 0.01;
/// Maximum attempts to get a chase with a steady clock.
const ATTEMPTS: u32 = 4;
/// Rounds of a hundred additions: about 5 microseconds.
const ROUNDS: u64 = 200;

impl Meter {
    pub fn new() -> Self {
        Self { start: (Instant::now(), ticks()), ratios: Vec::new(), retried: 0 }
    }

    /// Converts the ticks that `measure` returns to core cycles; repeats the measurement if the core clock changed
    /// meanwhile.
    pub fn cycles(&mut self, mut measure: impl FnMut() -> f64) -> f64 {
        let mut attempt = 1;
        loop {
            let before = ratio();
            let ticks = measure();
            let after = ratio();
            let (Some(before), Some(after)) = (before, after) else { return ticks };
            let mean = (before + after) / 2.0;
            if (before - after).abs() <= CLOCK_TOLERANCE * mean || attempt == ATTEMPTS {
                self.ratios.push(mean);
                return ticks * mean;
            }
            self.retried += 1;
            attempt += 1;
        }
    }

    /// Returns the clocks measured so far.
    pub fn clock(&self) -> Clock {
        let micros = self.start.0.elapsed().as_secs_f64() * 1e6;
        let counter = ticks().wrapping_sub(self.start.1) as f64 / micros;
        let mut sorted = self.ratios.clone();
        sorted.sort_by(f64::total_cmp);
        // Without a measured ratio, a tick counts as a cycle.
        let core = if sorted.is_empty() { 1.0 } else { median(&sorted) };
        // Treat the extreme hundredth of the readings at either end as disturbed.
        let at = |share: f64| {
            let index = ((sorted.len().max(1) - 1) as f64 * share).round() as usize;
            sorted.get(index).copied().unwrap_or(1.0) * counter
        };
        Clock {
            core_mhz: core * counter,
            counter_mhz: Some(counter),
            seen_mhz: (at(0.01), at(0.99)),
            retried: self.retried,
        }
    }
}

/// Number of core cycles per tick: the maximum of three readings, because disturbances add ticks.
fn ratio() -> Option<f64> {
    let reading = || adds(ROUNDS).map(|(adds, ticks)| adds as f64 / ticks.max(1) as f64);
    [reading()?, reading()?, reading()?].into_iter().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_are_those_of_a_computer() {
        let mut meter = Meter::new();
        let cycles = meter.cycles(|| {
            let start = ticks();
            std::thread::sleep(std::time::Duration::from_millis(20));
            ticks().wrapping_sub(start) as f64
        });
        let clock = meter.clock();
        // Sanity check of the unit, not of this machine's speed.
        assert!((100.0..20_000.0).contains(&clock.core_mhz), "{clock:?}");
        assert!((1.0..20_000.0).contains(&clock.counter_mhz.unwrap()), "{clock:?}");
        assert!(clock.seen_mhz.0 <= clock.core_mhz && clock.core_mhz <= clock.seen_mhz.1);
        assert!(cycles > 0.019 * 1e6 * 100.0, "{cycles}");
    }
}
