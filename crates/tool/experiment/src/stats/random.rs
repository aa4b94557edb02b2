//! The only source of randomness in statistics and schedules: PCG with one stream per purpose. A further draw for one
//! purpose leaves the other streams unchanged, and a report can be rebuilt from its samples and its seed.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// Purpose of the numbers. Each purpose has its own PCG stream under the same seed.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// Order of runs.
    Schedule = 0x5c4ed,
    /// Environment padding and per-run seeds.
    Padding = 0xbad,
    /// Sign flips of blocks.
    Randomization = 0xf11b5,
}

/// A seeded generator. The same seed and stream give the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

impl Random {
    /// Creates the generator of `seed` for one purpose.
    pub fn new(seed: u64, stream: Stream) -> Random {
        Random(Pcg64::new(u128::from(seed), stream as u128))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform number in `0..n`; 0 for `n` = 0. Lemire's multiply-shift with rejection, which has no modulo
    /// bias (Lemire 2019, "Fast random integer generation in an interval").
    pub fn below(&mut self, n: u32) -> u32 {
        let reject_under = n.wrapping_neg().checked_rem(n).unwrap_or(0);
        loop {
            let product = (self.bits() >> 32) * u64::from(n);
            if product as u32 >= reject_under {
                return (product >> 32) as u32;
            }
        }
    }

    /// Shuffles by Fisher-Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u32 + 1) as usize);
        }
    }
}
