//! How many TLB entries a process uses within a time (Denning's working set, in entries).

use super::popularity::{BlockRate, Group};
use crate::memory::{On, Shifts};

/// Points of a [`WorkingSet`]: to 2^44 ns, which is hours.
const POINTS: usize = 89;

/// A table over times.
pub struct WorkingSet {
    /// Entries within 2^(i / 2) nanoseconds.
    now: Vec<f64>,
    /// The same on superpages.
    then: Vec<f64>,
}

impl WorkingSet {
    /// `streamed`: base pages a nanosecond that streams pass.
    pub fn new(
        groups: &[Group],
        rates: &[f64],
        blocks: &[BlockRate],
        streamed: f64,
        shifts: Shifts,
    ) -> Self {
        let used = |rate: f64, time: f64| 1.0 - (-rate * time).exp();
        let per_superpage = f64::from(1u32 << (shifts.superpage - shifts.base));
        let point = |at: usize, superpages: bool| {
            let time = 2f64.powf(at as f64 / 2.0);
            let by_block =
                |on: On| on == On::Superpage || superpages && matches!(on, On::Base { .. });
            let pages: f64 = groups
                .iter()
                .zip(rates)
                .filter(|(group, _)| !by_block(group.on))
                .map(|(group, rate)| group.pages * used(*rate, time))
                .sum();
            let blocks: f64 = blocks
                .iter()
                .filter(|block| by_block(block.on))
                .map(|block| used(block.rate, time))
                .sum();
            let streamed = streamed * time / if superpages { per_superpage } else { 1.0 };
            pages + blocks + streamed
        };
        let table = |superpages| (0..POINTS).map(|at| point(at, superpages)).collect();
        Self { now: table(false), then: table(true) }
    }

    /// Entries used within `time` nanoseconds.
    pub fn now(&self, time: f64) -> f64 {
        between(&self.now, time)
    }

    /// Entries used within `time` nanoseconds on superpages.
    pub fn then(&self, time: f64) -> f64 {
        between(&self.then, time)
    }
}

fn between(table: &[f64], time: f64) -> f64 {
    let at = (time.max(1.0).log2() * 2.0).min((POINTS - 1) as f64);
    let below = (at as usize).min(POINTS - 2);
    let part = at - below as f64;
    table[below] * (1.0 - part) + table[below + 1] * part
}
