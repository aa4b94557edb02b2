//! `Settings`: what a caller asks of a workload, and the options with their ranges. The defaults
//! are applied by each kernel's `Plan`, which is where their reasons stand.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use units::ByteSize;

use crate::{Graph, Workload, WorkloadError, usage};

/// What to run. Everything random comes from `seed`; two runs with equal settings make the same
/// accesses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The memory to work on.
    pub size: ByteSize,
    /// The seed of every random choice.
    pub seed: u64,
    /// The threads of the timed region, this one included.
    pub threads: NonZeroUsize,
    /// What only some workloads have; `None` takes the workload's default.
    pub options: Options,
}

impl Settings {
    /// The settings of a run nobody said anything about: the workload's default size, seed 1, one
    /// thread, default options.
    pub fn new(workload: Workload) -> Self {
        Self {
            size: workload.default_size(),
            seed: 1,
            threads: NonZeroUsize::MIN,
            options: Options::default(),
        }
    }
}

/// Options that only some workloads have. [`Workload::options`] says which; setting another is an
/// error, so that a mistyped experiment is not run silently without it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// gups: updates, all threads together. chase: loads by each thread. btree, hashmap:
    /// lookups, all threads together. At least one per thread.
    pub operations: Option<u64>,
    /// stream: passes over the four kernels (NTIMES), 2 to 256. pagerank: the most iterations,
    /// 1 to 1000.
    pub iterations: Option<u32>,
    /// touch: how often all of the memory is allocated and touched, 1 or more.
    pub repeat: Option<u32>,
    /// touch: cache lines touched in each page, 1 to all of them.
    pub lines: Option<u32>,
    /// touch: memory is allocated, touched and freed in pieces of this size, at most all of it at once.
    pub burst: Option<ByteSize>,
    /// touch: milliseconds of rest before each piece.
    pub gap: Option<u32>,
    /// touch: the kernel is asked to fault pages in ahead (`MADV_POPULATE_WRITE`).
    pub populate: bool,
    /// touch: each page's first touch is timed by itself.
    pub latency: bool,
    /// requests: the smallest block.
    pub smallest: Option<ByteSize>,
    /// requests: the largest block.
    pub largest: Option<ByteSize>,
    /// pagerank: which graph.
    pub graph: Option<Graph>,
    /// stream: bytes by which each array starts later than the one before, seen from a superpage
    /// boundary; a multiple of 8 below 1 MiB.
    pub offset: Option<ByteSize>,
}

/// 2·15^passes is the largest value STREAM computes; beyond 261 passes it is no longer a number.
const MAX_STREAM_PASSES: u64 = 256;
const MAX_PAGERANK_ITERATIONS: u64 = 1000;
const OFFSET_LIMIT: u64 = 1 << 20;
const MAX_OPERATIONS: u64 = 1 << 48;
const MAX_GAP: u64 = 60_000;
/// A block of `requests` is at least a word.
const MIN_BLOCK: u64 = 8;

impl Options {
    /// Refuses options that `workload` lacks and values out of range; `share` is each thread's memory.
    pub(crate) fn check(&self, workload: Workload, share: u64) -> Result<(), WorkloadError> {
        let given = [
            ("operations", self.operations),
            ("iterations", self.iterations.map(u64::from)),
            ("repeat", self.repeat.map(u64::from)),
            ("lines", self.lines.map(u64::from)),
            ("burst", self.burst.map(ByteSize::bytes)),
            ("gap", self.gap.map(u64::from)),
            ("populate", self.populate.then_some(1)),
            ("latency", self.latency.then_some(1)),
            ("smallest", self.smallest.map(ByteSize::bytes)),
            ("largest", self.largest.map(ByteSize::bytes)),
            ("graph", self.graph.map(|graph| graph as u64)),
            ("offset", self.offset.map(ByteSize::bytes)),
        ];
        for (option, value) in given.into_iter().filter_map(|(o, v)| v.map(|v| (o, v))) {
            if !workload.options().contains(&option) {
                let takes = workload.options().iter().map(|o| format!("--{o}"));
                let takes = takes.collect::<Vec<_>>().join(", ");
                return Err(WorkloadError::NoSuchOption { workload, option, takes });
            }
            let (least, most) = self.range(workload, option, share);
            let allowed = if option == "offset" && value % 8 != 0 {
                "a multiple of 8 bytes".to_string()
            } else if !(least..=most).contains(&value) {
                format!("{least} to {most}")
            } else {
                continue;
            };
            return Err(WorkloadError::BadOption { workload, option, value, allowed });
        }
        Ok(())
    }

    fn range(&self, workload: Workload, option: &str, share: u64) -> (u64, u64) {
        let page = usage::page_size().bytes();
        match (option, workload) {
            ("operations", _) => (1, MAX_OPERATIONS),
            ("iterations", Workload::Stream) => (2, MAX_STREAM_PASSES),
            ("iterations", _) => (1, MAX_PAGERANK_ITERATIONS),
            ("lines", _) => (1, page / crate::touch::LINE),
            ("offset", _) => (0, OFFSET_LIMIT - 8),
            ("repeat", _) => (1, u64::from(u32::MAX)),
            ("burst", _) => (page, u64::MAX),
            ("gap", _) => (0, MAX_GAP),
            ("smallest", _) => (MIN_BLOCK, share),
            ("largest", _) => (self.smallest.map_or(MIN_BLOCK, ByteSize::bytes), share),
            _ => (0, u64::MAX),
        }
    }
}
