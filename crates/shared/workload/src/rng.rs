//! The random generator of all kernels: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! The generator applies a bijection to a counter. Unlike with `rand_pcg`, draws are independent computations (two
//! multiplications, which overlap with memory accesses). Draw number `i` can be computed directly, so a sequence can be
//! split anywhere.

/// Step of the counter: 2^64 divided by the golden ratio, odd.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A seeded sequence of 64-bit numbers with period 2^64.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts the sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Starts one of many sequences of a seed, for example for the thread or the edge with this
    /// `number`.
    #[inline]
    pub const fn stream(seed: u64, number: u64) -> Self {
        Self(mix(seed ^ mix(number.wrapping_add(GOLDEN))))
    }

    /// The next number.
    #[inline]
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }
}

/// The bijection of SplitMix64; maps only 0 to 0.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Scales `draw` to `0..limit` by the high half of a product (Lemire 2019, without the rejection
/// step: the bias is below limit / 2^64). Works for any limit, without a division.
#[inline]
pub const fn below(draw: u64, limit: u64) -> u64 {
    ((draw as u128 * limit as u128) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn draws_the_published_numbers() {
        // Vigna's splitmix64.c with x = 1234567.
        let mut rng = SplitMix64::new(1234567);
        for expected in [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ] {
            assert_eq!(rng.draw(), expected);
        }
    }

    proptest! {
        #[test]
        fn stays_below_the_limit(draw: u64, limit in 1u64..) {
            prop_assert!(below(draw, limit) < limit);
        }

        #[test]
        fn mixing_keeps_numbers_apart(a: u64, b: u64) {
            prop_assert_eq!(mix(a) == mix(b), a == b);
            prop_assert_eq!(mix(a) == 0, a == 0);
        }
    }
}
