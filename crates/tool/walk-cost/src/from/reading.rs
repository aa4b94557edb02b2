//! `Reading`: the contents of a file, and the errors of the readers.

use std::path::PathBuf;

use crate::estimate::Attribution;
use crate::events::Table;
use crate::{Context, Count, Estimate, Given, MissCost, interpret};

/// The contents of a file.
#[derive(Debug, Default)]
pub struct Reading {
    /// Format of the file.
    pub format: Format,
    /// Event counts.
    pub counts: Vec<Count>,
    /// Attribution of the samples, one entry per sampled event.
    pub attributions: Vec<Attribution>,
    /// Numbers by key.
    pub given: Given,
    /// Number of second-level TLB hits beside the numbers by key, if counted.
    pub unpriced_hits: Option<f64>,
    /// Event table of the measured CPU, if the file names the CPU.
    pub table: Option<&'static Table>,
    /// Notes for the reader, one line each.
    pub notes: Vec<String>,
}

impl Reading {
    /// Returns the estimate. `given` completes and overrides a file of numbers; `cost` is for counts.
    pub fn estimate(&self, given: Given, cost: Option<&MissCost>) -> Estimate {
        let mut estimate = match self.format {
            Format::Keys | Format::Opreport => given.or(self.given).estimate(),
            Format::Stat | Format::StatCsv | Format::StatJson | Format::Data => {
                interpret(&self.counts, Context { table: self.table, cost })
            }
        };
        if let Some(hits) = self.unpriced_hits {
            estimate = estimate.without_bound().with_note(format!(
                "{hits:.0} second-level TLB hits were counted, which have no price here"
            ));
        }
        estimate.notes.extend(self.notes.iter().cloned());
        estimate
    }
}

/// The supported formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `perf stat`.
    Stat,
    /// `perf stat -x`.
    StatCsv,
    /// `perf stat -j`.
    StatJson,
    /// `perf record`'s file.
    Data,
    /// `opreport`, with and without `-l`.
    Opreport,
    /// `key = value`.
    #[default]
    Keys,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FromError {
    /// The file is missing, or the kernel refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// A line that does not match the format.
    #[error("{}:{line}: expected {expected}, found {text:?}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The line, truncated.
        text: String,
        /// Expected content.
        expected: &'static str,
    },
    /// Several reports or runs, whose counts have no sum.
    #[error(
        "{0}:{line}: another report begins here, and one is read: `head -n {before} {0} | superpage measure --from -`, \
         then `tail -n +{line} {0} | superpage measure --from -`",
        path.display()
    )]
    Several {
        /// The file.
        path: PathBuf,
        /// First line of the second report, from 1.
        line: u64,
        /// The line before it.
        before: u64,
    },
    /// A damaged `perf.data`.
    #[error("{}: byte {offset}: {what}; record it again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Offset of the damage.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// A `perf.data` in file format, read from a pipe.
    #[error(
        "{}: a perf.data file cannot be read from a pipe; give its name, or record in pipe format: perf \
         record -o -",
        path.display()
    )]
    Unseekable {
        /// The file.
        path: PathBuf,
    },
    /// The file of `perf stat record`.
    #[error(
        "{}: counts of perf stat record; print them and read that: perf stat report -i {} 2> counts.txt",
        path.display(), path.display()
    )]
    StatRecord {
        /// The file.
        path: PathBuf,
    },
    /// An unknown format.
    #[error(
        "{}: unknown format: expected the output of perf stat (text, -x or -j; counts, not --metric-only), a \
         perf.data, opreport, or lines of key=value (misses, cost, cycles)",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

impl Format {
    /// The name of the format.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Stat => "perf stat",
            Self::StatCsv => "perf stat -x",
            Self::StatJson => "perf stat -j",
            Self::Data => "perf.data",
            Self::Opreport => "opreport",
            Self::Keys => "key = value",
        }
    }
}
