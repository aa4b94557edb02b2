//! `/proc/vmstat`: event counters of superpages' costs and gains.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{ReadError, Root, root};

/// Prefixes of the recorded counters. `numa_` includes `numa_hint_faults` and similar ones.
const PREFIXES: [&str; 8] =
    ["thp_", "compact_", "allocstall", "htlb_", "pgfault", "pgmajfault", "pgmigrate", "numa_"];

/// Counters since boot, by the kernel's names. Each is a number of events (or of base pages, where
/// the kernel's name says so, as in `compact_migrate_scanned`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters(pub BTreeMap<String, u64>);

/// Increments of counters between two reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CounterDeltas(pub BTreeMap<String, u64>);

impl Counters {
    /// Reads `/proc/vmstat`. One file, so cheap enough for the start and end of every sample.
    pub fn read(root: &Root) -> Result<Self, ReadError> {
        parse(&root.read("/proc/vmstat")?, &root.path("/proc/vmstat"))
    }

    /// The counter's value; `None` if this kernel has no such counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Increment of each counter. Omits counters that only one of the two reads has, and counters that decreased
    /// (another boot): their increments are unknown.
    pub fn since(&self, earlier: &Self) -> CounterDeltas {
        let grown = |(name, now): (&String, &u64)| {
            let delta = now.checked_sub(*earlier.0.get(name)?)?;
            Some((name.clone(), delta))
        };
        CounterDeltas(self.0.iter().filter_map(grown).collect())
    }
}

impl CounterDeltas {
    /// Increment of one counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Number of faults that wanted a superpage and got a base page.
    pub fn thp_fault_fallback(&self) -> Option<u64> {
        self.get("thp_fault_fallback")
    }

    /// Number of allocations that stalled in direct compaction.
    pub fn compact_stall(&self) -> Option<u64> {
        self.get("compact_stall")
    }

    /// Number of allocations that stalled in direct reclaim, over all zones (Linux before 4.10 has one counter, later
    /// versions one for each zone).
    pub fn allocstall(&self) -> Option<u64> {
        let zones = self.0.iter().filter(|(name, _)| name.starts_with("allocstall"));
        zones.map(|(_, delta)| *delta).reduce(u64::saturating_add)
    }
}

/// Reads the text of `/proc/vmstat`; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<Counters, ReadError> {
    let mut counters = BTreeMap::new();
    for (line, bad) in root::numbered(text, path) {
        let (name, value) = line.split_once(' ').ok_or_else(|| bad("`name number`"))?;
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            let value = value.trim().parse().map_err(|_| bad("`name number`"))?;
            counters.insert(name.to_string(), value);
        }
    }
    Ok(Counters(counters))
}
