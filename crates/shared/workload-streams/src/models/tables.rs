//! What the models' tables say; `crates/shared/workload-streams/data/workloads.toml` gives the values and their sources.

use serde::{Deserialize, Serialize};

use crate::Cost;

/// A program as areas and a mix of visits to them. A visit is a page that is chosen, and `run`
/// accesses there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Threads of the run.
    pub threads: u16,
    /// Threads that fill areas.
    #[serde(default = "one")]
    pub fill_threads: u16,
    /// Seconds before it touches its memory: it starts, and reads from disk.
    #[serde(default)]
    pub start_seconds: f64,
    /// Filling: an access of 8 bytes.
    pub setup: Cost,
    /// An access of the mix.
    pub run: Cost,
    /// Visits of the whole run, all threads together.
    pub visits: f64,
    /// Visits that one of the stream stands for.
    pub weight: u32,
    /// How often the transient areas are made anew, each with its part of the visits.
    #[serde(default = "one")]
    pub rounds: u32,
    /// The memory.
    pub areas: Vec<AreaTable>,
    /// Where the visits go; shares are relative.
    pub mix: Vec<Visit>,
}

/// A piece of a program's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaTable {
    /// Its name in the mix.
    pub name: String,
    /// Its size, MiB.
    pub mib: f64,
    /// What backs it.
    #[serde(default)]
    pub kind: Kind,
    /// KiB by which a heap grows at once.
    #[serde(default = "brk_step")]
    pub step_kib: u32,
    /// Mapped, filled and unmapped in every round of the run.
    #[serde(default)]
    pub transient: bool,
}

/// What backs an area.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A mapping of its own, written in order.
    #[default]
    Anonymous,
    /// The heap, which grows step by step while it is written.
    Heap,
    /// A file in the page cache, read in order once.
    CachedFile,
    /// A file on disk, read in order once.
    File,
}

/// A share of the visits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Visit {
    /// To which area.
    pub area: String,
    /// How many of the visits, relative to the others.
    pub share: f64,
    /// Which page.
    #[serde(default)]
    pub order: Order,
    /// Random: 1 is uniform; with 2, 3, 4 visits crowd at the area's begin, as the square, cube and
    /// fourth power of a uniform number.
    #[serde(default = "one")]
    pub skew: u32,
    /// Random: the crowded pages lie scattered over the area instead.
    #[serde(default)]
    pub scattered: bool,
    /// Accesses of a visit.
    #[serde(default = "one")]
    pub run: u32,
    /// The share of visits that write.
    #[serde(default)]
    pub writes: f64,
}

/// Which page a visit goes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Any.
    #[default]
    Random,
    /// The next.
    Sequential,
}

/// A compiler's heap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gcc {
    /// First touch, 8 bytes.
    pub setup: Cost,
    /// A visit.
    pub run: Cost,
    /// Compilations, one process each.
    pub invocations: u32,
    /// The heap of each at most, MiB.
    pub peak_mib: f64,
    /// KiB by which the heap grows.
    pub step_kib: u32,
    /// Growth since the last collection at which garbage is collected (GCC's ggc-min-expand).
    pub expand: f64,
    /// The share of the heap's 1 MiB pieces that a collection frees.
    pub garbage: f64,
    /// Visits for each page that is touched first.
    pub visits_per_page: u32,
    /// How much visits crowd at the newest pages (see [`Visit::skew`]).
    pub skew: u32,
}

/// A Redis server under memtier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// Cycles of a set or get with everything but faults and translation.
    pub operation_cycles: f64,
    /// The part of walks that is waited for.
    pub exposed: f64,
    /// Keys that clients choose from.
    pub keys: u64,
    /// Bytes that a value takes in the allocator.
    pub value_bytes: u64,
    /// Bytes of a key's small objects (entry, key, object).
    pub small_bytes: u64,
    /// KiB by which the allocator takes memory.
    pub grow_kib: u32,
    /// Sets into the empty store (cold).
    pub cold_operations: u64,
    /// Operations on the full store (warm).
    pub warm_operations: u64,
    /// Share of sets in the warm run.
    pub warm_sets: f64,
    /// Operations that are under way at once: clients x connections x pipeline. They are one request
    /// of the stream, because a client waits for all that were queued before it.
    pub under_way: u32,
}

/// A build with many compilations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// An access.
    pub run: Cost,
    /// Jobs that run at once.
    pub jobs: u16,
    /// CPUs they share.
    pub threads: u16,
    /// Processes of the build.
    pub processes: u32,
    /// Superpage-sized parts of the program's text that a process uses, on average.
    pub text_regions: f64,
    /// Pages in mappings too small for superpages.
    pub small_mappings_pages: u32,
    /// Regions of a process's memory that it writes whole, on average.
    pub full_regions: f64,
    /// Regions of which it writes a large part.
    pub partial_regions: f64,
    /// The least and the most pages of these.
    pub partial_pages: [u32; 2],
    /// Regions of which it writes few pages.
    pub sparse_regions: f64,
    /// The least and the most pages of these.
    pub sparse_pages: [u32; 2],
    /// Accesses to each page at each of two times.
    pub accesses_per_page: u32,
}

fn one<T: From<u8>>() -> T {
    1.into()
}
/// M_TOP_PAD of glibc.
const fn brk_step() -> u32 {
    128
}
