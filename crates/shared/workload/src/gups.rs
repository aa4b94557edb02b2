//! `gups`: HPCC RandomAccess. A table of words, updated by xor at random places.
//!
//! As in HPCC (RandomAccess, `core_single_cpu.c`), initially `table[i] = i`. Each update xors a random number into the
//! word that the number selects. Applying the same updates again must restore `table[i] = i`. Three differences: The
//! generator is SplitMix64 (with HPCC's LFSR each index is nearly twice the previous one). The size of the table need
//! not be a power of two. No update is lost: thread `t` of `T` owns stripes `t, t + T, ...` of 256 bytes, so every
//! thread accesses every page of the table, but no two threads write to the same word. (HPCC's threads race, and HPCC
//! tolerates 1 % errors.) A stripe has four cache lines, more than the pairs that prefetchers fetch together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::memory::{Zeroed, shares};
use crate::outcome::{Details, Run};
use crate::rng::{SplitMix64, below};
use crate::team::{self, Region};
use crate::{Settings, Workload, WorkloadError};

/// Number of words in a stripe. Each stripe belongs to one thread.
pub const STRIPE: u64 = 32;
/// Number of updates drawn in advance, as in HPCC's reference (its rules allow 1024). The update loop then has few
/// instructions, so many more updates can wait for memory at the same time.
const LOOK_AHEAD: usize = 128;
/// Maximum of the default number of updates (one per word): a second or two on base pages. (HPCC makes four per word,
/// which takes minutes; many short runs tell a comparison more than few long ones.)
const MAX_DEFAULT_UPDATES: u64 = 1 << 25;

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of words in the table.
    pub words: u64,
    /// Number of updates of all threads together.
    pub updates: u64,
    /// Number of threads.
    pub threads: u64,
    /// The seed.
    pub seed: u64,
}

impl Plan {
    /// Applies the defaults.
    pub fn new(settings: &Settings) -> Self {
        let words = settings.size.bytes() / 8 / STRIPE * STRIPE;
        let threads = settings.threads.get() as u64;
        let default = words.min(MAX_DEFAULT_UPDATES);
        let updates = settings.options.operations.unwrap_or(default).max(threads);
        Self { words, updates, threads, seed: settings.seed }
    }

    pub(crate) fn footprint(&self) -> u64 {
        self.words * 8
    }

    /// Returns the updates of `thread`, in order.
    pub fn updates(&self, thread: u64) -> Updates {
        let stripes = self.words / STRIPE;
        let owned = stripes.saturating_sub(thread).div_ceil(self.threads) * STRIPE;
        let share = shares(self.updates as usize, self.threads as usize, 1);
        Updates {
            rng: SplitMix64::stream(self.seed, thread),
            owned,
            threads: self.threads,
            thread,
            left: share[thread as usize].len() as u64,
        }
    }
}

/// The updates of one thread: (index of the word, number to xor into it). `owned` is never 0.
#[derive(Debug, Clone)]
pub struct Updates {
    rng: SplitMix64,
    owned: u64,
    threads: u64,
    thread: u64,
    left: u64,
}

impl Iterator for Updates {
    type Item = (u64, u64);

    #[inline]
    fn next(&mut self) -> Option<(u64, u64)> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let number = self.rng.draw();
        let own = below(number, self.owned);
        let stripe = own / STRIPE * self.threads + self.thread;
        Some((stripe * STRIPE + own % STRIPE, number))
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let setup = Instant::now();
    let table = Zeroed::<AtomicU64>::new("the gups table", plan.words as usize)?;
    fill(&table, plan.threads)?;
    let setup_seconds = setup.elapsed().as_secs_f64();
    let region = update(&table, &plan)?;
    let verify = Instant::now();
    update(&table, &plan)?;
    check(&table, plan.threads)?;
    Ok(Run {
        footprint_bytes: plan.footprint(),
        setup_seconds,
        verify_seconds: verify.elapsed().as_secs_f64(),
        figure: plan.updates as f64 / region.seconds,
        region,
        details: Details::Gups { updates: plan.updates, table_words: plan.words },
    })
}

