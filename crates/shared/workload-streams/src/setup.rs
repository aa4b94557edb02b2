//! `Setup`: a workload with its options, parsed from a specification; `Description`: its properties.
//!
//! A specification is a name with options: `gups:size=8G,operations=4G,weight=64`. Counts accept the binary units of
//! sizes, so that a table of 1G words gets 4G updates.

use std::str::FromStr;

use trace::Pace;
use units::ByteSize;
use workload::Graph;

use super::catalog;
use super::entry::Entry;
use super::kernels;
use super::{Cost, Independent, Stream, Tables, WorkloadError};

/// A workload with its options. `None` selects the default.
#[derive(Debug, Clone)]
pub struct Setup {
    entry: &'static Entry,
    /// Memory size.
    pub size: Option<ByteSize>,
    /// Operations of the run (the workload's [`Figure`] names them).
    pub operations: Option<u64>,
    /// Number of threads of the program.
    pub threads: Option<u16>,
    /// Number of the program's accesses per simulated access in a steady random phase.
    pub weight: Option<u32>,
    /// Number of passes.
    pub iterations: Option<u32>,
    /// Number of cache lines touched per page.
    pub lines: Option<u32>,
    /// Kind of graph.
    pub graph: Option<Graph>,
    /// Step of heap growth.
    pub step: Option<ByteSize>,
    /// Seed of all random draws.
    pub seed: u64,
    /// First region number that the stream may use; lower numbers belong to other streams.
    pub first_region: u32,
    /// Alignment of areas in regions, a power of two.
    pub align: u32,
    /// First process number.
    pub first_process: u32,
    /// Frequency of the simulated CPU, to convert seconds.
    pub cpu_mhz: u32,
    /// Cycles of a load from the simulated machine's memory.
    pub memory_cycles: u16,
    /// Streaming bandwidth of one thread of the simulated machine in MB/s, if known.
    pub stream_bandwidth: Option<u32>,
    /// Cost of independent accesses on the simulated machine, if known.
    pub independent: Option<Independent>,
    /// Instructions in flight on the simulated machine, if known.
    pub window: Option<u16>,
}

/// Properties of a workload, for reports and for sizing the simulated memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Name.
    pub name: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    /// Maximum number of base pages that are touched and not yet freed, including file pages.
    pub footprint_pages: u64,
    /// Number of superpages that would back all these pages: the N of Frag-L.
    pub superpages: u64,
    /// Number of threads.
    pub threads: u16,
    /// The quantity to compare.
    pub figure: Figure,
    /// Names of the phases, in order.
    pub phases: Vec<&'static str>,
    /// Number of regions that the stream uses, starting at [`Setup::first_region`].
    pub regions: u32,
    /// Approximate number of accesses and runs in the stream, if known in advance.
    pub records: Option<u64>,
}

/// The quantity that is compared between designs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// Operations per second of the phase `run`.
    Rate {
        /// Unit of the operations.
        unit: &'static str,
        /// Number of operations of the program, including those that sampling omits.
        operations: u64,
    },
    /// Seconds of the phase `run`.
    RunTime,
    /// Seconds of all phases.
    Time,
}

impl Setup {
    /// The workload's name.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The workload's catalogue entry.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// Builds the stream and its description, with the embedded costs.
    ///
    /// # Errors
    /// [`WorkloadError`]: an invalid option, or a data structure that determines the sequence cannot be built.
    pub fn build(&self) -> Result<(Description, Stream), WorkloadError> {
        self.build_with(Tables::embedded())
    }

    /// Returns the description without building anything that takes long. Its memory sizes are upper bounds for the
    /// stream.
    ///
    /// # Errors
    /// [`WorkloadError`]: an invalid option.
    pub fn describe(&self) -> Result<Description, WorkloadError> {
        kernels::describe(self).unwrap_or_else(|| self.build().map(|(description, _)| description))
    }

    /// Like [`Setup::build`], with other costs.
    ///
    /// # Errors
    /// As [`Setup::build`].
    pub fn build_with(&self, tables: &Tables) -> Result<(Description, Stream), WorkloadError> {
        (self.entry.build)(self, tables)
    }

