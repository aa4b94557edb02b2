//! Errors of traces, each in one line: file, place, problem, remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::file::VERSION;

/// A place in an imported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Line number, from 1.
    Line(u64),
    /// Byte offset in the decompressed data, from 0.
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

/// Returns the remedy for an I/O error, with a leading separator; empty if the remedy is obvious.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check the name and its directory",
        io::ErrorKind::PermissionDenied => "; choose one that you may use",
        io::ErrorKind::StorageFull => "; make room, or choose another place",
        _ => "",
    }
}

/// Why a trace cannot be read, written or imported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// An I/O error.
    #[error("{}: {doing}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// A directory, pipe or device, which cannot be read as a trace.
    #[error("{}: {what}; a trace is a plain file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// Kind of the file.
        what: &'static str,
    },
    /// The output already exists.
    #[error("{}: exists already; give another name, or --force to replace it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file does not start like a trace.
    #[error(
        "{}: byte 0: {what}, not a superpage trace; `superpage trace import` makes one of ChampSim, \
         lackey, raw or text", path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// Description of what the file contains.
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
        /// Version in the file.
        found: u16,
    },
    /// The file ends too early.
    #[error(
        "{}: byte {offset}: truncated: {what}; copy it again, or record it again", path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Offset of the end, or of the missing part.
        offset: u64,
        /// The missing part.
        what: &'static str,
    },
    /// The file is damaged, or its writer had a bug.
    #[error(
        "{}: byte {offset}{}: corrupt: {what}; copy it again, or record it again",
        path.display(), in_chunk(chunk)
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Number of the damaged chunk, from 0, if the damage is in a chunk.
        chunk: Option<usize>,
        /// Offset of the damaged part.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// The trace's base page size differs from the machine's.
    #[error(
        "{}: recorded with base pages of {trace} bytes, but the machine has base pages of {machine}; \
         choose a machine with pages of {trace} bytes, or record it again", path.display()
    )]
    Geometry {
        /// The file.
        path: PathBuf,
        /// Base page size of the trace in bytes.
        trace: u32,
        /// Base page size of the machine in bytes.
        machine: u64,
    },
    /// The trace does not fit beside other streams, or exceeds a limit of the format.
    #[error("{}: {what}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What does not fit, and the limit.
        what: String,
    },
    /// The stream is inconsistent and cannot be recorded.
    #[error("{}: record {record}: the stream is wrong: {what}", path.display())]
    Stream {
        /// The file being written.
        path: PathBuf,
        /// Number of the record, from 0, before which the stream is inconsistent.
        record: u64,
        /// The inconsistency.
        what: String,
    },
    /// The caller stopped the operation.
    #[error("{}: stopped", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
    },
    /// A file to import is malformed.
    #[error("{}: {place}: {what}; {remedy}", path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// The place of the error.
        place: Place,
        /// The error.
        what: String,
        /// The expected content.
        remedy: &'static str,
    },
}

impl TraceError {
    /// Makes an I/O error, for `map_err`.
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
