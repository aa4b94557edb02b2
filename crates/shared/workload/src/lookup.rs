//! Shared by `btree` and `hashmap`: queries, timed loop and verification.
//!
//! A query consists of a random key number, and whether to look up a present key (3 of 4 queries) or an absent one. The
//! verification draws the same queries again and computes the expected result from the numbers alone, without the data
//! structure.

use std::time::Instant;

use crate::WorkloadError;
use crate::memory::shares;
use crate::outcome::{Details, Run};
use crate::rng::{SplitMix64, below, mix};
use crate::team::{self, Region};
use crate::{Settings, Workload};

/// Maximum default number of lookups: a few seconds.
const MAX_DEFAULT_LOOKUPS: u64 = 1 << 24;

/// A data structure of `keys()` numbered keys. A key's number determines the key.
pub trait Index: Sync {
    /// Number of keys in the structure.
    fn keys(&self) -> u64;
    /// Returns key `number` of the structure.
    fn present(&self, number: u64) -> u64;
    /// Returns an absent key, a different one for each number.
    fn absent(&self, number: u64) -> u64;
    /// Looks `key` up.
    fn get(&self, key: u64) -> Option<u64>;
}

/// The value stored under `key`.
#[inline]
pub const fn value(key: u64) -> u64 {
    mix(key ^ 0x7375_7065_7270_6167)
}

/// A drawn query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// The key's number.
    pub number: u64,
    /// Whether to look up the present or the absent key of that number.
    pub present: bool,
}

impl Query {
    #[inline]
    fn key(self, index: &impl Index) -> u64 {
        if self.present { index.present(self.number) } else { index.absent(self.number) }
    }
}

/// Returns the queries of thread number `thread` of `threads` threads, in order.
pub fn queries(
    keys: u64,
    lookups: u64,
    seed: u64,
    thread: usize,
    threads: usize,
) -> impl Iterator<Item = Query> {
    let count = shares(lookups as usize, threads, 1)[thread].len();
    let mut rng = SplitMix64::stream(seed, thread as u64);
    (0..count).map(move |_| {
        let draw = rng.draw();
        Query { number: below(draw, keys), present: draw & 3 != 0 }
    })
}

/// Number of lookups of the run.
pub(crate) fn lookups(settings: &Settings, keys: u64) -> u64 {
    let default = keys.min(MAX_DEFAULT_LOOKUPS);
    settings.options.operations.unwrap_or(default).max(settings.threads.get() as u64)
}

/// Result of lookups: number of hits, and sum of the values found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub hits: u64,
    pub sum: u64,
}

impl Found {
    #[inline]
    fn add(self, value: u64) -> Self {
        Self { hits: self.hits + 1, sum: self.sum.wrapping_add(value) }
    }

    fn total(parts: Vec<Self>) -> Self {
        parts.into_iter().fold(Self::default(), |total, part| Self {
            hits: total.hits + part.hits,
            sum: total.sum.wrapping_add(part.sum),
        })
    }
}

/// A complete run: builds the structure, looks up and verifies.
pub(crate) fn run<I: Index>(
    workload: Workload,
    settings: &Settings,
    footprint_bytes: u64,
    build: impl FnOnce() -> Result<I, WorkloadError>,
) -> Result<Run, WorkloadError> {
    let setup = Instant::now();
    let index = build()?;
    let setup_seconds = setup.elapsed().as_secs_f64();
    let lookups = lookups(settings, index.keys());
    let (found, region) = look_up(&index, settings, lookups)?;
    let verify = Instant::now();
    check(workload, &index, settings, lookups, found)?;
    Ok(Run {
        footprint_bytes,
        setup_seconds,
        verify_seconds: verify.elapsed().as_secs_f64(),
        figure: lookups as f64 / region.seconds,
        region,
        details: Details::Lookup { keys: index.keys(), lookups, hits: found.hits },
    })
}

pub(crate) fn look_up(
    index: &impl Index,
    settings: &Settings,
    lookups: u64,
) -> Result<(Found, Region), WorkloadError> {
    let threads = settings.threads.get();
    let (found, region) = team::timed_numbers(threads, |thread| {
        let mut found = Found::default();
        for query in queries(index.keys(), lookups, settings.seed, thread, threads) {
            if let Some(value) = index.get(query.key(index)) {
                found = found.add(value);
            }
        }
        found
    })?;
    Ok((Found::total(found), region))
}

pub(crate) fn check(
    workload: Workload,
    index: &impl Index,
    settings: &Settings,
    lookups: u64,
    found: Found,
) -> Result<(), WorkloadError> {
    let threads = settings.threads.get();
    let (expected, _) = team::timed_numbers(threads, |thread| {
        queries(index.keys(), lookups, settings.seed, thread, threads)
            .filter(|query| query.present)
            .fold(Found::default(), |sum, query| sum.add(value(index.present(query.number))))
    })?;
    let expected = Found::total(expected);
    if found == expected {
        return Ok(());
    }
    Err(WorkloadError::Verification {
        workload,
        what: format!(
            "{lookups} lookups found {} keys with checksum {}, not {} with {}",
            found.hits, found.sum, expected.hits, expected.sum
        ),
    })
}