fn fill(table: &[AtomicU64], threads: u64) -> Result<(), WorkloadError> {
    let ranges = shares(table.len(), threads as usize, STRIPE as usize);
    team::timed(ranges, |_, range| {
        for (index, word) in range.clone().zip(&table[range]) {
            word.store(index as u64, Relaxed);
        }
    })?;
    Ok(())
}

fn update(table: &[AtomicU64], plan: &Plan) -> Result<Region, WorkloadError> {
    let (_, region) = team::timed_numbers(plan.threads as usize, |thread| {
        let mut updates = plan.updates(thread as u64);
        let mut drawn = [(0, 0); LOOK_AHEAD];
        loop {
            let count = drawn.iter_mut().zip(&mut updates).map(|(slot, next)| *slot = next).count();
            for &(index, number) in &drawn[..count] {
                let word = &table[index as usize];
                word.store(word.load(Relaxed) ^ number, Relaxed);
            }
            if count < LOOK_AHEAD {
                break;
            }
        }
    })?;
    Ok(region)
}

fn check(table: &[AtomicU64], threads: u64) -> Result<(), WorkloadError> {
    let ranges = shares(table.len(), threads as usize, STRIPE as usize);
    let (wrong, _) = team::timed(ranges, |_, range| {
        let words = range.clone().zip(&table[range]);
        words.filter(|(index, word)| word.load(Relaxed) != *index as u64).count()
    })?;
    match wrong.into_iter().sum::<usize>() {
        0 => Ok(()),
        wrong => Err(WorkloadError::Verification {
            workload: Workload::Gups,
            what: format!("{wrong} of {} words differ after the updates were undone", table.len()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(stripes: u64, updates: u64, threads: u64, seed: u64) -> Plan {
        Plan { words: stripes * STRIPE, updates, threads, seed }
    }

    fn table(plan: &Plan) -> Zeroed<AtomicU64> {
        let table = Zeroed::new("a test", plan.words as usize).unwrap();
        fill(&table, plan.threads).unwrap();
        table
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn equals_a_naive_loop_and_undoes_itself(
            stripes in 5u64..200, updates in 5u64..5000, threads in 1u64..6, seed: u64,
        ) {
            let plan = plan(stripes, updates, threads, seed);
            let live = table(&plan);
            update(&live, &plan).unwrap();
            let mut naive = (0..plan.words).collect::<Vec<_>>();
            let mut made = 0;
            for thread in 0..threads {
                for (index, number) in plan.updates(thread) {
                    prop_assert_eq!(index / STRIPE % threads, thread, "owner");
                    naive[index as usize] ^= number;
                    made += 1;
                }
            }
            prop_assert_eq!(made, updates);
            let live_words = live.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>();
            prop_assert_eq!(live_words, naive);
            prop_assert!(check(&live, threads).is_err());
            update(&live, &plan).unwrap();
            prop_assert!(check(&live, threads).is_ok());
        }
    }

    #[test]
    fn one_flipped_bit_is_found() {
        let plan = plan(100, 1000, 2, 3);
        let table = table(&plan);
        update(&table, &plan).unwrap();
        table[1234].fetch_xor(1 << 40, Relaxed);
        update(&table, &plan).unwrap();
        let error = check(&table, plan.threads).unwrap_err().to_string();
        assert!(error.contains("gups: verification failed: 1 of 3200 words"), "{error}");
    }

    #[test]
    fn updates_reach_every_stripe_alike() {
        let plan = plan(64, 64_000, 3, 9);
        let mut hits = vec![0u32; 64];
        (0..3).flat_map(|t| plan.updates(t)).for_each(|(i, _)| hits[(i / STRIPE) as usize] += 1);
        assert!(hits.iter().all(|&n| (800..1200).contains(&n)), "{hits:?}");
    }
}
