//! The live kernels as streams: the sequences come from the kernels' own plans in `workload`, so the simulated accesses
//! equal those of `superpage workload`.
//!
//! Threads take turns. Between two barriers of a kernel the order of its threads is arbitrary; short turns make all
//! threads advance through memory together.

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
use workload::{Options, Settings, Workload, gups as live_gups};

use super::entry::Entry;
use super::entry::Given::{Follows, Number, Word};
use super::{Description, Setup, WorkloadError};

pub(super) use sweep::{Sweep, bytes};

/// Describes a kernel without building it; `None` for kernels that build quickly. Only pagerank
/// takes long, because of its graph.
pub(super) fn describe(setup: &Setup) -> Option<Result<Description, WorkloadError>> {
    (setup.name() == "pagerank").then(|| pagerank::describe(setup))
}

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
    /// Settings of the live kernel.
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

/// A run as a live kernel and as a stream with the same accesses.
#[derive(Debug, Clone, PartialEq)]
pub struct Both {
    /// The live kernel.
    pub workload: Workload,
    /// Its settings.
    pub settings: Settings,
    /// The stream, as a specification.
    pub specification: String,
}

impl Setup {
    /// Returns the run of the live kernel that makes the same accesses. Options that are not given get the live
    /// kernel's defaults, except iterations, which get the stream's default. `None`: the workload is a model without a
    /// live kernel.
    pub fn both(&self) -> Option<Both> {
        let workload: Workload = self.name().parse().ok()?;
        let size = self.size.unwrap_or(workload.default_size());
        let threads = NonZeroUsize::new(self.threads_or(1).into())?;
        let mut settings = Settings { size, seed: self.seed, threads, options: Options::default() };
        let options = &mut settings.options;
        (options.operations, options.graph) = (self.operations, self.graph);
        let (mut iterations, mut lines, mut weight) = (None, None, self.weight);
        match workload {
            Workload::Stream => iterations = self.iterations,
            Workload::Pagerank => iterations = self.iterations.or(Some(pagerank::ITERATIONS)),
            Workload::Touch => {
                iterations = self.iterations.or(Some(touch::REPEAT));
                lines = self.lines.or(Some(1));
            }
            _ => {}
        }
        match workload {
            Workload::Touch => (options.repeat, options.lines) = (iterations, lines),
            _ => options.iterations = iterations,
        }
        if workload == Workload::Gups {
            let updates = live_gups::Plan::new(&settings).updates;
            (settings.options.operations, weight) = (Some(updates), weight.or(Some(1)));
        }
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let given = [
            ("operations", settings.options.operations.map(|value| value.to_string())),
            ("iterations", number(iterations)),
            ("lines", number(lines)),
            ("graph", settings.options.graph.map(|graph| graph.to_string())),
            ("threads", self.threads.map(|threads| threads.to_string())),
            ("weight", number(weight)),
        ];
        let mut specification = format!("{workload}:size={}", size.to_exact());
        for (option, value) in given {
            specification += &value.map_or(String::new(), |value| format!(",{option}={value}"));
        }
        Some(Both { workload, settings, specification })
    }
}

/// Minimum bytes per thread of the live kernels (`crates/shared/workload/src/kind.rs`).
const MIN_PER_THREAD: u64 = 64 << 10;
