//! What a run yields: facts only. Ratios, tables, words and pictures are computed from it.

use mm_sim::fragment::FreeLists;
use mm_sim::{Counters, CycleCounts, Moment, PartUse, Phase};
use serde::{Deserialize, Serialize};

/// The version of the simulation: goes up whenever any report would come out otherwise, so that sweeps
/// do not take old results for new ones.
pub const ENGINE: &str = "8";

/// The version of [`Report`]'s layout.
pub const SCHEMA: &str = "superpage.lab.run/1";

/// What was run. The same cell gives the same report, bit by bit, on any computer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The design's name.
    pub design: String,
    /// The machine's name.
    pub machine: String,
    /// The workload, as it was asked for.
    pub workload: String,
    /// How memory was fragmented before the workload ran, as it was asked for.
    pub fragmentation: String,
    /// The machine's memory, bytes.
    pub memory_bytes: u64,
    /// The memory of each NUMA node, bytes, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_bytes: Vec<u64>,
    /// Of the machine's memory, what takes movable pages only, bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub movable_bytes: u64,
    /// The seed.
    pub seed: u64,
    /// Swap space, bytes. Reports that say nothing of it had none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub swap_bytes: u64,
    /// The free lists that memory was made to look like, if it was: with them it can be run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_lists: Option<FreeLists>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The outcome of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run.
    pub cell: Cell,
    /// Whether the design is a bound that no system reaches, not a system (`memory.ideal`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound: bool,
    /// Base pages of the largest superpages, where they are not 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superpage_pages: Option<u64>,
    /// Of the machine's memory, what its kernel has for itself: the program cannot have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<u64>,
    /// How it ended.
    pub end: End,
    /// The machine's cycles per microsecond.
    pub mhz: u32,
    /// The program's time from its first event to its end, in cycles.
    pub wall_cycles: u64,
    /// The program's CPU cycles by cause.
    pub ledger: CycleCounts,
    /// The daemons' CPU cycles by cause.
    pub background: CycleCounts,
    /// What was counted.
    pub counters: Counters,
    /// The program's phases, in order.
    pub phases: Vec<Phase>,
    /// How memory looked over time.
    pub timeline: Vec<Moment>,
    /// Latency of the program's requests, if it has any.
    pub requests: Option<Requests>,
    /// How each part of memory was used, if it has several: nodes, and on each the partition for movable pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_parts: Vec<MemoryPart>,
}

/// How a part of memory was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// When the program had most memory.
    #[serde(flatten)]
    pub peak: PartUse,
    /// [`PartUse::free_superpages`] when the program began.
    pub free_superpages_at_start: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum End {
    /// The program came to its end.
    Done,
    /// No frame was left, also after reclaim: the program was killed.
    OutOfMemory {
        /// Base pages that were resident.
        resident_pages: u64,
    },
    /// The program was killed at a fault: a page of the explicit pool was not there.
    Killed {
        /// Why.
        why: String,
    },
    /// A mapping was refused (an explicit pool is too small), and the program went no further.
    Refused {
        /// Superpages that were missing.
        short_by: u64,
    },
}

/// Latency of requests, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half of them took at most this.
    pub p50: f64,
    /// 95 of 100.
    pub p95: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Report {
    /// The program's time in seconds.
    pub fn seconds(&self) -> f64 {
        self.wall_cycles as f64 / (f64::from(self.mhz) * 1e6)
    }
}
