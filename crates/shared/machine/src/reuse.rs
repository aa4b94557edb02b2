//! Reuse distances of page-table cache lines, as numbers of walks, and the share of lines that caches still hold. See
//! docs/decisions/lab-model.md#17.

use super::Machine;
use crate::walk::{DATA_LINES_PER_WALK, LINE};

/// Histogram buckets per doubling of the distance.
const PER_DOUBLING: usize = 4;
const BUCKETS: usize = 32 * PER_DOUBLING;

type Counts = [f64; BUCKETS];

/// Distribution of the number of walks between successive reads of the same line of leaf entries.
#[derive(Debug, Clone)]
pub struct Reuse {
    /// Number of reuses, by distance.
    reused: Box<Counts>,
    /// Number of lines not yet reused, by the number of walks since their last read (censored
    /// observations).
    censored: Box<Counts>,
}

impl Default for Reuse {
    fn default() -> Self {
        Self { reused: Box::new([0.0; BUCKETS]), censored: Box::new([0.0; BUCKETS]) }
    }
}

impl Reuse {
    /// Records that a line was reused after `walks` walks.
    #[inline]
    pub fn again(&mut self, walks: u32) {
        self.reused[bucket(walks)] += 1.0;
    }

    /// Records that a line was read `walks` walks ago and not since.
    #[inline]
    pub fn waiting(&mut self, walks: u32) {
        self.censored[bucket(walks)] += 1.0;
    }

    /// Adds `count` reuses at distance zero; a negative `count` removes the nearest reuses.
    pub fn near(&mut self, mut count: f64) {
        for own in self.reused.iter_mut() {
            *own += count;
            count = own.min(0.0);
            *own = own.max(0.0);
            if count == 0.0 {
                return;
            }
        }
    }

    /// Returns the share of walks at each observed reuse distance, and the share beyond the largest observed distance.
    /// Uses Kaplan and Meier's estimator (JASA 1958): lines not yet reused count as censored.
    fn distances(&self) -> (Vec<(f64, f64)>, f64) {
        let both = || self.reused.iter().zip(self.censored.iter());
        let mut at_risk: f64 = both().map(|(reused, censored)| reused + censored).sum();
        let (mut found, mut left) = (Vec::new(), 1.0);
        for (at, (&reused, &censored)) in both().enumerate() {
            if reused > 0.0 {
                let now = left * reused / (at_risk - censored / 2.0);
                found.push((distance(at), now));
                left -= now;
            }
            at_risk -= reused + censored;
        }
        (found, left.max(0.0))
    }
}

/// Share of the loads that hit in a cache of `capacity` lines.
///
/// The cache has random replacement. Each walk brings in r lines of data, and its own page-table line if that line
/// missed. So a line is still cached after n walks with probability e^(-n · (r + missed) / capacity). Beyond the
/// observed distances, n is distributed geometrically, as for `lines` lines with uniform use. Without observations the
/// result equals [`Machine::load_cycles`].
fn resident(capacity: f64, (found, left): &(Vec<(f64, f64)>, f64), lines: f64) -> f64 {
    let seen = found.last().map_or(0.0, |&(walks, _)| walks);
    let mut hits = 0.0;
    // Iterate from 0 hits upwards to the least fixed point, where a cache that starts empty ends
    // up.
    for _ in 0..STEPS {
        let taken = (DATA_LINES_PER_WALK + 1.0 - hits) / capacity;
        let kept = |&(walks, part): &(f64, f64)| part * (-walks * taken).exp();
        let later = left * (-seen * taken).exp() / (1.0 + lines * taken);
        let now = found.iter().map(kept).sum::<f64>() + later;
        if (now - hits).abs() < 1e-5 {
            return now;
        }
        hits = now;
    }
    hits
}

/// Number of iterations. No tested distribution needed more.
const STEPS: usize = 64;

impl Machine {
    /// Mean cycles of a load of a leaf entry for the recorded reuse distances, with `bytes` bytes of leaf entries.
    pub fn leaf_cycles(&self, reuse: &Reuse, bytes: u64) -> f64 {
        let distances = reuse.distances();
        let lines = bytes.div_ceil(LINE).max(1) as f64;
        self.mean_cycles(|capacity| resident(capacity, &distances, lines))
    }
}

fn bucket(walks: u32) -> usize {
    let walks = walks.max(1);
    let doublings = walks.ilog2();
    let rest = (u64::from(walks) << 2 >> doublings) as usize & (PER_DOUBLING - 1);
    doublings as usize * PER_DOUBLING + rest
}

/// Midpoint of a bucket.
fn distance(bucket: usize) -> f64 {
    let (doublings, rest) = (bucket / PER_DOUBLING, bucket % PER_DOUBLING);
    let width = (doublings as f64).exp2() / PER_DOUBLING as f64;
    (PER_DOUBLING + rest) as f64 * width + (width - 1.0).max(0.0) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simple generator; only the distribution matters.
    fn geometric(mean: f64, seed: &mut u64) -> u32 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = ((*seed >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (1.0 - uniform.ln() * mean) as u32
    }

    #[test]
    fn lines_used_alike_cost_what_load_cycles_says() {
        let machine = crate::preset("e3-1245v6").unwrap();
        for lines in [100u32, 2_000, 41_000, 400_000] {
            let (mut seed, bytes) = (1, u64::from(lines) * LINE);
            let alike = machine.load_cycles(bytes);
            // Observation time in multiples of the mean distance; lines not reused within this time are censored.
            for looked in [0.0, 0.1, 1.0, 10.0] {
                let mut reuse = Reuse::default();
                let until = (f64::from(lines) * looked) as u32;
                for _ in 0..20_000 {
                    let walks = geometric(f64::from(lines), &mut seed);
                    if walks < until { reuse.again(walks) } else { reuse.waiting(until) }
                }
                let own = machine.leaf_cycles(&reuse, bytes);
                assert!((own / alike - 1.0).abs() < 0.05, "{lines}, {looked}: {own} {alike}");
            }
        }
    }

    #[test]
    fn a_few_lines_among_many_cost_less() {
        let machine = crate::preset("e3-1245v6").unwrap();
        let mut reuse = Reuse::default();
        (0..9_000).for_each(|_| reuse.again(40));
        (0..1_000).for_each(|_| reuse.again(2_000_000));
        let memory = f64::from(machine.memory_cycles);
        let near = f64::from(machine.caches[0].cycles);
        let expected = 0.9 * near + 0.1 * memory;
        assert!((machine.leaf_cycles(&reuse, 1 << 30) / expected - 1.0).abs() < 0.15);
        // This removes all reuses at distance zero and some others.
        reuse.near(-9_500.0);
        assert!(machine.leaf_cycles(&reuse, 1 << 30) > 0.99 * memory);
    }

    #[test]
    fn buckets_hold_what_their_middle_says() {
        for walks in (1..200).chain([1000, 65_535, 65_536, 1 << 30, u32::MAX]) {
            let middle = distance(bucket(walks));
            assert!((middle / f64::from(walks) - 1.0).abs() < 0.13, "{walks}: {middle}");
        }
        assert!(bucket(u32::MAX) < BUCKETS);
    }
}
