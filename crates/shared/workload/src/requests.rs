//! `requests`: the allocator load of a server, which repeatedly allocates, fills and frees blocks.
//!
//! A request allocates a block of random size (log-uniform between two limits) and writes all of it. Blocks stay until
//! the thread reaches its memory limit. Then the oldest blocks are freed. So the first requests get fresh memory, as on
//! a cold server, and later requests get memory that the allocator kept. The latency of a request includes the frees
//! that make space, the allocation and the filling. Blocks are `Vec`s and come from malloc, so that preloaded
//! allocators and other launch settings affect them.
//!
//! The timed loop allocates nothing but the blocks: queue and recorder are allocated before. The first and last word of
//! each block are checked when the block is freed, and all words of the remaining blocks are checked at the end.

use std::collections::VecDeque;
use std::time::Instant;

use units::ByteSize;

use crate::latency::ticks;
use crate::memory::shares;
use crate::outcome::{Details, Run};
use crate::rng::{SplitMix64, mix};
use crate::tail::{Clock, Recorder};
use crate::team;
use crate::{Look, Settings, Workload, WorkloadError};

/// Default smallest block: a base page of most machines.
const MIN_OBJECT: ByteSize = ByteSize::kib(4);
/// Default largest block: half a superpage of most machines.
const MAX_OBJECT: ByteSize = ByteSize::mib(1);
/// The default number of requests fills the memory limit this many times with blocks of mean size.
const DEFAULT_FILLS: f64 = 4.0;
const WORD: u64 = size_of::<u64>() as u64;

/// The settings of a run, with defaults applied. Lengths are in words of 8 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Memory limit of each thread, in words.
    pub held: u64,
    /// Minimum block length, in words.
    pub smallest: u64,
    /// Maximum block length, in words.
    pub largest: u64,
    /// Number of requests of all threads.
    pub requests: u64,
    /// Number of threads.
    pub threads: usize,
    /// Seed of sizes and contents.
    pub seed: u64,
}

impl Plan {
    /// Applies the defaults. If the default of one block size conflicts with an explicit other size
    /// or with the memory limit, the default is adjusted.
    pub fn new(settings: &Settings) -> Self {
        let threads = settings.threads.get();
        let held = (settings.size.bytes() / threads as u64 / WORD).max(1);
        let asked = &settings.options;
        let words = |size: ByteSize| (size.bytes() / WORD).clamp(1, held);
        let least = asked.smallest.unwrap_or(MIN_OBJECT);
        let largest = words(asked.largest.unwrap_or(MAX_OBJECT.max(least)));
        let smallest = words(least).min(largest);
        let mean = match (largest as f64 / smallest as f64).ln() {
            0.0 => largest as f64,
            logarithm => (largest - smallest) as f64 / logarithm,
        };
        let turned_over = DEFAULT_FILLS * held as f64 * threads as f64 / mean;
        let requests = asked.operations.unwrap_or(turned_over as u64).max(threads as u64);
        Self { held, smallest, largest, requests, threads, seed: settings.seed }
    }

    pub(crate) fn footprint(&self) -> u64 {
        self.held.saturating_mul(self.threads as u64).saturating_mul(WORD)
    }

    /// The block lengths of one thread, in words.
    pub fn lengths(&self, thread: usize) -> impl Iterator<Item = u64> + use<> {
        let mut random = SplitMix64::stream(self.seed, thread as u64);
        let (smallest, largest) = (self.smallest, self.largest);
        let span = (largest as f64 / smallest as f64).ln();
        std::iter::repeat_with(move || {
            let part = (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
            ((smallest as f64 * (part * span).exp()).round() as u64).clamp(smallest, largest)
        })
    }

    /// The value of all words in a thread's block `number`.
    pub fn value(&self, thread: usize, number: u64) -> u64 {
        mix(self.seed ^ mix((thread as u64) << 48 ^ number)) | 1
    }
}

struct Block {
    number: u64,
    words: Vec<u64>,
}

/// State of one thread's loop.
struct Server {
    blocks: VecDeque<Block>,
    leaving: Vec<Block>,
    recorder: Recorder,
    filled: u64,
    broken: u64,
}

impl Server {
    fn new(plan: &Plan) -> Result<Self, WorkloadError> {
        let most = (plan.held / plan.smallest + 1) as usize;
        let at_once = (plan.largest / plan.smallest + 2) as usize;
        let bytes = ByteSize((most as u64).saturating_mul(size_of::<Block>() as u64));
        let failed = |_| WorkloadError::Allocation { what: "the list of blocks", bytes };
        let (mut blocks, mut leaving) = (VecDeque::new(), Vec::new());
        blocks.try_reserve_exact(most).map_err(failed)?;
        leaving.try_reserve_exact(at_once).map_err(failed)?;
        Ok(Self { blocks, leaving, recorder: Recorder::new(), filled: 0, broken: 0 })
    }

