//! Types of the models' tables; `crates/shared/workload-streams/data/workloads.toml` has the values and their sources.

use serde::{Deserialize, Serialize};

use crate::Cost;

/// A program described by memory areas and a mix of visits. A visit selects a page and makes `run`
/// accesses to it.
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
    /// Number of rounds. Each round maps the transient areas anew and makes its share of the
    /// visits.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Memory areas.
    pub areas: Vec<AreaTable>,
    /// Targets of the visits. Their shares are relative to each other.
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
    /// Whether every round maps, fills and unmaps the area.
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
    /// For random order: 1 visits all pages equally often. 2, 3 and 4 concentrate visits at the start of the area, like
    /// the square, cube and fourth power of a uniform number.
    #[serde(default = "one")]
    pub skew: u32,
    /// For random order: whether the favoured pages are scattered over the area.
    #[serde(default)]
    pub scattered: bool,
    /// Number of accesses per visit.
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
    /// Maximum heap size of each compilation in MiB.
    pub peak_mib: f64,
    /// Step of heap growth in KiB.
    pub step_kib: u32,
    /// Growth of the heap since the last collection, as a share, that triggers the next collection
    /// (GCC's ggc-min-expand).
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
    /// Cycles of a set or get, excluding faults and address translation.
    pub operation_cycles: f64,
    /// Share of walk time that delays the program.
    pub exposed: f64,
    /// Number of distinct keys.
    pub keys: u64,
    /// Bytes of a value in the allocator.
    pub value_bytes: u64,
    /// Bytes of a key's small objects (entry, key, object).
    pub small_bytes: u64,
    /// Step in KiB by which the allocator maps memory.
    pub grow_kib: u32,
    /// Number of sets into the empty store (cold run).
    pub cold_operations: u64,
    /// Number of operations on the full store (warm run).
    pub warm_operations: u64,
    /// Share of sets in the warm run.
    pub warm_sets: f64,
    /// Concurrent operations: clients x connections x pipeline. One request of the stream has this many operations,
    /// because a client waits for all operations queued before its own.
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
    /// Mean number of superpage-sized parts of the program's text that a process uses.
    pub text_regions: f64,
    /// Number of pages in mappings that are too small for superpages.
    pub small_mappings_pages: u32,
    /// Mean number of regions that a process writes completely.
    pub full_regions: f64,
    /// Mean number of regions that a process writes in large part.
    pub partial_regions: f64,
    /// Minimum and maximum number of pages that it writes in each such region.
    pub partial_pages: [u32; 2],
    /// Mean number of regions in which a process writes few pages.
    pub sparse_regions: f64,
    /// Minimum and maximum number of pages that it writes in each such region.
    pub sparse_pages: [u32; 2],
    /// Number of accesses to a page at each of the two times that it is accessed.
    pub accesses_per_page: u32,
}

fn one<T: From<u8>>() -> T {
    1.into()
}
/// M_TOP_PAD of glibc, in KiB.
const fn brk_step() -> u32 {
    128
}
