//! `Setup`: what to run, read from a specification; `Description`: what it is.
//!
//! A specification is a name and options: `gups:size=8G,operations=4G,weight=64`. Counts take the
//! binary units of sizes, so that a table of 1G words is updated 4G times.

use std::str::FromStr;

use trace::Pace;
use units::ByteSize;
use workload::Graph;

use super::catalog;
use super::entry::Entry;
use super::kernels;
use super::{Cost, Independent, Stream, Tables, WorkloadError};

/// What to run. What is `None` takes the workload's own default.
#[derive(Debug, Clone)]
pub struct Setup {
    entry: &'static Entry,
    /// The memory to work on.
    pub size: Option<ByteSize>,
    /// Operations of the run (each workload says which in its [`Figure`]).
    pub operations: Option<u64>,
    /// Threads at work.
    pub threads: Option<u16>,
    /// Accesses of the program that one of a steady random phase stands for.
    pub weight: Option<u32>,
    /// Passes.
    pub iterations: Option<u32>,
    /// Cache lines touched in a page.
    pub lines: Option<u32>,
    /// Which graph.
    pub graph: Option<Graph>,
    /// By how much a heap grows at once.
    pub step: Option<ByteSize>,
    /// The seed of everything random.
    pub seed: u64,
    /// The first region's number that the stream may use; those before are somebody else's.
    pub first_region: u32,
    /// Areas begin at multiples of so many regions: a power of two.
    pub align: u32,
    /// The first process's number.
    pub first_process: u32,
    /// The simulated CPU's frequency, for what is known in seconds.
    pub cpu_mhz: u32,
    /// Cycles of a load from its memory.
    pub memory_cycles: u16,
    /// MB/s that one thread of it streams, if that is known.
    pub stream_bandwidth: Option<u32>,
    /// What accesses cost on it that do not wait for each other, if that is known.
    pub independent: Option<Independent>,
}

/// What a workload is, for reports and for whoever must provide memory for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// The most base pages it has touched and not freed at once. File pages count.
    pub footprint_pages: u64,
    /// The superpages that would back all of it at that time; the N of Frag-L.
    pub superpages: u64,
    /// Threads at work.
    pub threads: u16,
    /// What is compared.
    pub figure: Figure,
    /// Its phases, in order.
    pub phases: Vec<&'static str>,
    /// Regions whose numbers the stream uses, from [`Setup::first_region`] on.
    pub regions: u32,
    /// Accesses and runs that the stream has, about, if that is known before its end.
    pub records: Option<u64>,
}

/// What is compared between designs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// Operations per second of the phase `run`.
    Rate {
        /// What is counted.
        unit: &'static str,
        /// How many the program makes (the stream's samples stand for them all).
        operations: u64,
    },
    /// Seconds of the phase `run`.
    RunTime,
    /// Seconds of all phases.
    Time,
}

impl Setup {
    /// The name of the workload.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// Its entry in the catalogue.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// The stream and what it is, with the costs that are built in.
    ///
    /// # Errors
    /// [`WorkloadError`]: an option does not fit, or a structure that the sequence depends on cannot be built.
    pub fn build(&self) -> Result<(Description, Stream), WorkloadError> {
        self.build_with(Tables::embedded())
    }

    /// What it is, of at most as much memory as the stream has, without what takes long to build.
    ///
    /// # Errors
    /// [`WorkloadError`]: an option does not fit.
    pub fn describe(&self) -> Result<Description, WorkloadError> {
        kernels::describe(self).unwrap_or_else(|| self.build().map(|(description, _)| description))
    }

    /// As `build`, with other costs.
    ///
    /// # Errors
    /// As [`Setup::build`].
    pub fn build_with(&self, tables: &Tables) -> Result<(Description, Stream), WorkloadError> {
        (self.entry.build)(self, tables)
    }

    /// The size or its default.
    pub(crate) fn size_or(&self, default: u64) -> Result<u64, WorkloadError> {
        let size = self.size.map_or(default, ByteSize::bytes);
        let pages = size.div_ceil(super::space::PAGE);
        // Half the numbers: layouts round areas up to regions, some keep two areas of a size.
        if pages > super::space::MAX_PAGES / 4 {
            return Err(WorkloadError::TooLarge { workload: self.name(), pages });
        }
        Ok(size)
    }

    /// The threads or their default.
    pub(crate) fn threads_or(&self, default: u16) -> u16 {
        self.threads.unwrap_or(default)
    }

    /// The pace of accesses with a cost, all of them there.
    pub(crate) fn pace(&self, cost: Cost, threads: u16) -> Pace {
        self.here(cost).pace(threads)
    }

    /// A cost on this machine, whose memory is nearer or farther than that of the tables' machine.
    fn here(&self, cost: Cost) -> Cost {
        if let Some(here) = self.independent.filter(|_| cost.independent) {
            // On the tables' machine GUPS' updates are what is measured on this one. See docs/decisions/tlb.md#9.
            let there = Tables::embedded().gups.run;
            let accesses = cost.loads / there.loads;
            return Cost {
                cycles: (cost.cycles + accesses * (here.cycles - there.cycles)).max(0.0),
                exposed: (cost.exposed * here.walk / there.exposed).min(1.0),
                ..cost
            };
        }
        let farther = f64::from(self.memory_cycles) - f64::from(super::tables::LOAD);
        Cost { cycles: (cost.cycles + cost.loads * farther).max(0.0), ..cost }
    }

    /// The cost of an access to 8 bytes of a stream: where memory delivers less, as long as that takes.
    pub(crate) fn streamed(&self, cost: Cost) -> Cost {
        let least = |rate| 8.0 * f64::from(self.cpu_mhz) / f64::from(rate);
        let least = self.stream_bandwidth.map_or(0.0, least);
        Cost { cycles: cost.cycles.max(least), ..cost }
    }

    /// The pace of accesses of which each stands for `weight`.
    pub(crate) fn sampled(&self, cost: Cost, threads: u16, weight: u32) -> Pace {
        Pace { weight, ..self.pace(cost, threads) }
    }

    /// That an option's value is refused.
    pub(crate) fn refuse(&self, option: &str, value: impl ToString, why: &str) -> WorkloadError {
        WorkloadError::BadValue {
            workload: self.name(),
            option: option.to_string(),
            value: value.to_string(),
            why: why.to_string(),
        }
    }

    /// That a structure could not be built on this machine.
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
        let before = setup.here(tables.gups.run);
        assert_eq!(before, tables.gups.run);
        setup.independent = Some(Independent { cycles: 44.0, walk: 0.2 });
        let here = |cost| setup.here(cost);
        let updates = here(tables.gups.run);
        assert_eq!((updates.cycles, updates.exposed), (44.0, 0.2));
        // Others in proportion: a look-up waited for 0.5 of a walk where updates waited for 0.6, and for no memory.
        let lookups = here(tables.hashmap.run);
        assert_eq!(lookups.cycles, tables.hashmap.run.cycles);
        assert!((lookups.exposed - 0.5 * 0.2 / 0.6).abs() < 1e-12, "{}", lookups.exposed);
        // What waits for each other does so everywhere.
        assert_eq!(here(tables.chase.run), tables.chase.run);
        assert_eq!(here(tables.stream.run), tables.stream.run);
    }
}
