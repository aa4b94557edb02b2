//! `/proc/PID/stat`: the parent, the state, and the start time that tells a reused pid apart.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::Pid;

use super::maps::Resident;
use super::{maps, tree};
use crate::root::KeptFile;
use crate::{ReadError, Root};

/// The part of `/proc/PID/stat` that this project uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The command's name, at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `Z`, ...
    pub state: char,
    /// The parent; 0 for the first process.
    pub parent: Pid,
    /// Its process group, and its session.
    pub group: Pid,
    /// See `group`.
    pub session: Pid,
    /// Faults it took without I/O, its waited-for children not included.
    pub minor_faults: u64,
    /// The same of its waited-for children and theirs.
    pub children_minor_faults: u64,
    /// Threads it has.
    pub threads: u64,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Bytes that it maps; 0 once it gave up its memory, and of kernel threads.
    pub mapped: u64,
    /// Where its stack begins: a fork keeps it, and an executed program gets another one. 0 without the right to
    /// trace it, or where the line is shorter.
    pub stack_start: u64,
}

impl Stat {
    /// Whether it has ended and only its exit code is left: not while threads go on after the first.
    pub fn is_dead(&self) -> bool {
        self.state == 'X' || self.state == 'Z' && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. Needs no privilege.
pub fn stat(root: &Root, pid: Pid) -> Result<Stat, ReadError> {
    let path = format!("/proc/{pid}/stat");
    parse(&root.read(&path)?, &root.path(&path))
}

/// Reads the text of `/proc/PID/stat`; `path` is named in errors.
pub fn parse(text: &str, path: &Path) -> Result<Stat, ReadError> {
    let bad = || ReadError::malformed(path, 1, text.trim_end(), "`pid (name) state parent ...`");
    // A name may hold spaces, newlines and parentheses: the last `)` ends it.
    let (head, fields) = text.rsplit_once(')').ok_or_else(bad)?;
    let (_, name) = head.split_once('(').ok_or_else(bad)?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().and_then(|state| state.chars().next()).ok_or_else(bad)?;
    let parent = fields.next().and_then(|parent| parent.parse().ok()).ok_or_else(bad)?;
    // Fields 5, 6, 10, 11, 20, 22, 23 and 28 of proc_pid_stat(5); the parent is field 4.
    let mut number = |skip: usize| -> Result<u64, ReadError> {
        fields.nth(skip).and_then(|field| field.parse().ok()).ok_or_else(bad)
    };
    Ok(Stat {
        name: name.to_string(),
        state,
        parent: Pid(parent),
        group: Pid(number(0)? as i32),
        session: Pid(number(0)? as i32),
        minor_faults: number(10 - 7)?,
        children_minor_faults: number(0)?,
        threads: number(20 - 12)?,
        start_ticks: number(22 - 21)?,
        mapped: number(0).unwrap_or(0),
        stack_start: number(28 - 24).unwrap_or(0),
    })
}

// What a watcher reads many times a second, from files that stay open.

/// An open `/proc/PID/status`. It stays that process's when its pid is given out again.
#[derive(Debug)]
pub struct KeptStatus(KeptFile);

impl KeptStatus {
    /// Opens it.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        KeptFile::open(root, &format!("/proc/{pid}/status")).map(Self)
    }

    /// What [`super::status`] reads; an error that [is gone](ReadError::is_gone) when the process ended.
    pub fn read(&mut self) -> Result<Resident, ReadError> {
        let (text, path) = self.0.read()?;
        maps::parse(&text, path)
    }
}

/// An open `/proc/loadavg`.
#[derive(Debug)]
pub struct KeptLoad(KeptFile);

/// What it says now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Threads of the machine that run or wait for a CPU, the reader's among them.
    pub running: u64,
    /// The pid given out last on this machine.
    pub newest: Pid,
}

impl KeptLoad {
    /// Opens it.
    pub fn open(root: &Root) -> Result<Self, ReadError> {
        KeptFile::open(root, "/proc/loadavg").map(Self)
    }

    /// Reads it.
    pub fn read(&mut self) -> Result<Load, ReadError> {
        let (text, path) = self.0.read()?;
        Ok(Load {
            running: tree::parse_running(&text, path)?,
            newest: tree::parse_newest(&text, path)?,
        })
    }

    /// The pid given out last on this machine: while it stays, no process was born anywhere, so a tree read
    /// before is still complete.
    pub fn newest_pid(&mut self) -> Result<Pid, ReadError> {
        let (text, path) = self.0.read()?;
        tree::parse_newest(&text, path)
    }
}

// A file read line by line into one buffer: a process may have 65530 mappings and more.

/// Lines of a file with their numbers. Owned by one parser.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    path: PathBuf,
    number: usize,
    buffer: Vec<u8>,
    pushed_back: bool,
}

impl Lines<BufReader<File>> {
    pub fn open(root: &Root, path: &str) -> Result<Self, ReadError> {
        let path = root.path(path);
        let file =
            File::open(&path).map_err(|source| ReadError::Io { path: path.clone(), source })?;
        // The kernel fills at most a page of /proc text for each read of its own size; a larger
        // buffer saves system calls on smaps (0.7 KB for each mapping).
        Ok(Self::new(BufReader::with_capacity(64 << 10, file), path))
    }
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, path: PathBuf) -> Self {
        Self { reader, path, number: 0, buffer: Vec::new(), pushed_back: false }
    }

    /// Goes to the next line; false at the end of the file.
    pub fn advance(&mut self) -> Result<bool, ReadError> {
        if std::mem::take(&mut self.pushed_back) {
            return Ok(true);
        }
        self.buffer.clear();
        let read = self.reader.read_until(b'\n', &mut self.buffer);
        let count = read.map_err(|source| self.io(source))?;
        self.number += usize::from(count > 0);
        Ok(count > 0)
    }

    /// The line at hand, without its end.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer))
    }

    /// Makes the next `advance` stay at this line.
    pub fn push_back(&mut self) {
        self.pushed_back = true;
    }

    /// The error for the line at hand.
    pub fn malformed(&self, expected: &'static str) -> ReadError {
        ReadError::malformed(&self.path, self.number, &self.text(), expected)
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), source }
    }
}
