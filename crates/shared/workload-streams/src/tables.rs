//! `Tables`: the programs' costs per access. All fitted values are here, one per workload, never per design; the
//! embedded file gives the source of each.

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
    /// Cycles per access including the work around it, without translation.
    pub cycles: f64,
    /// Share of walk time that delays the program, 0 to 1.
    pub exposed: f64,
    /// Loads from memory included in `cycles`, on a machine whose loads take [`LOAD`] cycles; a machine with slower
    /// loads takes correspondingly longer.
    #[serde(default)]
    pub loads: f64,
    /// Independent accesses, as in GUPS: a measured machine provides their cost.
    #[serde(default)]
    pub independent: bool,
}

/// Cost of independent accesses on a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Independent {
    /// Cycles per access to memory far larger than the caches, with a TLB hit.
    pub cycles: f64,
    /// Share of walk time that delays the access.
    pub walk: f64,
}

/// Cycles of a load from memory on the tables' machine, e3-1245v6.
pub(crate) const LOAD: u16 = 220;

impl Cost {
    /// The cost as a pace of a stream.
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
    /// Models of areas and a mix of visits, by name.
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

    /// Parses tables from the text of such a file.
    ///
    /// # Errors
    /// [`WorkloadError::Table`]: the text is not a valid table.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let file = "workloads.toml";
        toml_keys::deserialize(file, text).map_err(|error| WorkloadError::Table(error.to_string()))
    }
}
