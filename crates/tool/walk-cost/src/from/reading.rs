//! What a file held, and why it could not be read.

use std::path::PathBuf;

use crate::estimate::Attribution;
use crate::events::Table;
use crate::{Count, Given};

/// What a file held.
#[derive(Debug, Default)]
pub struct Reading {
    /// Which format it was.
    pub format: Format,
    /// How often events happened.
    pub counts: Vec<Count>,
    /// Whose misses were sampled, an entry for each sampled event.
    pub attributions: Vec<Attribution>,
    /// Numbers given by key.
    pub given: Given,
    /// The events of the processor that was measured, where the file names it.
    pub table: Option<&'static Table>,
    /// What a reader should know, a line each.
    pub notes: Vec<String>,
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `perf stat -j`.
    StatJson,
    /// `perf record`'s file.
    Data,
    /// `opreport -l`.
    Opreport,
    /// `key = value`.
    #[default]
    Keys,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FromError {
    /// The file is missing or refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A line that is not what this format is made of.
    #[error("{}:{line}: expected {expected}, found {text:?}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// The line, cut.
        text: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A `perf.data` that is broken.
    #[error("{}: byte {offset}: {what}; record it again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A `perf.data` that is not of the kind for pipes, in a pipe.
    #[error(
        "{}: a perf.data file cannot be read from a pipe; give its name, or record in pipe format: perf \
         record -o -",
        path.display()
    )]
    Unseekable {
        /// The file.
        path: PathBuf,
    },
    /// None of the formats.
    #[error(
        "{}: unknown format: expected the output of perf stat -j, a perf.data, opreport -l, or lines of \
         key=value (misses, cost, cycles)",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

impl Format {
    /// Its name in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::StatJson => "perf stat -j",
            Self::Data => "perf.data",
            Self::Opreport => "opreport -l",
            Self::Keys => "key = value",
        }
    }
}
