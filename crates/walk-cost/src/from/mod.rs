//! Files that somebody else's measurement left: `perf stat` in its three outputs, `perf script`,
//! `perf.data`, and `key = value`. Which of them a file is, is read off its beginning.
//!
//! Readers are total: what they do not know they pass over, what is broken they name with its
//! place, and memory is bounded whatever the file says of itself.

mod data;
mod detect;
mod keys;
mod lines;
mod number;
mod script;
mod spaces;
mod stat_csv;
mod stat_json;
mod stat_text;
mod sums;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::attribution::Attribution;
use crate::events::Table;
use crate::{Count, Given};

/// The file's beginning by which its format is known.
const HEAD: u64 = 64 << 10;

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
    /// `perf stat -x,`.
    StatCsv,
    /// What `perf stat` prints.
    StatText,
    /// What `perf script` prints.
    Script,
    /// `perf record`'s file.
    Data,
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
    #[error("{}: byte {offset}: {what}; was the recording cut off? make it again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A `perf.data` of a kind that perf itself must unpack.
    #[error(
        "{}: {what}; let perf unpack it: perf script --show-mmap-events -F \
         comm,pid,tid,time,period,event,addr,ip,sym,dso -i FILE > TEXT, then --from TEXT",
        path.display()
    )]
    Packed {
        /// The file.
        path: PathBuf,
        /// What kind.
        what: &'static str,
    },
    /// None of the formats.
    #[error(
        "{}: none of the formats that are read: perf stat (-j, -x, or plain), perf script, \
         perf.data, or lines of key=value (misses, cost, cycles)",
        path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a file of any format.
pub fn read(path: &Path) -> Result<Reading, FromError> {
    let io = |source| FromError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut head = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut head).map_err(io)?;
    if head.starts_with(data::MAGIC) || head.starts_with(data::SWAPPED_MAGIC) {
        let length = file.seek(SeekFrom::End(0)).and_then(|end| file.rewind().map(|()| end));
        let length = length.map_err(|_| FromError::Packed {
            path: path.to_owned(),
            what: "it comes through a pipe, and cannot be read from its end",
        })?;
        return data::read(BufReader::new(file), length, path);
    }
    // Not sought back: the file may be a pipe.
    text(std::io::Cursor::new(head.clone()).chain(file), &head, path)
}

/// Reads text at hand; `path` is named in errors.
pub fn read_text(text_at_hand: &str, path: &Path) -> Result<Reading, FromError> {
    let head = &text_at_hand.as_bytes()[..text_at_hand.len().min(HEAD as usize)];
    text(text_at_hand.as_bytes(), head, path)
}

fn text(input: impl Read, head: &[u8], path: &Path) -> Result<Reading, FromError> {
    let unknown = || FromError::Unknown { path: path.to_owned() };
    let format = detect::format(&String::from_utf8_lossy(head)).ok_or_else(unknown)?;
    let lines = lines::Lines::new(BufReader::new(input), path);
    let mut reading = match format {
        Format::StatJson => stat_json::read(lines)?,
        Format::StatCsv => stat_csv::read(lines)?,
        Format::StatText => stat_text::read(lines)?,
        Format::Script => script::read(lines)?,
        Format::Keys | Format::Data => keys::read(lines)?,
    };
    reading.format = format;
    Ok(reading)
}

impl Format {
    /// Its name in words.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::StatJson => "perf stat -j",
            Self::StatCsv => "perf stat -x",
            Self::StatText => "perf stat",
            Self::Script => "perf script",
            Self::Data => "perf.data",
            Self::Keys => "key = value",
        }
    }
}
