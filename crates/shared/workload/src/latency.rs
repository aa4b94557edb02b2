//! `latency`: the micro-benchmark kernels behind `superpage tlb`: dependent loads from places that the caller chooses,
//! dependent additions, and the counter that times them.
//!
//! Unlike the workloads, these kernels have no figure of merit: the calibration compares places that differ in one
//! property.
//!
//! # Safety
//! Three things here are unsafe. First, following the chain dereferences addresses stored in memory. [`Chain::link`]
//! stores the address of a checked place at every place. All places are in memory that the chain borrows exclusively
//! while it lives, so every load reads the address of a place. If one physical page is mapped at several addresses, two
//! places may coincide and the chain may be shorter than intended, but every word read is still a stored address.
//! Second, the loads and stores are volatile, so the compiler assumes nothing about their values. Third, two
//! instructions (`rdtsc` or `cntvct_el0`, and `add`) are inline assembly that accesses only registers.

use std::marker::PhantomData;

use crate::chase::swaps;

/// A cycle of pointers through places of some memory.
#[derive(Debug)]
pub struct Chain<'a> {
    here: *const usize,
    memory: PhantomData<&'a mut [u8]>,
}

/// An invalid place for a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("place {0} of the memory is not aligned to 8 bytes or lies outside")]
pub struct BadPlace(pub usize);

impl<'a> Chain<'a> {
    /// Links the `places` (offsets in bytes in `memory`) into one cycle in a random order from `seed` (Sattolo's
    /// shuffle).
    pub fn link(memory: &'a mut [u8], places: &[usize], seed: u64) -> Result<Self, BadPlace> {
        let last = memory.len().saturating_sub(size_of::<usize>());
        let base = memory.as_mut_ptr();
        let bad = |place: &usize| {
            *place > last || !(base as usize + place).is_multiple_of(size_of::<usize>())
        };
        if let Some(place) = places.iter().find(|place| bad(place)) {
            return Err(BadPlace(*place));
        }
        let first = *places.first().ok_or(BadPlace(0))?;
        let mut next: Vec<usize> = places.to_vec();
        for (i, j) in swaps(places.len() as u64, seed) {
            next.swap(i as usize, j as usize);
        }
        for (place, next) in places.iter().zip(next) {
            // SAFETY: both places were checked to be aligned and inside `memory`, which is borrowed exclusively.
            unsafe {
                let target = base.add(next) as usize;
                base.add(*place).cast::<usize>().write_volatile(target);
            }
        }
        // SAFETY: checked above.
        let here = unsafe { base.add(first) }.cast();
        Ok(Self { here, memory: PhantomData })
    }

    /// Follows the chain for `loads` loads, rounded up to a multiple of eight; returns the number of elapsed ticks.
    pub fn ticks(&mut self, loads: u64) -> u64 {
        let mut here = self.here;
        let start = ticks();
        for _ in 0..loads.div_ceil(8) {
            // SAFETY: `here` is a linked place, which holds the address of another.
            unsafe {
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
                here = here.read_volatile() as *const usize;
            }
        }
        // Make the counter reading wait for the last load.
        let here = std::hint::black_box(here);
        let end = ticks();
        self.here = here;
        end.wrapping_sub(start)
    }
}

/// Number of loads that [`Chain::ticks`] makes for `loads`.
pub const fn whole(loads: u64) -> u64 {
    loads.div_ceil(8) * 8
}

/// Number of additions per round of [`adds`].
const ROUND: u64 = 100;

/// Makes `rounds` times a hundred dependent additions; returns the number of additions and of elapsed ticks. An
/// addition takes one cycle on all known CPUs. Both operands are registers, because some CPUs (Golden Cove) execute
/// additions of constants in register renaming. `None` on other architectures.
pub fn adds(rounds: u64) -> Option<(u64, u64)> {
    let mut sum = 0u64;
    let one = std::hint::black_box(1u64);
    let start = ticks();
    for _ in 0..rounds {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: adds one register to another; flags are clobbered by default.
        unsafe {
            std::arch::asm!(
                ".rept 100", "add {sum}, {one}", ".endr",
                sum = inout(reg) sum, one = in(reg) one, options(nomem, nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: adds one register to another.
        unsafe {
            std::arch::asm!(
                ".rept 100", "add {sum}, {sum}, {one}", ".endr",
                sum = inout(reg) sum, one = in(reg) one, options(nomem, nostack),
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            sum = std::hint::black_box(sum + ROUND * one);
        }
    }
    let sum = std::hint::black_box(sum);
    let end = ticks();
    let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    (known && sum == rounds * ROUND).then(|| (rounds * ROUND, end.wrapping_sub(start)))
}

/// Reads the time-stamp counter after all earlier instructions have completed (x86-64: RDTSC between LFENCEs; Arm: the
/// virtual counter). On other architectures, returns nanoseconds of the clock.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: every x86-64 has both instructions; user programs may read the counter unless they forbid it by prctl
        // (PR_SET_TSC).
        unsafe {
            _mm_lfence();
            let now = _rdtsc();
            _mm_lfence();
            now
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let now: u64;
        // SAFETY: reads a counter that Linux makes readable for all programs.
        unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) now, options(nostack)) };
        now
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_chain_meets_every_place_once(count in 1usize..500, step in 1usize..20, seed: u64) {
            let mut words = vec![0u64; count * step];
            // SAFETY: a slice of u64 is a slice of bytes, eight times as long; borrowed exclusively.
            let memory = unsafe {
                std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 8 * words.len())
            };
            let base = memory.as_ptr() as u64;
            let places: Vec<usize> = (0..count).map(|i| 8 * i * step).collect();
            let mut chain = Chain::link(memory, &places, seed).unwrap();
            // Enough loads for a counter of 24 MHz.
            prop_assert!(chain.ticks(4096) > 0);
            let mut here = 0u64;
            let mut met = 0;
            loop {
                here = words[(here / 8) as usize] - base;
                met += 1;
                prop_assert_eq!(here % (8 * step as u64), 0);
                if here == 0 {
                    break;
                }
            }
            prop_assert_eq!(met, count);
        }
    }

    #[test]
    fn a_place_outside_is_refused() {
        let mut memory = vec![0u8; 64];
        let odd = usize::from((memory.as_ptr() as usize).is_multiple_of(8));
        for places in [vec![57], vec![usize::MAX], vec![odd], vec![]] {
            assert!(Chain::link(&mut memory, &places, 1).is_err(), "{places:?}");
        }
    }

    #[test]
    fn additions_are_counted_and_take_time() {
        let Some((adds, ticks)) = adds(1000) else {
            return testkit::skipped!("this processor's additions are not known");
        };
        assert_eq!(adds, 100_000);
        // At 10 GHz and with the slowest counter (24 MHz) this takes 240 ticks.
        assert!(ticks > 0);
    }
}
