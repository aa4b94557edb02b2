//! Types of the models' tables; `crates/shared/workload-streams/data/workloads.toml` has the values and their sources.

use serde::{Deserialize, Serialize};

use crate::Cost;

/// A program as areas and a mix of visits. A visit selects a page and makes `run` accesses to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Threads of the run.
    pub threads: u16,
    /// Threads that fill areas.
    #[serde(default = "one")]
    pub fill_threads: u16,
    /// Seconds before the program touches its memory: startup and disk reads.
    #[serde(default)]
    pub start_seconds: f64,
    /// Cost of filling, per access of 8 bytes.
    pub setup: Cost,
    /// Cost of an access of the mix.
    pub run: Cost,
    /// Number of visits in the run, over all threads.
    pub visits: f64,
    /// Number of the program's visits per simulated visit.
    pub weight: u32,
    /// How often the transient areas are mapped anew, each time with its share of the visits.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Memory areas.
    pub areas: Vec<AreaTable>,
    /// Targets of the visits; shares are relative.
    pub mix: Vec<Visit>,
}

/// A memory area of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaTable {
    /// Name used in the mix.
    pub name: String,
    /// Size in MiB.
    pub mib: f64,
    /// Backing.
    #[serde(default)]
    pub kind: Kind,
    /// Step of heap growth in KiB.
    #[serde(default = "brk_step")]
    pub step_kib: u32,
    /// Whether it is mapped, filled and unmapped in every round.
    #[serde(default)]
    pub transient: bool,
}

/// Backing of an area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A separate anonymous mapping, written in order.
    #[default]
    Anonymous,
    /// The heap, written as it grows.
    Heap,
    /// A file in the page cache, read in order once.
    CachedFile,
    /// A file on disk, read in order once.
    File,
}

/// A target of visits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// Name of the area.
    pub area: String,
    /// Share of the visits, relative to the others.
    pub share: f64,
    /// Order of the pages.
    #[serde(default)]
    pub order: Order,
    /// Random order: 1 is uniform; 2, 3, 4 concentrate visits at the start of the area, as the square, cube and fourth
    /// power of a uniform number.
    #[serde(default = "one")]
    pub skew: u32,
    /// Random order: scatter the favoured pages over the area.
    #[serde(default)]
    pub scattered: bool,
    /// Accesses per visit.
    #[serde(default = "one")]
    pub run: u32,
    /// Share of visits that write.
    #[serde(default)]
    pub writes: f64,
}

/// Order of the visited pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Random.
    #[default]
    Random,
    /// Sequential.
    Sequential,
}

/// A compiler's heap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gcc {
    /// Cost of first touches, per access of 8 bytes.
    pub setup: Cost,
    /// Cost of a visit.
    pub run: Cost,
    /// Number of compilations, one process each.
    pub invocations: u32,
    /// Maximum heap size of each, in MiB.
    pub peak_mib: f64,
    /// Step of heap growth in KiB.
    pub step_kib: u32,
    /// Heap growth since the last collection that triggers the next (GCC's ggc-min-expand).
    pub expand: f64,
    /// Share of the heap's 1 MiB pieces that a collection frees.
    pub garbage: f64,
    /// Visits per page at its first touch.
    pub visits_per_page: u32,
    /// Concentration of visits at the newest pages (see [`Visit::skew`]).
    pub skew: u32,
}

/// A Redis server under memtier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// Cycles of a set or get, without faults and translation.
    pub operation_cycles: f64,
    /// Share of walk time that delays the program.
    pub exposed: f64,
    /// Number of distinct keys.
    pub keys: u64,
    /// Bytes of a value in the allocator.
    pub value_bytes: u64,
    /// Bytes of a key's small objects (entry, key, object).
    pub small_bytes: u64,
    /// Step in which the allocator maps memory, in KiB.
    pub grow_kib: u32,
    /// Sets into the empty store (cold).
    pub cold_operations: u64,
    /// Operations on the full store (warm).
    pub warm_operations: u64,
    /// Share of sets in the warm run.
    pub warm_sets: f64,
    /// Concurrent operations: clients x connections x pipeline. They form one request of the stream, because a client
    /// waits for all operations queued before its own.
    pub under_way: u32,
}

/// A build with many compilations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Cost of an access.
    pub run: Cost,
    /// Concurrent jobs.
    pub jobs: u16,
    /// CPUs that the jobs share.
    pub threads: u16,
    /// Number of processes.
    pub processes: u32,
    /// Superpage-sized parts of the program's text that a process uses, on average.
    pub text_regions: f64,
    /// Pages in mappings too small for superpages.
    pub small_mappings_pages: u32,
    /// Regions of a process's memory that it writes completely, on average.
    pub full_regions: f64,
    /// Regions that it writes in large part.
    pub partial_regions: f64,
    /// Minimum and maximum pages in each of these.
    pub partial_pages: [u32; 2],
    /// Regions in which it writes few pages.
    pub sparse_regions: f64,
    /// Minimum and maximum pages in each of these.
    pub sparse_pages: [u32; 2],
    /// Accesses to each page at each of two times.
    pub accesses_per_page: u32,
}

fn one<T: From<u8>>() -> T {
    1.into()
}
/// M_TOP_PAD of glibc, in KiB.
const fn brk_step() -> u32 {
    128
}
