//! What can go wrong with a trace, each in one line: file, place, what, remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::file::VERSION;

/// Where in an imported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1.
    Line(u64),
    /// A byte of the data (after decompression), from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// What to do about an answer of the operating system, after a separator; nothing where that is plain.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name and its directory",
        io::ErrorKind::PermissionDenied => "; choose one that you may use",
        io::ErrorKind::StorageFull => "; make room, or choose another place",
        _ => "",
    }
}

/// A trace that cannot be read, written or imported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system refused.
    #[error("{}: {doing}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// A directory, a pipe, a device: something that a trace cannot be read from.
    #[error("{}: {what}; a trace is a plain file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The output is there already.
    #[error("{}: exists already; give another name, or --force to replace it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It does not begin like a trace.
    #[error(
        "{}: byte 0: {what}, not a superpage trace; `superpage trace import` makes one of ChampSim, \
         lackey, raw or text", path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// A trace of another version of the format.
    #[error(
        "{}: byte 8: format version {found}, and this superpage reads version {VERSION}; use the \
         superpage that wrote it, or record it again", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that it says.
        found: u16,
    },
    /// It ends too early.
    #[error(
        "{}: byte {offset}: truncated: {what}; copy it again, or record it again", path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where it ends, or where something is missing.
        offset: u64,
        /// What is missing.
        what: &'static str,
    },
    /// Its bytes are not those that were written, or were written wrongly.
    #[error(
        "{}: byte {offset}{}: corrupt: {what}; copy it again, or record it again",
        path.display(), in_chunk(chunk)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The chunk, from 0, if it is in one.
        chunk: Option<usize>,
        /// Where that part of the file begins.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// It is of a machine with another base page.
    #[error(
        "{}: recorded with base pages of {trace} bytes, but the machine has base pages of {machine}; \
         choose a machine with pages of {trace} bytes, or record it again", path.display()
    )]
    Geometry {
        /// The file.
        path: PathBuf,
        /// Its base page.
        trace: u32,
        /// The machine's.
        machine: u64,
    },
    /// It does not fit beside other streams, or in the format at all.
    #[error("{}: {what}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What does not fit, and what would.
        what: String,
    },
    /// A stream that breaks the rules of streams cannot be recorded.
    #[error("{}: record {record}: the stream is wrong: {what}", path.display())]
    Stream {
        /// The file being written.
        path: PathBuf,
        /// The record before which it is wrong, from 0.
        record: u64,
        /// What is wrong.
        what: String,
    },
    /// Who watched over it stopped it.
    #[error("{}: stopped", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
    /// A file in a foreign format cannot be understood.
    #[error("{}: {place}: {what}; {remedy}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: &'static str,
    },
}

impl TraceError {
    /// The operating system refused: for `map_err`.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io { path: path.to_path_buf(), doing, source }
    }

    pub(crate) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        Self::io(path, "cannot be read")
    }

    pub(crate) fn corrupt(path: &Path, chunk: Option<usize>, offset: u64, what: &str) -> Self {
        Self::Corrupt { path: path.to_path_buf(), chunk, offset, what: what.to_string() }
    }
}

fn in_chunk(chunk: &Option<usize>) -> String {
    chunk.map_or(String::new(), |chunk| format!(" (chunk {chunk})"))
}
