//! `Outcome`: the document a run yields, schema `superpage.workload/1`, one line of JSON. Base units; `null` is unknown; a run that failed its verification has
//! no outcome.

use serde::{Deserialize, Serialize};

use crate::tail::Latency;
use crate::team::Region;
use crate::{Graph, Settings, Workload};

/// Name and version of the document.
pub const SCHEMA: &str = "superpage.workload/1";

/// What one verified run was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Which kernel.
    pub workload: Workload,
    /// The size asked for, in bytes.
    pub size_bytes: u64,
    /// The most memory the run held at once, in bytes.
    pub footprint_bytes: u64,
    /// The seed of every random choice.
    pub seed: u64,
    /// Threads in the timed region.
    pub threads: usize,
    /// Seconds from the first allocation to the start of the timed region: allocation, first touch
    /// and initialization. 0 for `touch`, whose timed region they are.
    pub setup_seconds: f64,
    /// Seconds of the timed region, from the moment all threads were ready.
    pub seconds: f64,
    /// CPU seconds of the timed region, of all threads, in user mode and in the kernel; `null` if the kernel
    /// does not say.
    pub cpu_seconds: Option<f64>,
    /// Seconds the verification took.
    pub verify_seconds: f64,
    /// The figure of merit.
    pub figure: Figure,
    /// Minor page faults in the timed region, counted by the kernel; `null` if it does not say.
    pub minor_faults: Option<u64>,
    /// What this workload alone reports.
    pub details: Details,
    /// Always true: the result was checked against an independent computation.
    pub verified: bool,
}

impl Outcome {
    /// The document on one line of JSON, without a newline.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings always serialize")
    }
}

/// A figure of merit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// How much of it.
    pub value: f64,
    /// In which unit.
    pub unit: String,
    /// Which direction is an improvement.
    pub better: Better,
}

/// Which direction of a figure is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// What one workload alone reports. The object's fields say which it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Details {
    /// `gups`.
    Gups {
        /// Updates made, all threads together.
        updates: u64,
        /// 64-bit words in the table.
        table_words: u64,
    },
    /// `chase`.
    Chase {
        /// Cache lines in the cycle.
        nodes: u64,
        /// Loads made by each thread.
        loads_per_thread: u64,
    },
    /// `stream`.
    Stream {
        /// Elements of 8 bytes in each of the three arrays.
        elements: u64,
        /// Passes over the four kernels; the first is not counted in the rates.
        iterations: u64,
        /// By how much each array starts later than the one before, in bytes.
        offset_bytes: u64,
        /// c = a.
        copy: StreamKernel,
        /// b = 3 c.
        scale: StreamKernel,
        /// c = a + b.
        add: StreamKernel,
        /// a = b + 3 c.
        triad: StreamKernel,
    },
    /// `touch`: the columns of the table of 2005, and what they leave out.
    Touch {
        /// "Gb": GiB allocated and touched in each repetition.
        gib: f64,
        /// "Rep": repetitions.
        repeat: u64,
        /// "CLine": cache lines touched in each page.
        lines: u64,
        /// "User": CPU seconds in user mode, all threads; `null` if unknown.
        user_seconds: Option<f64>,
        /// "System": CPU seconds in the kernel, all threads; `null` if unknown.
        system_seconds: Option<f64>,
        /// "Wall": seconds, all repetitions together.
        wall_seconds: f64,
        /// "flt/cpu/s": counted minor faults per CPU second; `null` if unknown.
        faults_per_cpu_second: Option<f64>,
        /// "fault/wsec": counted minor faults per wall second; `null` if unknown.
        faults_per_wall_second: Option<f64>,
        /// The base page size, in bytes.
        page_bytes: u64,
        /// Base pages touched, all repetitions together, whatever size they were mapped in.
        pages_touched: u64,
        /// Bytes allocated, touched and freed at a time; all of them where no smaller pieces were asked for.
        #[serde(default)]
        burst_bytes: u64,
        /// Seconds of rest before each.
        #[serde(default)]
        gap_seconds: f64,
        /// Whether the kernel was asked to fault the pages in ahead.
        #[serde(default)]
        populated: bool,
        /// Bytes that were on superpages after they were touched, all repetitions together; `null` if nobody
        /// looked, or the kernel does not tell.
        #[serde(default)]
        superpage_bytes: Option<u64>,
        /// How long first touches took, where they were timed one by one (the rates are then lower).
        #[serde(default)]
        latency: Option<Box<TouchLatency>>,
    },
    /// `pagerank`.
    Pagerank {
        /// Which graph.
        graph: Graph,
        /// log2 of the number of vertices.
        scale: u32,
        /// Vertices.
        vertices: u64,
        /// Directed edges: both directions of each generated edge that is not a loop.
        edges: u64,
        /// Iterations until the change fell below 1e-4 or the limit was reached.
        iterations: u64,
        /// Sum of absolute changes of the scores in the last iteration.
        last_change: f64,
        /// Sum of absolute changes one more iteration, pushed, would make.
        verified_change: f64,
    },
    /// `requests`.
    Requests {
        /// Requests served, all threads together.
        requests: u64,
        /// Bytes allocated and written, all together.
        filled_bytes: u64,
        /// Bytes in blocks at the end.
        held_bytes: u64,
        /// Of these on superpages; `null` if nobody looked, or the kernel does not tell.
        superpage_bytes: Option<u64>,
        /// The smallest block there could be.
        smallest_bytes: u64,
        /// The largest block there could be.
        largest_bytes: u64,
        /// How long requests took.
        latency: Latency,
    },
    /// `btree` and `hashmap`.
    Lookup {
        /// Keys in the structure.
        keys: u64,
        /// Lookups made, all threads together.
        lookups: u64,
        /// Lookups that found their key.
        hits: u64,
    },
}

/// How long first touches took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TouchLatency {
    /// Of every base page.
    pub pages: Latency,
    /// Of those base pages alone that were the first of their 2 MiB to be touched by their thread: under
    /// superpages the others find their page mapped.
    pub first_of_superpages: Latency,
}

/// One STREAM kernel; the first pass is not counted, as in the reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StreamKernel {
    /// Bytes read and written per second in the fastest pass (STREAM's way of counting: the
    /// reading of a line before it is written is not counted).
    pub best_bytes_per_second: f64,
    /// Average seconds of a pass.
    pub average_seconds: f64,
    /// Seconds of the fastest pass.
    pub least_seconds: f64,
    /// Seconds of the slowest pass.
    pub most_seconds: f64,
}

/// What a kernel hands back when it has verified itself.
pub(crate) struct Run {
    pub footprint_bytes: u64,
    pub setup_seconds: f64,
    pub region: Region,
    pub verify_seconds: f64,
    pub figure: f64,
    pub details: Details,
}

pub(crate) fn outcome(workload: Workload, settings: &Settings, run: Run) -> Outcome {
    let (name, unit, better) = workload.figure();
    Outcome {
        schema: SCHEMA.to_string(),
        workload,
        size_bytes: settings.size.bytes(),
        footprint_bytes: run.footprint_bytes,
        seed: settings.seed,
        threads: settings.threads.get(),
        setup_seconds: run.setup_seconds,
        seconds: run.region.seconds,
        verify_seconds: run.verify_seconds,
        figure: Figure {
            name: name.to_string(),
            value: run.figure,
            unit: unit.to_string(),
            better,
        },
        cpu_seconds: run.region.cpu_seconds(),
        minor_faults: run.region.minor_faults(),
        details: run.details,
        verified: true,
    }
}
