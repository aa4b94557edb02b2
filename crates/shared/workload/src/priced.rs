//! Kernels that measure the costs of random and sequential accesses, to words that are all 0.
//!
//! The code is safe Rust; bounds checks are off the dependent path. See
//! docs/decisions/prediction.md#3.

use std::hint::black_box;
use std::time::Duration;

use crate::rng::{SplitMix64, below};
use sys::param::thread_cpu_time;

/// A word of memory.
pub type Word = [u8; 8];

/// Number of words in a cache line: 64 bytes on every x86-64 and nearly every Arm.
const LINE: usize = 8;

/// Offset in words between streams, beyond a power of two, as between STREAM's arrays. Without the offset, lines of
/// different streams would share cache sets and memory banks and wait for these, not for translations.
const STREAM_OFFSET: usize = 21_824 / 8;

/// Makes `count` accesses to `words`; returns the number of nanoseconds per access.
pub type Random = fn(words: &mut [Word], count: u64, seed: u64) -> f64;

/// Dependent loads: each value, which is 0 but unknown to the CPU, is part of the next address.
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

/// Number of places drawn in advance: few enough for the first-level cache. If places are drawn one by one, the
/// instructions between two accesses limit the number of concurrent accesses. (On superpages, GUPS, which draws ahead,
/// took 16 ns per update, where a loop that did not draw ahead took 22.)
const AHEAD: usize = 1024;

/// Number of updates that GUPS draws in advance.
const GUPS_AHEAD: usize = 128;

/// Makes independent loads.
pub fn reads(words: &mut [Word], count: u64, seed: u64) -> f64 {
    let mut sum = 0u64;
    let ns = batched::<AHEAD>(words, count, seed, |words, places| {
        let read = |&place: &u32| u64::from_ne_bytes(words[place as usize]);
        sum = places.iter().map(read).fold(sum, u64::wrapping_add);
    });
    black_box(sum);
    ns
}

/// Makes independent reads and writes of words.
pub fn writes(words: &mut [Word], count: u64, seed: u64) -> f64 {
    written::<AHEAD>(words, count, seed)
}

/// Like [`writes`], with the concurrency of GUPS, whose core waits for the last access of each batch.
pub fn updates(words: &mut [Word], count: u64, seed: u64) -> f64 {
    written::<GUPS_AHEAD>(words, count, seed)
}

fn written<const BATCH: usize>(words: &mut [Word], count: u64, seed: u64) -> f64 {
    let zero = black_box(0u64);
    let ns = batched::<BATCH>(words, count, seed, |words, places| {
        for &place in places {
            let word = &mut words[place as usize];
            *word = (u64::from_ne_bytes(*word) ^ zero).to_ne_bytes();
        }
    });
    black_box(words);
    ns
}

/// Calls `work` for about `count` random words, in batches; returns the number of nanoseconds per
/// word.
fn batched<const BATCH: usize>(
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

/// Returns nanoseconds of three sequential passes: reading two quarters of the words in parallel; reading one and
/// writing another, as STREAM's copy does; reading two and writing a third, as STREAM's triad does. The passes access
/// one word per cache line, to time the transfer of lines and not the core's work: touching every word would make the
/// loop core-bound and hide the gain of superpages (17 % in STREAM).
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

/// Returns nanoseconds of reading a word of every cache line in order, in one stream.
pub fn one_stream(words: &[Word]) -> f64 {
    let start = thread_cpu_time();
    let (mut sum, mut place) = (0u64, 0);
    // Not an iterator, which little optimization leaves a call a line.
    while let Some(word) = words.get(place) {
        sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        place += LINE;
    }
    black_box(sum);
    each(start, 1)
}

/// Nanoseconds of CPU time per access since `start`. CPU time excludes other load on this CPU.
fn each(start: Duration, count: u64) -> f64 {
    (thread_cpu_time() - start).as_secs_f64() * 1e9 / count as f64
}
