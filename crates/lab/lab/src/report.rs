//! What a run yields: facts only. Ratios, tables, words and pictures are computed from it.

use serde::{Deserialize, Serialize};

use crate::Ledger;
use crate::fragment::FreeLists;

/// The version of the simulation: goes up whenever any report would come out otherwise, so that sweeps
/// do not take old results for new ones.
pub const ENGINE: &str = "4";

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
    /// What spoiled memory beforehand, as it was asked for.
    pub fragmentation: String,
    /// The machine's memory, bytes.
    pub memory_bytes: u64,
    /// The seed.
    pub seed: u64,
    /// Room for pages that are swapped out, bytes. Reports that say nothing of it had none.
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
    pub ledger: Ledger,
    /// The daemons' CPU cycles by cause.
    pub background: Ledger,
    /// What was counted.
    pub counters: Counters,
    /// The program's phases, in order.
    pub phases: Vec<Phase>,
    /// How memory looked over time.
    pub timeline: Vec<Moment>,
    /// Latency of the program's requests, if it has any.
    pub requests: Option<Requests>,
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

/// Events of a run, counted. Pages are base pages unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Memory accesses of the program.
    pub accesses: u64,
    /// Those that missed the first-level TLB and hit the second.
    pub second_tlb_hits: u64,
    /// Walks for base pages.
    pub walks_base: u64,
    /// Walks for larger pages.
    pub walks_large: u64,
    /// Faults of any kind.
    pub faults: u64,
    /// Faults that prepared a whole superpage.
    pub superpage_faults: u64,
    /// Faults where a superpage was wanted and none was had.
    pub fallbacks: u64,
    /// Superpages mapped by a fault at once.
    pub made_at_fault: u64,
    /// Superpages mapped in place, when their pages were prepared.
    pub made_in_place: u64,
    /// Superpages made by copying into them.
    pub made_by_copy: u64,
    /// Superpage mappings destroyed with a part of them in use.
    pub demoted: u64,
    /// Reservations made.
    pub reserved: u64,
    /// Reservations broken for their free pages.
    pub broken: u64,
    /// Reservations emptied by moving their pages.
    pub evacuated: u64,
    /// Pages zeroed in faults.
    pub zeroed: u64,
    /// Pages zeroed ahead of demand.
    pub prezeroed: u64,
    /// Pages copied by collapses and copy on write.
    pub copied: u64,
    /// Pages migrated.
    pub migrated: u64,
    /// Pages reclaimed.
    pub reclaimed: u64,
    /// Pages read from files or swap.
    pub read: u64,
    /// Zero-filled pages given back from superpages.
    pub recovered: u64,
    /// Direct compactions.
    pub compactions: u64,
    /// Those skipped because earlier ones had failed.
    pub compactions_deferred: u64,
    /// Pages the program had read or written and not given back, at the peak of resident memory.
    /// More than those where some were only read: they stand on one shared page of zeros and are not
    /// resident. `None` where nobody counted.
    pub touched_pages: Option<u64>,
    /// Pages resident for it, at the peak.
    pub resident_pages: u64,
    /// Superpage mappings, at the most.
    pub superpages: u64,
}

/// A phase of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Its time, in cycles.
    pub wall_cycles: u64,
    /// Its CPU cycles by cause.
    pub ledger: Ledger,
    /// Accesses in it.
    pub accesses: u64,
}

/// How memory looked at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Microseconds since the program began.
    pub microseconds: u64,
    /// Superpages mapped for the program.
    pub superpages: u64,
    /// Base pages resident for it.
    pub resident_pages: u64,
    /// Superpages that could be had at once.
    pub free_superpages: u64,
    /// Free base pages.
    pub free_pages: u64,
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
