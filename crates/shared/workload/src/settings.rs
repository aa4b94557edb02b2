//! `Settings`: the settings of a run, and the options with their ranges. Each kernel's `Plan` applies and documents the
//! defaults.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};
use units::ByteSize;

use crate::{Graph, Workload, WorkloadError, usage};

/// Settings of a run. All randomness comes from `seed`; runs with equal settings make the same accesses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Memory size in bytes.
    pub size: ByteSize,
    /// The seed of every random choice.
    pub seed: u64,
    /// Number of threads in the timed region, including the calling thread.
    pub threads: NonZeroUsize,
    /// Options of individual workloads; `None` selects the workload's default.
    pub options: Options,
}

impl Settings {
    /// The default settings: the workload's default size, seed 1, one thread, default options.
    pub fn new(workload: Workload) -> Self {
        Self {
            size: workload.default_size(),
            seed: 1,
            threads: NonZeroUsize::MIN,
            options: Options::default(),
        }
    }
}

/// Options of individual workloads. [`Workload::options`] lists those that apply; setting any other option is an error,
/// so that a mistyped option is not silently ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Options {
    /// gups: number of updates; chase: number of loads of each thread; btree, hashmap: number of
    /// lookups; requests: number of requests.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub operations: Option<u64>,
    /// stream: number of passes over its four loops, 2 to 256; pagerank: maximum number of
    /// iterations, 1 to 1000.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub iterations: Option<u32>,
    /// touch: number of times that the memory is allocated and touched.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub repeat: Option<u32>,
    /// touch: number of cache lines touched in each page.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub lines: Option<u32>,
    /// touch: allocate, touch and free the memory in pieces of this size.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE"))]
    pub burst: Option<ByteSize>,
    /// touch: milliseconds of sleep before each piece.
    #[cfg_attr(feature = "clap", arg(long, value_name = "MS"))]
    pub gap: Option<u32>,
    /// touch: fault the pages in before touching them (MADV_POPULATE_WRITE).
    #[cfg_attr(feature = "clap", arg(long))]
    pub populate: bool,
    /// touch: time each first touch of a page.
    #[cfg_attr(feature = "clap", arg(long))]
    pub latency: bool,
    /// requests: smallest block.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE"))]
    pub smallest: Option<ByteSize>,
    /// requests: largest block.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE"))]
    pub largest: Option<ByteSize>,
    /// pagerank: graph, kronecker or uniform.
    #[cfg_attr(feature = "clap", arg(long, value_name = "KIND"))]
    pub graph: Option<Graph>,
    /// stream: offset of each array from a superpage boundary, a multiple of 8 below 1M [default: 21824;
    /// `compare` shifts it by cache lines while equal runs differ too much].
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE"))]
    pub offset: Option<ByteSize>,
}

/// STREAM's largest value is 2·15^passes, which overflows beyond 261 passes.
const MAX_STREAM_PASSES: u64 = 256;
const MAX_PAGERANK_ITERATIONS: u64 = 1000;
const MAX_OPERATIONS: u64 = 1 << 48;
const MAX_GAP: u64 = 60_000;
/// A block of `requests` is at least one word.
const MIN_BLOCK: u64 = 8;

impl Options {
    /// Every option with its value: a size in bytes, a switch has the value 1.
    fn values(&self) -> [(&'static str, Option<u64>); 12] {
        [
            ("operations", self.operations),
            ("iterations", self.iterations.map(u64::from)),
            ("repeat", self.repeat.map(u64::from)),
            ("lines", self.lines.map(u64::from)),
            ("burst", self.burst.map(ByteSize::bytes)),
            ("gap", self.gap.map(u64::from)),
            ("smallest", self.smallest.map(ByteSize::bytes)),
            ("largest", self.largest.map(ByteSize::bytes)),
            ("graph", self.graph.map(|graph| graph as u64)),
            ("offset", self.offset.map(ByteSize::bytes)),
            ("populate", self.populate.then_some(1)),
            ("latency", self.latency.then_some(1)),
        ]
    }

    /// Command-line arguments that reproduce the options.
    pub fn to_arguments(&self) -> Vec<String> {
        let word = |option: &str, value: u64| match (option, self.graph) {
            ("populate" | "latency", _) => None,
            ("graph", Some(graph)) => Some(graph.to_string()),
            ("burst" | "smallest" | "largest" | "offset", _) => Some(ByteSize(value).to_exact()),
            _ => Some(value.to_string()),
        };
        let given = self.values().into_iter().filter_map(|(option, value)| Some((option, value?)));
        let words = |(option, value)| [Some(format!("--{option}")), word(option, value)];
        given.flat_map(words).flatten().collect()
    }

    /// Drops the options that `workload` lacks, for options that were given for several workloads.
    pub fn for_workload(&self, workload: Workload) -> Self {
        let has = |option: &str| workload.options().contains(&option);
        Self {
            operations: self.operations.filter(|_| has("operations")),
            iterations: self.iterations.filter(|_| has("iterations")),
            repeat: self.repeat.filter(|_| has("repeat")),
            lines: self.lines.filter(|_| has("lines")),
            burst: self.burst.filter(|_| has("burst")),
            gap: self.gap.filter(|_| has("gap")),
            populate: self.populate && has("populate"),
            latency: self.latency && has("latency"),
            smallest: self.smallest.filter(|_| has("smallest")),
            largest: self.largest.filter(|_| has("largest")),
            graph: self.graph.filter(|_| has("graph")),
            offset: self.offset.filter(|_| has("offset")),
        }
    }

    /// Refuses options that `workload` lacks and values out of range; `share` is the number of bytes per thread.
    pub(crate) fn check(&self, workload: Workload, share: u64) -> Result<(), WorkloadError> {
        for (option, value) in self.values().into_iter().filter_map(|(o, v)| v.map(|v| (o, v))) {
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
            ("offset", _) => (0, crate::stream::OFFSET_LIMIT - 8),
            ("repeat", _) => (1, u64::from(u32::MAX)),
            ("burst", _) => (page, u64::MAX),
            ("gap", _) => (0, MAX_GAP),
            ("smallest", _) => (MIN_BLOCK, share),
            ("largest", _) => (self.smallest.map_or(MIN_BLOCK, ByteSize::bytes), share),
            _ => (0, u64::MAX),
        }
    }
}
