//! `Outcome`: the document of a run, schema `superpage.workload/1`, one line of JSON. Numbers are in base units, and
//! `null` means unknown. A run that failed its verification has no outcome.

use serde::{Deserialize, Serialize};

use crate::tail::Latency;
use crate::team::Region;
use crate::{Graph, Settings, Workload};

/// Name and version of the document.
pub const SCHEMA: &str = "superpage.workload/1";

/// The results of one verified run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The kernel.
    pub workload: Workload,
    /// The requested size, in bytes.
    pub size_bytes: u64,
    /// Peak memory of the run, in bytes.
    pub footprint_bytes: u64,
    /// The seed of every random choice.
    pub seed: u64,
    /// Number of threads in the timed region.
    pub threads: usize,
    /// Seconds from the first allocation to the start of the timed region: allocation, first touch and initialization.
    /// 0 for `touch`, where these are the timed region.
    pub setup_seconds: f64,
    /// Seconds of the timed region, from the start of all threads.
    pub seconds: f64,
    /// CPU seconds of all threads in the timed region, user and kernel mode; `null` if unknown.
    pub cpu_seconds: Option<f64>,
    /// CPU seconds of the process before the timed region: its start and the set-up.
    #[serde(default)]
    pub cpu_seconds_before: Option<f64>,
    /// Seconds of the verification.
    pub verify_seconds: f64,
    /// The figure of merit.
    pub figure: Figure,
    /// Number of minor page faults in the timed region; `null` if unknown.
    pub minor_faults: Option<u64>,
    /// Results specific to the workload.
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
    /// Name of the quantity.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
}

/// Which direction of a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Higher is better.
    Higher,
    /// Lower is better.
    Lower,
}

/// Results specific to one workload. In JSON, the fields tell which workload it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Details {
    /// `gups`.
    Gups {
        /// Number of updates of all threads together.
        updates: u64,
        /// Number of 64-bit words in the table.
        table_words: u64,
    },
    /// `chase`.
    Chase {
        /// Number of cache lines in the cycle.
        nodes: u64,
        /// Number of loads of each thread.
        loads_per_thread: u64,
    },
    /// `stream`.
    Stream {
        /// Number of 8-byte elements in each of the three arrays.
        elements: u64,
        /// Number of passes over the four kernels; rates exclude the first pass.
        iterations: u64,
        /// Offset of each array relative to the previous one, in bytes.
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
    /// `touch`: the columns of the table of 2005, and further values.
    Touch {
        /// Column "Gb": GiB allocated and touched in each repetition.
        gib: f64,
        /// Column "Rep": number of repetitions.
        repeat: u64,
        /// Column "CLine": number of cache lines touched in each page.
        lines: u64,
        /// Column "User": CPU seconds of all threads in user mode; `null` if unknown.
        user_seconds: Option<f64>,
        /// Column "System": CPU seconds of all threads in the kernel; `null` if unknown.
        system_seconds: Option<f64>,
        /// Column "Wall": seconds of all repetitions together.
        wall_seconds: f64,
        /// Column "flt/cpu/s": counted minor faults per CPU second; `null` if unknown.
        faults_per_cpu_second: Option<f64>,
        /// Column "fault/wsec": counted minor faults per second of wall time; `null` if unknown.
        faults_per_wall_second: Option<f64>,
        /// The base page size, in bytes.
        page_bytes: u64,
        /// Number of base pages touched, over all repetitions, whatever page size maps them.
        pages_touched: u64,
        /// Bytes allocated, touched and freed per burst; without bursts, all bytes of a repetition.
        #[serde(default)]
        burst_bytes: u64,
        /// Seconds of sleep before each burst.
        #[serde(default)]
        gap_seconds: f64,
        /// Whether the pages were prefaulted (MADV_POPULATE_WRITE).
        #[serde(default)]
        populated: bool,
        /// Bytes on superpages after the touch, over all repetitions; `null` if unknown or not read back.
        #[serde(default)]
        superpage_bytes: Option<u64>,
        /// Latency of first touches, if each touch was timed. Timing lowers the rates.
        #[serde(default)]
        latency: Option<Box<TouchLatency>>,
    },
    /// `pagerank`.
    Pagerank {
        /// Kind of graph.
        graph: Graph,
        /// log2 of the number of vertices.
        scale: u32,
        /// Number of vertices.
        vertices: u64,
        /// Number of directed edges: both directions of each generated edge that is not a self-loop.
        edges: u64,
        /// Number of iterations until the change fell below 1e-4 or the limit was reached.
        iterations: u64,
        /// Sum of absolute changes of the scores in the last iteration.
        last_change: f64,
        /// Sum of absolute changes of the scores in the additional, push-based iteration of the
        /// verification.
        verified_change: f64,
    },
    /// `requests`.
    Requests {
        /// Number of requests of all threads together.
        requests: u64,
        /// Bytes allocated and written in total.
        filled_bytes: u64,
        /// Bytes of live blocks at the end.
        held_bytes: u64,
        /// The part of `held_bytes` on superpages; `null` if unknown or not read back.
        superpage_bytes: Option<u64>,
        /// Minimum block size.
        smallest_bytes: u64,
        /// Maximum block size.
        largest_bytes: u64,
        /// Latency of requests.
        latency: Latency,
    },
    /// `btree` and `hashmap`.
    Lookup {
        /// Number of keys in the structure.
        keys: u64,
        /// Number of lookups of all threads together.
        lookups: u64,
        /// Number of lookups that found their key.
        hits: u64,
    },
}

/// Latency of first touches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TouchLatency {
    /// Latency of the first touch of every base page.
    pub pages: Latency,
    /// Latency of the first touch that a thread made in each 2 MiB. With superpages, only these touches fault.
    pub first_of_superpages: Latency,
}

/// Results of one STREAM kernel; the first pass is excluded, as in the reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StreamKernel {
    /// Bytes read and written per second in the fastest pass, counted as STREAM does (without reads for ownership of
    /// written lines).
    pub best_bytes_per_second: f64,
    /// Mean seconds per pass.
    pub average_seconds: f64,
    /// Seconds of the fastest pass.
    pub least_seconds: f64,
    /// Seconds of the slowest pass.
    pub most_seconds: f64,
}

/// Results that a kernel returns after its verification.
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
        cpu_seconds_before: run.region.cpu_seconds_before(),
        minor_faults: run.region.minor_faults(),
        details: run.details,
        verified: true,
    }
}