    /// Returns the size in bytes, or `default`.
    pub(crate) fn size_or(&self, default: u64) -> Result<u64, WorkloadError> {
        let size = self.size.map_or(default, ByteSize::bytes);
        let pages = size.div_ceil(super::space::PAGE);
        // Leave room, because layouts round areas up to regions, and some have two areas of this size.
        if pages > super::space::MAX_PAGES / 4 {
            return Err(WorkloadError::TooLarge { workload: self.name(), pages });
        }
        Ok(size)
    }

    /// Returns the number of threads, or `default`.
    pub(crate) fn threads_or(&self, default: u16) -> u16 {
        self.threads.unwrap_or(default)
    }

    /// Returns the pace of unsampled accesses with this cost.
    pub(crate) fn pace(&self, cost: Cost, threads: u16) -> Pace {
        self.scale_cost(cost).pace(threads)
    }

    /// Adjusts a cost to the simulated machine, whose memory latency differs from the tables' machine.
    fn scale_cost(&self, cost: Cost) -> Cost {
        let overlapping = cost.instructions.zip(self.window).map(|(instructions, window)| Cost {
            exposed: (instructions / f64::from(window)).min(1.0),
            ..cost
        });
        let cost = overlapping.unwrap_or(cost);
        if let Some(own) = self.independent.filter(|_| cost.independent) {
            // The tables' cost of GUPS updates corresponds to the measured cost of independent accesses. See
            // docs/decisions/tlb.md#9.
            let there = Tables::embedded().gups.run;
            let accesses = cost.loads / there.loads;
            return Cost {
                cycles: (cost.cycles + accesses * (own.cycles - there.cycles)).max(0.0),
                exposed: (cost.exposed * own.walk / there.exposed).min(1.0),
                ..cost
            };
        }
        let farther = f64::from(self.memory_cycles) - f64::from(super::tables::LOAD);
        Cost { cycles: (cost.cycles + cost.loads * farther).max(0.0), ..cost }
    }

    /// Returns the cost of a streaming access to 8 bytes. The cost is at least the time that the memory bandwidth
    /// allows.
    pub(crate) fn streamed(&self, cost: Cost) -> Cost {
        let least = |rate| 8.0 * f64::from(self.cpu_mhz) / f64::from(rate);
        let least = self.stream_bandwidth.map_or(0.0, least);
        Cost { cycles: cost.cycles.max(least), ..cost }
    }

    /// Returns the pace of sampled accesses, each of which represents `weight` accesses.
    pub(crate) fn sampled(&self, cost: Cost, threads: u16, weight: u32) -> Pace {
        Pace { weight, ..self.pace(cost, threads) }
    }

    pub(crate) fn refuse(&self, option: &str, value: impl ToString, why: &str) -> WorkloadError {
        WorkloadError::BadValue {
            workload: self.name(),
            option: option.to_string(),
            value: value.to_string(),
            why: why.to_string(),
        }
    }

