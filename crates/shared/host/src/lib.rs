//! The machine's state as plain data: pools, THP, zones and processes' memory; and the journal of changed settings.
//!
//! Every reader takes a [`Root`], so that a fixture directory can replace `/`. A value that could not be read is `None`
//! with a reason, never zero. Only [`journal`] writes settings, and it can undo its changes. Actions that have no value
//! to restore (compaction, demotion, mounts) are separate functions.
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod coverage;
pub mod folios;
pub mod journal;
pub mod pool;
pub mod process;
pub mod waste;

mod counters;
mod cpu;
mod hugetlb;
mod meminfo;
mod neighbours;
mod pmu;
mod pressure;
mod root;
mod snapshot;
mod thp;
mod tlb;
mod zones;

pub use crate::root::Unknown;
pub use crate::thp::Choice;
pub use crate::zones::FreeContiguity;
pub use crate::zones::{CompactError, compact};
pub use crate::zones::{PageBlocks, PageTypeFree, PageTypes};
pub use counters::{CounterDeltas, Counters};
pub use cpu::{Cpu, Hypervisor};
pub use hugetlb::{HugetlbPools, NodePool, Pool};
pub use meminfo::MemInfo;
pub use neighbours::{Before, Neighbours};
pub use pmu::{NoSuchTerm, Pmu};
pub use pressure::{Pressure, Stalled};
pub use root::{ReadError, Root};
pub use snapshot::{Snapshot, host_name};
pub use thp::{Khugepaged, Thp, ThpSize};
pub use tlb::{AMD_UNIT, Leaves, TlbArray, TlbKind};
pub use zones::{ZoneFree, ZoneLevels};

/// The parsers of kernel files, for tests and tools that already have a file's text.
pub mod parse {
    pub use crate::counters::parse as vmstat;
    pub use crate::cpu::parse as cpuinfo;
    pub use crate::meminfo::parse as meminfo;
    pub use crate::pressure::parse as pressure;
    pub use crate::tlb::decode as cpuid_tlb;
    pub use crate::zones::parse as pagetypeinfo;
    pub use crate::zones::{parse_buddyinfo as buddyinfo, parse_zoneinfo as zoneinfo};
}
