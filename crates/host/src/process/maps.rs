//! `/proc/PID/maps`, one mapping at a time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::Pid;

use super::lines::Lines;
use crate::{ReadError, Root};

/// One mapping of a process's address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether others see what is written.
    pub sharing: Sharing,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The file system the file is on.
    pub device: Device,
    /// The file; 0 when there is none.
    pub inode: u64,
    /// The file's path, `[heap]`, `[stack]`, `[anon:NAME]`, or nothing.
    pub name: String,
}

/// Whether a mapping is private (copy on write) or shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// `MAP_PRIVATE`.
    Private,
    /// `MAP_SHARED`.
    Shared,
}

/// A mapping that was asked for by an address.
impl From<sys::procmap::Found> for Mapping {
    fn from(found: sys::procmap::Found) -> Self {
        let (major, minor) = found.device;
        Self {
            start: found.start,
            end: found.end,
            readable: found.readable,
            writable: found.writable,
            executable: found.executable,
            sharing: if found.shared { Sharing::Shared } else { Sharing::Private },
            offset: found.offset,
            device: Device { major, minor },
            inode: found.inode,
            name: found.name,
        }
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// The driver.
    pub major: u32,
    /// The instance.
    pub minor: u32,
}

impl Mapping {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Never, in a live process.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Whether it holds at least one whole aligned block of `size`.
    pub fn holds_aligned(&self, size: units::PageSize) -> bool {
        let first = self.start.checked_next_multiple_of(size.bytes());
        let end = first.and_then(|first| first.checked_add(size.bytes()));
        end.is_some_and(|end| end <= self.end)
    }
}

/// The mappings of a process, lowest address first.
#[derive(Debug)]
pub struct Maps<R> {
    lines: Lines<R>,
}

impl Maps<BufReader<File>> {
    /// Opens `/proc/PID/maps`. Needs PTRACE_MODE_READ on the process.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        Ok(Self { lines: Lines::open(root, &format!("/proc/{pid}/maps"))? })
    }
}

impl<R: BufRead> Maps<R> {
    /// Reads from text at hand; `path` is named in errors.
    pub fn from_reader(reader: R, path: impl Into<PathBuf>) -> Self {
        Self { lines: Lines::new(reader, path.into()) }
    }
}

impl<R: BufRead> Iterator for Maps<R> {
    type Item = Result<Mapping, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        Some(parse_line(&self.lines.text()).ok_or_else(|| self.lines.malformed(EXPECTED)))
    }
}

pub(super) const EXPECTED: &str = "`start-end perms offset major:minor inode name`";

/// Reads one line such as `7f00-7f10 rw-p 00000000 08:01 12 /bin/true`.
pub fn parse_line(line: &str) -> Option<Mapping> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let (perms, rest) = rest.trim_start().split_once(' ')?;
    let (offset, rest) = rest.trim_start().split_once(' ')?;
    let (device, rest) = rest.trim_start().split_once(' ')?;
    let (major, minor) = device.split_once(':')?;
    let rest = rest.trim_start();
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let [r, w, x, s] = perms.as_bytes().try_into().ok()?;
    let sharing = match s {
        b'p' => Sharing::Private,
        b's' => Sharing::Shared,
        _ => return None,
    };
    (start <= end).then_some(Mapping {
        start,
        end,
        readable: r == b'r',
        writable: w == b'w',
        executable: x == b'x',
        sharing,
        offset: hex(offset)?,
        device: Device { major: hex(major)?.try_into().ok()?, minor: hex(minor)?.try_into().ok()? },
        inode: inode.parse().ok()?,
        // Padding before the name is the kernel's; spaces inside it are the file's.
        name: name.trim_start_matches(' ').to_string(),
    })
}
