//! The live kernels as streams: the sequences come from the kernels' own plans in `workload`, so
//! that what is simulated is what `superpage workload` runs.
//!
//! Threads take turns. Between two meetings of a kernel's threads their order is free, and turns are
//! as good an order as any; they are short, so that all threads advance through memory together.

mod btree;
mod chase;
mod gups;
mod hashmap;
mod pagerank;
mod stream;
mod sweep;
mod touch;

use std::num::NonZeroUsize;

use units::ByteSize;
use workload::{Options, Settings};

use super::entry::Entry;
use super::entry::Given::{Follows, Number, Word};
use super::{Setup, WorkloadError};

pub(super) use sweep::{Sweep, bytes};

/// The kernels.
pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "gups",
        summary: "random xor updates of a table of words (HPCC RandomAccess); live kernel",
        options: &["size", "operations", "threads", "weight"],
        defaults: |_, _| {
            vec![Number(gups::SIZE), Number(gups::UPDATES), Number(1), Number(gups::WEIGHT.into())]
        },
        build: gups::build,
    },
    Entry {
        name: "chase",
        summary: "dependent loads along one random cycle through every cache line; live kernel",
        options: &["size", "operations", "threads", "weight"],
        defaults: |_, _| {
            vec![Number(chase::SIZE), Follows("size / 64: its lines"), Number(1), Number(1)]
        },
        build: chase::build,
    },
    Entry {
        name: "stream",
        summary: "copy, scale, add and triad over three arrays (McCalpin's STREAM); live kernel",
        options: &["size", "iterations", "threads"],
        defaults: |_, _| {
            vec![Number(stream::SIZE), Number(workload::stream::ITERATIONS.into()), Number(1)]
        },
        build: stream::build,
    },
    Entry {
        name: "touch",
        summary: "first touch of fresh pages by all threads (the page-fault test of 2005); live kernel",
        options: &["size", "iterations", "lines", "threads"],
        defaults: |_, _| {
            vec![Number(touch::SIZE), Number(touch::REPEAT.into()), Number(1), Number(1)]
        },
        build: touch::build,
    },
    Entry {
        name: "pagerank",
        summary: "pull PageRank on a generated Kronecker or uniform graph (GAP); live kernel",
        options: &["size", "iterations", "graph", "threads"],
        defaults: |_, _| {
            vec![
                Number(pagerank::SIZE),
                Number(pagerank::ITERATIONS.into()),
                Word("kronecker"),
                Number(1),
            ]
        },
        build: pagerank::build,
    },
    Entry {
        name: "btree",
        summary: "random lookups, 3 of 4 present, in a static B+-tree; live kernel",
        options: &["size", "operations", "threads", "weight"],
        defaults: |_, _| {
            vec![Number(btree::SIZE), Follows("its keys, 16777216 at most"), Number(1), Number(1)]
        },
        build: btree::build,
    },
    Entry {
        name: "hashmap",
        summary: "random lookups, 3 of 4 present, in an open-addressing hash table; live kernel",
        options: &["size", "operations", "threads", "weight"],
        defaults: |_, _| {
            vec![Number(hashmap::SIZE), Follows("its keys, 16777216 at most"), Number(1), Number(1)]
        },
        build: hashmap::build,
    },
];

impl Setup {
    /// The live kernel's settings.
    fn settings(&self, size: u64, threads: u16) -> Result<Settings, WorkloadError> {
        let least = u64::from(threads) * MIN_PER_THREAD;
        if size < least {
            let why = format!("{threads} thread(s) need {least} bytes or more");
            return Err(self.refuse("size", size, &why));
        }
        Ok(Settings {
            size: ByteSize(size),
            seed: self.seed,
            threads: NonZeroUsize::new(threads.into()).unwrap_or(NonZeroUsize::MIN),
            options: Options {
                operations: self.operations,
                graph: self.graph,
                ..Options::default()
            },
        })
    }
}

/// The live kernels' own lower limit (`crates/workload/src/kind.rs`).
const MIN_PER_THREAD: u64 = 64 << 10;
