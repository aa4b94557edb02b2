//! The kernels that prices are measured with: random and sequential accesses to words that are all 0.
//!
//! Safe code: the check of an index is off the path that is waited for.
//! See docs/decisions/prediction.md#3.

use std::hint::black_box;
use std::time::Duration;

use crate::rng::{SplitMix64, below};
use sys::param::thread_cpu_time;

/// A word of memory.
pub type Word = [u8; 8];

/// Words of a cache line: 64 bytes on every x86-64 and nearly every Arm.
const LINE: usize = 8;

/// Words by which streams lie apart beyond a power of two, as STREAM's arrays do: else their lines fall into the
/// same sets of every cache and the same banks of memory, and wait for each other instead of for translations.
const STREAM_OFFSET: usize = 21_824 / 8;

/// Makes `count` accesses to `words`; nanoseconds of one.
pub type Random = fn(words: &mut [Word], count: u64, seed: u64) -> f64;

/// Loads each of which needs the one before: it is part of the next one's place, and 0, which the
/// processor cannot know.
pub fn dependent(words: &mut [Word], count: u64, seed: u64) -> f64 {
    let (mut rng, limit) = (SplitMix64::new(seed), words.len() as u64);
    let start = thread_cpu_time();
    let mut zero = 0;
    for _ in 0..count {
        let place = below(rng.draw(), limit) as usize + zero;
        zero = u64::from_ne_bytes(words[place]) as usize;
    }
    black_box(zero);
    each(start, count)
}

/// Places that are drawn before they are used: few enough to stay in the first-level cache. Drawn one by one, as
/// many instructions as lie between two accesses keep the core from having as many on their way as it can (GUPS,
/// which draws ahead, took 16 ns on superpages where this was priced at 22).
const AHEAD: usize = 1024;

/// Updates that GUPS draws ahead.
const GUPS_AHEAD: usize = 128;

/// Loads that do not need each other.
pub fn reads(words: &mut [Word], count: u64, seed: u64) -> f64 {
    let mut sum = 0u64;
    let ns = ahead::<AHEAD>(words, count, seed, |words, places| {
        let read = |&place: &u32| u64::from_ne_bytes(words[place as usize]);
        sum = places.iter().map(read).fold(sum, u64::wrapping_add);
    });
    black_box(sum);
    ns
}

/// Words read and written that do not need each other.
pub fn writes(words: &mut [Word], count: u64, seed: u64) -> f64 {
    written::<AHEAD>(words, count, seed)
}

/// The same, as few on their way at once as in GUPS, whose core waits for the last of each batch.
pub fn updates(words: &mut [Word], count: u64, seed: u64) -> f64 {
    written::<GUPS_AHEAD>(words, count, seed)
}

fn written<const BATCH: usize>(words: &mut [Word], count: u64, seed: u64) -> f64 {
    let zero = black_box(0u64);
    let ns = ahead::<BATCH>(words, count, seed, |words, places| {
        for &place in places {
            let word = &mut words[place as usize];
            *word = (u64::from_ne_bytes(*word) ^ zero).to_ne_bytes();
        }
    });
    black_box(words);
    ns
}

/// Has `work` access about `count` words at random, so many at a time; nanoseconds of one.
fn ahead<const BATCH: usize>(
    words: &mut [Word],
    count: u64,
    seed: u64,
    mut work: impl FnMut(&mut [Word], &[u32]),
) -> f64 {
    let (mut rng, limit) = (SplitMix64::new(seed), words.len() as u64);
    let mut places = [0u32; BATCH];
    let batches = count.div_ceil(BATCH as u64);
    let start = thread_cpu_time();
    for _ in 0..batches {
        places.fill_with(|| below(rng.draw(), limit) as u32);
        work(words, &places);
    }
    each(start, batches * BATCH as u64)
}

/// Nanoseconds of reading two quarters of the words side by side in order; of reading one and writing a third, as
/// STREAM's copy does; of reading two and writing a third, as its triad does. A word of every cache line, so that
/// what is timed is the lines' coming and nothing that the core does with them. (With every word, the core took
/// longer than the lines, and STREAM's 17 % did not show.)
pub fn streams(words: &mut [Word]) -> [f64; 3] {
    let quarter = words.len() / 4;
    let len = quarter - 2 * STREAM_OFFSET;
    let (first, rest) = words.split_at_mut(quarter + STREAM_OFFSET);
    let (second, rest) = rest.split_at_mut(quarter + STREAM_OFFSET);
    let (first, second, third) = (&first[..len], &second[..len], &mut rest[..len]);
    let number = |line: &[Word]| u64::from_ne_bytes(line[0]);
    let pairs = || first.chunks_exact(LINE).zip(second.chunks_exact(LINE));

    let start = thread_cpu_time();
    black_box(
        pairs().fold(0u64, |sum, (a, b)| sum.wrapping_add(number(a)).wrapping_add(number(b))),
    );
    let reads = each(start, 1);

    let start = thread_cpu_time();
    for (from, to) in first.chunks_exact(LINE).zip(third.chunks_exact_mut(LINE)) {
        to[0] = from[0];
    }
    black_box(&mut *third);
    let copy = each(start, 1);

    let start = thread_cpu_time();
    for ((a, b), to) in pairs().zip(third.chunks_exact_mut(LINE)) {
        to[0] = (number(a) | number(b)).to_ne_bytes();
    }
    black_box(third);
    [reads, copy, each(start, 1)]
}

/// CPU time, so that what else runs on this CPU does not count.
fn each(start: Duration, count: u64) -> f64 {
    (thread_cpu_time() - start).as_secs_f64() * 1e9 / count as f64
}
