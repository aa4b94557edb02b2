//! `Tables`: the programs' costs per access. All fitted values are here: one per workload, and none per design. The
//! embedded file gives the source of each value.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use trace::Pace;

use super::WorkloadError;
use super::models::{Build, Gcc, Model, Redis};

/// Cost of the accesses of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Cycles per access including the work around it, excluding address translation.
    pub cycles: f64,
    /// Share of walk time that delays the program, 0 to 1.
    pub exposed: f64,
    /// Number of loads from memory that `cycles` includes, on a machine whose loads take `LOAD` cycles. On a machine
    /// with slower loads, `cycles` is increased accordingly.
    #[serde(default)]
    pub loads: f64,
    /// Whether the accesses are independent, as in GUPS. If a machine file has a measured cost of
    /// independent accesses, that cost is used.
    #[serde(default)]
    pub independent: bool,
    /// Instructions of an operation that does not wait for the one before, if counted. On a machine whose window of
    /// instructions in flight is known, operations overlap as far as the window holds them.
    #[serde(default)]
    pub instructions: Option<f64>,
}

/// Cost of independent accesses on a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Independent {
    /// Cycles per access to memory far larger than the caches, with a TLB hit.
    pub cycles: f64,
    /// Share of the page-walk time by which the access is delayed, 0 to 1.
    pub walk: f64,
}

/// Cycles of a load from memory on the tables' machine, e3-1245v6.
pub(crate) const LOAD: u16 = 220;

impl Cost {
    /// Converts the cost to the pace of a stream.
    pub(crate) fn pace(self, threads: u16) -> Pace {
        Pace {
            work: (self.cycles * 1024.0).round().clamp(0.0, f64::from(u32::MAX)) as u32,
            exposed_permille: (self.exposed * 1000.0).round().clamp(0.0, 1000.0) as u16,
            weight: 1,
            threads,
        }
    }
}

/// Costs of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// First touches and initialisation.
    pub setup: Cost,
    /// The measured phase.
    pub run: Cost,
}

/// All tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tables {
    /// `gups`.
    pub gups: Kernel,
    /// `chase`.
    pub chase: Kernel,
    /// `stream`.
    pub stream: Kernel,
    /// `touch`.
    pub touch: Kernel,
    /// `pagerank`.
    pub pagerank: Kernel,
    /// `btree`.
    pub btree: Kernel,
    /// `hashmap`.
    pub hashmap: Kernel,
    /// Models that consist of areas and a mix of visits, by name.
    pub models: BTreeMap<String, Model>,
    /// `gcc`.
    pub gcc: Gcc,
    /// `redis-cold` and `redis-warm`.
    pub redis: Redis,
    /// `build`.
    pub build: Build,
    /// `growing-heap`, `sparse` and `alloc-free`.
    pub mechanisms: Kernel,
}

/// The text of `crates/shared/workload-streams/data/workloads.toml`; changing it changes the workloads.
pub const TABLES: &str = include_str!("../data/workloads.toml");

impl Tables {
    /// The embedded tables.
    pub fn embedded() -> &'static Self {
        static EMBEDDED: OnceLock<Tables> = OnceLock::new();
        EMBEDDED.get_or_init(|| Self::parse(TABLES).expect("a test reads it"))
    }

    /// Parses tables from a text like [`TABLES`].
    ///
    /// # Errors
    /// [`WorkloadError::Table`]: the text is not a valid table.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let file = "workloads.toml";
        toml_keys::deserialize(file, text).map_err(|error| WorkloadError::Table(error.to_string()))
    }
}
