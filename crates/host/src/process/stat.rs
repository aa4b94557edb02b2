//! `/proc/PID/stat`: the parent, the state, and the start time that tells a reused pid apart.

use std::path::Path;

use serde::{Deserialize, Serialize};
use units::Pid;

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
