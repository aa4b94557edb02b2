//! `Tables`: what the programs cost per access. Everything that may be fitted stands here, one value
//! per workload, never per design; the embedded file says where each comes from.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use trace::Pace;

use super::WorkloadError;
use super::models::{Build, Gcc, Model, Redis};

/// What accesses of a phase cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Cycles of an access with everything around it but its translation.
    pub cycles: f64,
    /// The part of a walk that the program waits for, 0 to 1.
    pub exposed: f64,
    /// Loads from memory that `cycles` wait for, on a machine whose loads take [`LOAD`]; one whose loads take longer waits
    /// longer.
    #[serde(default)]
    pub loads: f64,
    /// Accesses that do not wait for each other, as GUPS' updates: a machine that was measured says what they cost.
    #[serde(default)]
    pub independent: bool,
}

/// What accesses that do not wait for each other cost on a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Independent {
    /// Cycles of one, far beyond the caches, its translation being at hand.
    pub cycles: f64,
    /// The part of a walk that it waits for.
    pub walk: f64,
}

/// Cycles of a load from memory on the machine that the tables are for, e3-1245v6.
pub(crate) const LOAD: u16 = 220;

impl Cost {
    /// As a stream says it.
    pub(crate) fn pace(self, threads: u16) -> Pace {
        Pace {
            work: (self.cycles * 1024.0).round().clamp(0.0, f64::from(u32::MAX)) as u32,
            exposed_permille: (self.exposed * 1000.0).round().clamp(0.0, 1000.0) as u16,
            weight: 1,
            threads,
        }
    }
}

/// The costs of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// First touch and initialisation.
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
    /// The models that are areas and a mix of visits, by name.
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

/// The text of `crates/shared/workload-streams/data/workloads.toml`: a change there is another workload.
pub const TABLES: &str = include_str!("../data/workloads.toml");

impl Tables {
    /// The tables of `crates/shared/workload-streams/data/workloads.toml`.
    pub fn embedded() -> &'static Self {
        static EMBEDDED: OnceLock<Tables> = OnceLock::new();
        EMBEDDED.get_or_init(|| Self::parse(TABLES).expect("a test reads it"))
    }

    /// Tables from the text of such a file.
    ///
    /// # Errors
    /// [`WorkloadError::Table`]: it is no such table.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let file = "workloads.toml";
        toml_keys::deserialize(file, text).map_err(|error| WorkloadError::Table(error.to_string()))
    }
}