    fn serve(&mut self, plan: &Plan, thread: usize, requests: u64) -> Result<(), WorkloadError> {
        let mut held = 0;
        for (number, length) in (0..requests).zip(plan.lengths(thread)) {
            while held + length > plan.held {
                let Some(oldest) = self.blocks.pop_front() else { break };
                held -= oldest.words.len() as u64;
                let value = plan.value(thread, oldest.number);
                let ends = [oldest.words.first(), oldest.words.last()];
                self.broken += u64::from(ends != [Some(&value); 2]);
                self.leaving.push(oldest);
            }
            let value = plan.value(thread, number);
            let start = ticks();
            self.leaving.clear();
            let mut words = Vec::new();
            words.try_reserve_exact(length as usize).map_err(|_| WorkloadError::Allocation {
                what: "a request",
                bytes: ByteSize(length * WORD),
            })?;
            words.resize(length as usize, value);
            self.recorder.record(ticks().wrapping_sub(start));
            held += length;
            self.filled += length;
            self.blocks.push_back(Block { number, words });
        }
        Ok(())
    }

    fn check(&self, plan: &Plan, thread: usize) -> u64 {
        let wrong = |block: &&Block| {
            let value = plan.value(thread, block.number);
            block.words.iter().any(|word| *word != value)
        };
        self.broken + self.blocks.iter().filter(wrong).count() as u64
    }
}

pub(crate) fn run(settings: &Settings, look: Look) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let servers: Result<Vec<_>, _> = (0..plan.threads).map(|_| Server::new(&plan)).collect();
    let shares = shares(plan.requests as usize, plan.threads, 1);
    let items = servers?.into_iter().zip(shares).collect();
    let clock = Clock::start();
    let (served, region) = team::timed(items, |thread, (mut server, share): (Server, _)| {
        server.serve(&plan, thread, share.len() as u64).map(|()| server)
    })?;
    let servers = served.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut recorded = Recorder::new();
    servers.iter().for_each(|server| recorded.add(&server.recorder));
    let latency = clock.latency(&recorded);

    let words = || servers.iter().flat_map(|server| &server.blocks).map(|block| &*block.words);
    let range = |words: &[u64]| {
        let start = words.as_ptr() as u64;
        start..start + words.len() as u64 * WORD
    };
    let superpage_bytes = words().map(|words| look(range(words))).sum();
    let verify = Instant::now();
    let broken: u64 = servers.iter().enumerate().map(|(n, server)| server.check(&plan, n)).sum();
    if broken > 0 {
        let what = format!("{broken} blocks do not hold what was written");
        return Err(WorkloadError::Verification { workload: Workload::Requests, what });
    }
    Ok(Run {
        footprint_bytes: plan.footprint(),
        setup_seconds: 0.0,
        verify_seconds: verify.elapsed().as_secs_f64(),
        figure: plan.requests as f64 / region.seconds,
        details: Details::Requests {
            requests: plan.requests,
            filled_bytes: servers.iter().map(|server| server.filled * WORD).sum(),
            held_bytes: words().map(|words| words.len() as u64 * WORD).sum(),
            superpage_bytes,
            smallest_bytes: plan.smallest * WORD,
            largest_bytes: plan.largest * WORD,
            latency,
        },
        region,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use proptest::prelude::*;
    use std::num::NonZeroUsize;

    fn plan(size: u64, threads: usize, options: Options) -> Plan {
        let threads = NonZeroUsize::new(threads).unwrap();
        let new = Settings::new(Workload::Requests);
        Plan::new(&Settings { size: ByteSize(size), threads, options, ..new })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn memory_is_never_exceeded_and_damage_is_seen(
            size in 1u64 << 17..1 << 20,
            threads in 1usize..3,
            requests in 1u64..300,
        ) {
            let options = Options { operations: Some(requests), ..Options::default() };
            let plan = plan(size, threads, options);
            let mut server = Server::new(&plan).unwrap();
            server.serve(&plan, 0, requests).unwrap();
            let held: usize = server.blocks.iter().map(|block| block.words.len()).sum();
            prop_assert!(held as u64 <= plan.held);
            let served: u64 = plan.lengths(0).take(requests as usize).sum();
            prop_assert_eq!(server.filled, served);
            prop_assert_eq!(server.check(&plan, 0), 0);
            let last = server.blocks.back_mut().unwrap();
            let middle = last.words.len() / 2;
            last.words[middle] ^= 1;
            prop_assert_eq!(server.check(&plan, 0), 1);
        }
    }

    #[test]
    fn limits_give_way_to_each_other_and_to_the_memory() {
        let kib = |smallest, largest| {
            let size = |kib: Option<u64>| kib.map(ByteSize::kib);
            let options =
                Options { smallest: size(smallest), largest: size(largest), ..Options::default() };
            let plan = plan(64 << 20, 2, options);
            (plan.smallest / 128, plan.largest / 128)
        };
        assert_eq!(kib(None, None), (4, 1024));
        assert_eq!(kib(None, Some(2)), (2, 2));
        assert_eq!(kib(Some(4096), None), (4096, 4096));
        assert_eq!(plan(1 << 17, 2, Options::default()).largest, 8192);
        let plan = plan(64 << 20, 1, Options::default());
        let mean = plan.lengths(0).take(10_000).sum::<u64>() as f64 / 10_000.0;
        assert!((plan.requests as f64 * mean / plan.held as f64 / DEFAULT_FILLS - 1.0).abs() < 0.1);
    }
}