    /// Makes an error for a data structure that could not be built.
    pub(crate) fn host<E: ToString>(&self, why: E) -> WorkloadError {
        WorkloadError::Host { workload: self.name(), why: why.to_string() }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), WorkloadError> {
        let entry = self.entry;
        if !entry.options.contains(&option) {
            return Err(WorkloadError::NoSuchOption {
                workload: entry.name,
                option: option.to_string(),
                takes: match entry.options {
                    [] => "none".to_string(),
                    options => options.join(", "),
                },
                hint: match option {
                    "seed" => "; a seed is the experiment's: --seed",
                    "memory" => "; memory is the machine's: --memory",
                    _ => "",
                },
            });
        }
        let refuse = |why: String| WorkloadError::BadValue {
            workload: entry.name,
            option: option.to_string(),
            value: value.to_string(),
            why,
        };
        let size = || match value.parse::<ByteSize>() {
            Ok(ByteSize(0)) => Err(refuse("must be more than 0, e.g. 64K or 1G".to_string())),
            Ok(size) => Ok(size),
            Err(_) => Err(refuse("invalid size: expected e.g. 4096, 64K, 2M or 1.5G".to_string())),
        };
        let count = |most: u64| match value.parse::<ByteSize>() {
            Ok(ByteSize(number)) if (1..=most).contains(&number) => Ok(number),
            Ok(_) => Err(refuse(format!("must be 1 to {most}"))),
            Err(_) => {
                Err(refuse("invalid count: expected e.g. 1000, 64K (65536) or 1G".to_string()))
            }
        };
        match option {
            "size" => self.size = Some(size()?),
            "step" => self.step = Some(size()?),
            "operations" => self.operations = Some(count(1 << 48)?),
            "threads" => self.threads = Some(count(4096)? as u16),
            "weight" => self.weight = Some(count(1 << 20)? as u32),
            "iterations" => self.iterations = Some(count(1 << 20)? as u32),
            "lines" => self.lines = Some(count(64)? as u32),
            "graph" => {
                self.graph = Some(
                    value
                        .parse()
                        .map_err(|e: workload::graph::UnknownGraph| refuse(e.to_string()))?,
                );
            }
            _ => unreachable!("the catalogue names no other option"),
        }
        Ok(())
    }
}

impl FromStr for Setup {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let malformed = |what: String| WorkloadError::Malformed { spec: text.to_string(), what };
        if text.trim().is_empty() {
            return Err(malformed("no workload".to_string()));
        }
        let (name, options) = match text.split_once(':') {
            Some((name, options)) => (name, options.split(',').collect()),
            None => (text, Vec::new()),
        };
        let entry = catalog::find(name)?;
        let mut setup = Self {
            entry,
            size: None,
            operations: None,
            threads: None,
            weight: None,
            iterations: None,
            lines: None,
            graph: None,
            step: None,
            seed: 1,
            first_region: 0,
            align: 1,
            first_process: 1,
            cpu_mhz: 3700, // E3-1245v6, the probable machine of the published set
            memory_cycles: super::tables::LOAD,
            stream_bandwidth: None,
            independent: None,
            window: None,
        };
        let mut given: Vec<&str> = Vec::new();
        for option in options {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let (key, value) = (key.trim(), value.trim());
            if key.is_empty() {
                return Err(malformed("an option is empty".to_string()));
            }
            if value.is_empty() && entry.options.contains(&key) {
                return Err(malformed(format!("{key} has no value")));
            }
            if given.contains(&key) {
                return Err(malformed(format!("{key} is given twice")));
            }
            setup.set(key, value)?;
            given.push(key);
        }
        Ok(setup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_what_independent_accesses_cost() {
        let mut setup: Setup = "gups".parse().unwrap();
        let tables = Tables::embedded();
        let before = setup.scale_cost(tables.gups.run);
        assert_eq!(before, tables.gups.run);
        setup.independent = Some(Independent { cycles: 44.0, walk: 0.2 });
        let updates = setup.scale_cost(tables.gups.run);
        assert_eq!((updates.cycles, updates.exposed), (44.0, 0.2));
        // Other independent accesses scale: a look-up waited for 0.5 of a walk where an update waited for 0.6, and it
        // made no load from memory.
        let lookups = setup.scale_cost(tables.hashmap.run);
        assert_eq!(lookups.cycles, tables.hashmap.run.cycles);
        assert!((lookups.exposed - 0.5 * 0.2 / 0.6).abs() < 1e-12, "{}", lookups.exposed);
        setup.window = Some(400);
        assert_eq!(
            setup.scale_cost(tables.btree.run).exposed,
            tables.btree.run.instructions.unwrap() / 400.0
        );
        setup.window = Some(16);
        assert_eq!(setup.scale_cost(tables.btree.run).exposed, 1.0);
        let scaled = |cost| setup.scale_cost(cost);
        // Dependent accesses are unchanged.
        assert_eq!(scaled(tables.chase.run), tables.chase.run);
        assert_eq!(scaled(tables.stream.run), tables.stream.run);
    }
}
