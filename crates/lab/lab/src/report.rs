//! Results of a run: facts only. Ratios, tables, explanations and pictures are computed from them.

use mm_sim::fragment::FreeLists;
use mm_sim::{Cause, Counters, CycleCounts, Moment, PartUse, Phase};
use serde::{Deserialize, Serialize};

/// Version of the simulation, increased whenever a report changes: sweeps do not reuse results of other versions.
pub const ENGINE: &str = "9";

/// The version of [`Report`]'s layout.
pub const SCHEMA: &str = "superpage.lab.run/1";

/// Settings of a run. Equal cells give bit-identical reports on every computer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the design.
    pub design: String,
    /// Name of the machine.
    pub machine: String,
    /// The workload, as requested.
    pub workload: String,
    /// Fragmentation before the workload ran, as requested.
    pub fragmentation: String,
    /// Memory of the machine, in bytes.
    #[serde(deserialize_with = "units::bytes")]
    pub memory_bytes: u64,
    /// Memory of each NUMA node, in bytes, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "units::bytes")]
    pub nodes_bytes: Vec<u64>,
    /// Movable-only memory, in bytes.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "units::bytes")]
    pub movable_bytes: u64,
    /// The seed.
    pub seed: u64,
    /// Swap space, in bytes; 0 if absent.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "units::bytes")]
    pub swap_bytes: u64,
    /// Free lists that memory was made to match, if any. They are needed to repeat the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_lists: Option<FreeLists>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The outcome of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Settings.
    pub cell: Cell,
    /// Whether the design is a theoretical bound that no real system reaches (`memory.ideal`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound: bool,
    /// Base pages of the largest superpage size, if not 512.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count")]
    pub superpage_pages: Option<u64>,
    /// Memory of the kernel itself, unavailable to the program.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::bytes")]
    pub kernel_bytes: Option<u64>,
    /// How the run ended.
    pub end: End,
    /// The machine's cycles per microsecond.
    #[serde(deserialize_with = "units::mhz")]
    pub mhz: u32,
    /// Wall-clock time of the program from its first event to its end, in cycles.
    pub wall_cycles: u64,
    /// The program's CPU cycles by cause.
    pub ledger: CycleCounts,
    /// The daemons' CPU cycles by cause.
    pub background: CycleCounts,
    /// Counters.
    pub counters: Counters,
    /// The program's phases, in order.
    pub phases: Vec<Phase>,
    /// Memory over time.
    pub timeline: Vec<Moment>,
    /// Request latency, if the program has requests.
    pub requests: Option<Requests>,
    /// Use of each part of memory (nodes and movable-only partitions), if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_parts: Vec<MemoryPart>,
}

/// Use of a part of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    /// Use at the program's memory peak.
    #[serde(flatten)]
    pub peak: PartUse,
    /// [`PartUse::free_superpages`] when the program began.
    pub free_superpages_at_start: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum End {
    /// The program ended normally.
    Done,
    /// The program was killed: out of memory even after reclaim.
    OutOfMemory {
        /// Number of resident base pages.
        resident_pages: u64,
        /// Number of base pages that reservations kept unused, as the design does not break them; `None`: not recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved_pages: Option<u64>,
    },
    /// The program was killed at a page fault, because the explicit pool had no page.
    Killed {
        /// Why.
        why: String,
    },
    /// A mapping was refused because the explicit pool is too small, and the program stopped.
    Refused {
        /// Number of missing superpages.
        short_by: u64,
    },
}

/// Latency of requests, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// The mean.
    #[serde(deserialize_with = "units::microseconds")]
    pub mean: f64,
    /// Median.
    #[serde(deserialize_with = "units::microseconds")]
    pub p50: f64,
    /// 95th percentile.
    #[serde(deserialize_with = "units::microseconds")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(deserialize_with = "units::microseconds")]
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(deserialize_with = "units::microseconds")]
    pub p999: f64,
    /// Maximum.
    #[serde(deserialize_with = "units::microseconds")]
    pub max: f64,
}

units::checked!(Report, Requests);

fn holds(condition: bool, why: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(why.to_string()) }
}

fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

impl Requests {
    fn check(&self) -> Result<(), String> {
        let ascending = [self.p50, self.p95, self.p99, self.p999, self.max];
        holds(ascending.is_sorted(), "p50, p95, p99, p999 and max do not ascend")?;
        holds(self.mean <= self.max, "mean is more than max")
    }
}

impl Report {
    fn check(&self) -> Result<(), String> {
        let Self { cell, counters, phases, timeline, .. } = self;
        let nodes = sum(cell.nodes_bytes.iter().copied());
        let is_whole = cell.nodes_bytes.is_empty() || nodes == cell.memory_bytes;
        holds(is_whole, "cell.nodes_bytes are not cell.memory_bytes together")?;
        let is_part = cell.movable_bytes <= cell.memory_bytes;
        holds(is_part, "cell.movable_bytes is more than cell.memory_bytes")?;
        let passed = sum(phases.iter().map(|phase| phase.wall_cycles));
        holds(passed <= self.wall_cycles, "the phases take more than wall_cycles")?;
        let made = sum(phases.iter().map(|phase| phase.accesses));
        holds(made <= counters.accesses, "the phases have more than counters.accesses")?;
        let is_part = |&cause: &Cause| {
            sum(phases.iter().map(|phase| phase.ledger[cause])) <= self.ledger[cause]
        };
        holds(Cause::ALL.iter().all(is_part), "the phases' ledgers are more than ledger")?;
        let is_part = counters.superpage_faults <= counters.faults;
        holds(is_part, "counters.superpage_faults are more than counters.faults")?;
        let is_sorted = timeline.is_sorted_by_key(|moment| moment.microseconds);
        holds(is_sorted, "the timeline is not in the order of time")?;
        let is_part = |moment: &Moment| moment.smaller_superpages <= moment.superpages;
        holds(timeline.iter().all(is_part), "smaller_superpages are more than superpages")?;
        let peak = (counters.superpages, counters.resident_pages);
        let is_below = |at: &Moment| at.superpages <= peak.0 && at.resident_pages <= peak.1;
        let why = "the timeline has more than counters.superpages or counters.resident_pages";
        holds(timeline.iter().all(is_below), why)?;
        let is_whole = |MemoryPart { peak, .. }: &MemoryPart| {
            let parts =
                [peak.unmovable_pages, peak.pool_pages, peak.movable_pages, peak.free_pages];
            sum(parts) == peak.pages
        };
        holds(
            self.memory_parts.iter().all(is_whole),
            "the pages of a part of memory_parts do not add up",
        )
    }

    /// Returns the program's wall-clock time in seconds.
    pub fn seconds(&self) -> f64 {
        self.wall_cycles as f64 / (f64::from(self.mhz) * 1e6)
    }
}
