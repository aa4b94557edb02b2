//! `Workload`: the list of kernels, and the entry point to check and run one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::ByteSize;

use crate::{Better, Look, Outcome, Settings, WorkloadError};
use crate::{btree, chase, gups, hashmap, outcome, pagerank, requests, stream, touch};

/// A benchmark kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Random read-modify-write over a table (HPCC RandomAccess).
    Gups,
    /// Dependent random loads along one cycle through all memory.
    Chase,
    /// The four STREAM kernels.
    Stream,
    /// The page-fault test of 2005.
    Touch,
    /// Pull-based PageRank on a generated graph (GAP).
    Pagerank,
    /// Lookups in a static B+-tree.
    Btree,
    /// Lookups in an open-addressing hash table.
    Hashmap,
    /// Blocks allocated, filled and freed, each timed.
    Requests,
}

/// An unknown name of a workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload `{0}`: expected one of {known}", known = names())]
pub struct UnknownWorkload(pub String);

/// Minimum bytes of memory per thread. Less would fit in first-level caches.
const MIN_PER_THREAD: u64 = 64 << 10;

impl Workload {
    /// Every workload, in the order of `--help`.
    pub const ALL: [Self; 8] = [
        Self::Gups,
        Self::Chase,
        Self::Stream,
        Self::Touch,
        Self::Pagerank,
        Self::Btree,
        Self::Hashmap,
        Self::Requests,
    ];

    /// The name on the command line and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gups => "gups",
            Self::Chase => "chase",
            Self::Stream => "stream",
            Self::Touch => "touch",
            Self::Pagerank => "pagerank",
            Self::Btree => "btree",
            Self::Hashmap => "hashmap",
            Self::Requests => "requests",
        }
    }

    /// One line for `--help`.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Gups => "random xor updates of a table of words (HPCC RandomAccess)",
            Self::Chase => "dependent loads along one random cycle through every cache line",
            Self::Stream => "copy, scale, add and triad over three arrays (McCalpin's STREAM)",
            Self::Touch => {
                "first touch of fresh pages by all threads (the page-fault test of 2005)"
            }
            Self::Pagerank => "pull PageRank on a generated Kronecker or uniform graph (GAP)",
            Self::Btree => "random lookups, 3 of 4 present, in a static B+-tree",
            Self::Hashmap => "random lookups, 3 of 4 present, in an open-addressing hash table",
            Self::Requests => "blocks of random sizes allocated, filled and freed, each one timed",
        }
    }

    /// Name, unit and better direction of the figure of merit.
    pub const fn figure(self) -> (&'static str, &'static str, Better) {
        match self {
            Self::Gups => ("random updates", "updates/s", Better::Higher),
            Self::Chase => ("time of a dependent load", "ns/load", Better::Lower),
            Self::Stream => ("triad, best", "bytes/s", Better::Higher),
            Self::Touch => ("pages touched first", "pages/s", Better::Higher),
            Self::Pagerank => ("edges pulled", "edges/s", Better::Higher),
            Self::Btree | Self::Hashmap => ("lookups", "lookups/s", Better::Higher),
            Self::Requests => ("requests served", "requests/s", Better::Higher),
        }
    }

    /// The default size: far beyond any TLB's reach with base pages, and small enough for a laptop.
    pub const fn default_size(self) -> ByteSize {
        ByteSize::gib(1)
    }

    /// The names of the [`crate::Options`] of this workload; other options must be absent.
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Gups | Self::Chase | Self::Btree | Self::Hashmap => &["operations"],
            Self::Stream => &["iterations", "offset"],
            Self::Touch => &["repeat", "lines", "burst", "gap", "populate", "latency"],
            Self::Requests => &["operations", "smallest", "largest"],
            Self::Pagerank => &["iterations", "graph"],
        }
    }

    /// Peak bytes of memory of the run, including verification. Differs from the requested size by rounding down, and
    /// for `stream` by the offsets between the arrays.
    pub fn footprint(self, settings: &Settings) -> ByteSize {
        ByteSize(match self {
            Self::Gups => gups::Plan::new(settings).footprint(),
            Self::Chase => chase::Plan::new(settings).footprint(),
            Self::Stream => stream::Plan::new(settings).footprint(),
            Self::Touch => touch::Plan::new(settings).footprint(),
            Self::Pagerank => pagerank::Plan::new(settings).footprint(),
            Self::Btree => btree::Plan::new(settings).footprint(),
            Self::Hashmap => hashmap::Plan::new(settings).footprint(),
            Self::Requests => requests::Plan::new(settings).footprint(),
        })
    }

    /// Refuses invalid settings, and sizes that exceed `available` bytes of memory (if the caller knows that number).
    /// Allocates nothing.
    pub fn check(
        self,
        settings: &Settings,
        available: Option<ByteSize>,
    ) -> Result<(), WorkloadError> {
        let threads = settings.threads.get();
        let least = ByteSize(MIN_PER_THREAD.saturating_mul(threads as u64));
        if settings.size < least {
            return Err(WorkloadError::TooSmall {
                workload: self,
                size: settings.size,
                threads,
                least,
            });
        }
        settings.options.check(self, settings.size.bytes() / threads as u64)?;
        let footprint = self.footprint(settings);
        match available {
            Some(available) if footprint > available => Err(WorkloadError::TooLarge {
                workload: self,
                size: settings.size,
                footprint,
                available,
            }),
            _ => Ok(()),
        }
    }

    /// Checks, allocates, initializes, runs the timed region and verifies.
    pub fn run(self, settings: &Settings) -> Result<Outcome, WorkloadError> {
        self.run_seen(settings, &|_| None)
    }

    /// Like [`Self::run`]; workloads that measure page faults use `look` to read back their superpages.
    pub fn run_seen(self, settings: &Settings, look: Look) -> Result<Outcome, WorkloadError> {
        self.check(settings, None)?;
        let run = match self {
            Self::Gups => gups::run(settings),
            Self::Chase => chase::run(settings),
            Self::Stream => stream::run(settings),
            Self::Touch => touch::run(settings, look),
            Self::Pagerank => pagerank::run(settings),
            Self::Btree => btree::run(settings),
            Self::Hashmap => hashmap::run(settings),
            Self::Requests => requests::run(settings, look),
        }?;
        Ok(outcome::outcome(self, settings, run))
    }
}

impl FromStr for Workload {
    type Err = UnknownWorkload;
    fn from_str(name: &str) -> Result<Self, UnknownWorkload> {
        Self::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
            .ok_or_else(|| UnknownWorkload(name.to_string()))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn names() -> String {
    Workload::ALL.map(Workload::name).join(", ")
}
