//! `/proc/PID/stat`: the parent, the state, and the start time that identifies a reused pid.

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
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// Number of faults of the process itself that needed no I/O.
    pub minor_faults: u64,
    /// Number of faults that needed no I/O, of children it waited for and their descendants.
    pub children_minor_faults: u64,
    /// Number of faults of the process itself that needed I/O.
    pub major_faults: u64,
    /// CPU time of the process itself, in clock ticks.
    pub cpu_ticks: u64,
    /// CPU time of the children that it waited for and their descendants, in clock ticks.
    pub children_cpu_ticks: u64,
    /// Number of threads.
    pub threads: u64,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// Number of mapped bytes. 0 for kernel threads, and for processes that have released their
    /// memory.
    pub mapped: u64,
    /// Number of resident base pages, without hugetlb pages. The kernel's fast counter: off by some pages for each
    /// thread (proc_pid_stat(5)).
    pub resident_pages: u64,
    /// Start address of its stack: unchanged by fork, new after exec. 0 if this process may not trace the process, or
    /// if the line has no such field.
    pub stack_start: u64,
    /// Scheduling policy of the thread, the main one of a process (sched(7)): 0 is SCHED_OTHER. 0 if the line has no such
    /// field.
    pub policy: u64,
}

impl Stat {
    /// Whether the policy is SCHED_FIFO, SCHED_RR or SCHED_DEADLINE.
    pub fn is_realtime(&self) -> bool {
        matches!(self.policy, 1 | 2 | 6)
    }

    /// Whether the process is a zombie or dead. False if the main thread has ended but other
    /// threads run.
    pub fn is_dead(&self) -> bool {
        self.state == 'X' || self.state == 'Z' && self.threads <= 1
    }
}

/// Reads `/proc/PID/stat`. Needs no privilege.
pub fn stat(root: &Root, pid: Pid) -> Result<Stat, ReadError> {
    let path = format!("/proc/{pid}/stat");
    parse(&root.read(&path)?, &root.path(&path))
}

/// Reads `/proc/self/stat`.
pub fn own_stat(root: &Root) -> Result<Stat, ReadError> {
    let path = "/proc/self/stat";
    parse(&root.read(path)?, &root.path(path))
}

/// Whether a process has this pid now; zombies do not count. False if `/proc` cannot be read.
pub fn is_running(root: &Root, pid: Pid) -> bool {
    stat(root, pid).is_ok_and(|stat| !stat.is_dead())
}

/// Reads the text of `/proc/PID/stat`; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<Stat, ReadError> {
    let bad = || ReadError::malformed(path, 1, text.trim_end(), "`pid (name) state parent ...`");
    // A name may contain spaces, newlines and parentheses: the last `)` ends it.
    let (head, fields) = text.rsplit_once(')').ok_or_else(bad)?;
    let (_, name) = head.split_once('(').ok_or_else(bad)?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().and_then(|state| state.chars().next()).ok_or_else(bad)?;
    let parent = fields.next().and_then(|parent| parent.parse().ok()).ok_or_else(bad)?;
    // Fields 5, 6, 10, 11, 12, 14 to 17, 20, 22, 23, 24, 28 and 41 of proc_pid_stat(5); field 4 is the parent.
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
        major_faults: number(0)?,
        cpu_ticks: number(14 - 13)?.saturating_add(number(0)?),
        children_cpu_ticks: number(0)?.saturating_add(number(0)?),
        threads: number(20 - 18)?,
        start_ticks: number(22 - 21)?,
        mapped: number(0).unwrap_or(0),
        resident_pages: number(0).unwrap_or(0),
        stack_start: number(28 - 25).unwrap_or(0),
        policy: number(41 - 29).unwrap_or(0),
    })
}

// Files that are kept open and read many times a second.

/// An open `/proc/PID/status`. The file belongs to its process even if the pid is reused.
#[derive(Debug)]
pub struct KeptStatus(KeptFile);

impl KeptStatus {
    /// Opens the file.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        KeptFile::open(root, &format!("/proc/{pid}/status")).map(Self)
    }

    /// Reads what [`super::status`] reads. If the process ended, the error [is gone](ReadError::is_gone).
    pub fn read(&mut self) -> Result<Resident, ReadError> {
        let (text, path) = self.0.read()?;
        maps::parse(&text, path)
    }
}

/// An open `/proc/loadavg`.
#[derive(Debug)]
pub struct KeptLoad(KeptFile);

/// The current load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Number of threads on the machine that run or wait for a CPU, including the reader.
    pub running: u64,
    /// The most recently assigned pid on this machine.
    pub newest: Pid,
}

impl KeptLoad {
    /// Opens the file.
    pub fn open(root: &Root) -> Result<Self, ReadError> {
        KeptFile::open(root, "/proc/loadavg").map(Self)
    }

    /// Reads the file.
    pub fn read(&mut self) -> Result<Load, ReadError> {
        let (text, path) = self.0.read()?;
        Ok(Load {
            running: tree::parse_running(&text, path)?,
            newest: tree::parse_newest(&text, path)?,
        })
    }

    /// The most recently assigned pid on this machine. While this pid stays the same, no process was created, so a tree
    /// read before lists every process.
    pub fn newest_pid(&mut self) -> Result<Pid, ReadError> {
        let (text, path) = self.0.read()?;
        tree::parse_newest(&text, path)
    }
}

// Files that are read line by line into one buffer: a process may have 65530 or more mappings.

/// Reads the lines of a file and counts them.
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
        // The kernel fills at most one page per read of a /proc file; a larger buffer still saves system calls for
        // smaps, which has 0.7 KB for each mapping.
        Ok(Self::new(BufReader::with_capacity(64 << 10, file), path))
    }
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, path: PathBuf) -> Self {
        Self { reader, path, number: 0, buffer: Vec::new(), pushed_back: false }
    }

    /// Advances to the next line; false at the end of the file.
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

    /// The current line, without its line feed.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer))
    }

    /// Makes the next `advance` return the current line again.
    pub fn push_back(&mut self) {
        self.pushed_back = true;
    }

    /// Makes an error for the current line.
    pub fn malformed(&self, expected: &'static str) -> ReadError {
        ReadError::malformed(&self.path, self.number, &self.text(), expected)
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), source }
    }
}
