//! `Root`: a directory that replaces `/`, and the common error of all readers.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};
use units::PageSize;

/// Maximum bytes of a /proc or /sys file that is read whole. A longer file is an error.
const MAX_TEXT: u64 = 64 << 20;

/// The root of the kernel's files: `/` on the real machine, a directory in fixtures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    dir: PathBuf,
    page_size: PageSize,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is missing, or the kernel refused.
    #[error("cannot read {}: {source}{}", path.display(), remedy(path, source))]
    Io {
        /// The file, including the root.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A line that does not match the format of the file.
    #[error("{}:{line}: expected {expected}, found {text:?}", path.display())]
    Malformed {
        /// The file, including the root.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The line, truncated to 120 characters.
        text: String,
        /// Expected content.
        expected: &'static str,
    },
    /// A system call failed.
    #[error("{}{}", .0, of_call(.0))]
    Sys(#[from] sys::SysError),
}

impl Root {
    /// The real machine.
    pub fn real() -> Self {
        Self { dir: PathBuf::from("/"), page_size: sys::param::page_size() }
    }

    /// A directory that replaces `/`. The base page size defaults to this machine's, because no file read here contains
    /// it. Fixtures of another machine set it with [`Root::with_page_size`].
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), page_size: sys::param::page_size() }
    }

    /// The same root with another base page size.
    pub fn with_page_size(self, page_size: PageSize) -> Self {
        Self { page_size, ..self }
    }

    /// The base page size.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Whether this is the real machine. Only then may a reader query the CPU or the kernel
    /// directly.
    pub fn is_real(&self) -> bool {
        self.dir == Path::new("/")
    }

    /// Returns the location of the absolute path `path` under this root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }

    /// Reads the whole text of a file. Replaces invalid UTF-8 by U+FFFD, because names of processes and mappings may
    /// contain any bytes.
    pub fn read(&self, path: &str) -> Result<String, ReadError> {
        let path = self.path(path);
        File::open(&path).and_then(text).map_err(|source| ReadError::Io { path, source })
    }

    /// Like [`Root::read`], for files that are not the kernel's, where a user who may write the directory may put a
    /// pipe: a pipe is not waited for. `None`: not a regular file.
    pub fn read_regular(&self, path: &str) -> Result<Option<String>, ReadError> {
        let path = self.path(path);
        let read = sys::trust::open_regular(&path).and_then(|file| file.map(text).transpose());
        read.map_err(|source| ReadError::Io { path, source })
    }

    /// Lists the names in a directory, sorted.
    pub fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let path = self.path(path);
        let names = fs::read_dir(&path).and_then(|entries| {
            entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
        });
        let mut names: Vec<String> = names.map_err(|source| ReadError::Io { path, source })?;
        names.sort_unstable();
        Ok(names)
    }
}

/// The whole text of an open file.
fn text(file: File) -> io::Result<String> {
    // Enough for most files: read_to_end starts with 32 bytes.
    let mut bytes = Vec::with_capacity(4096);
    file.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= MAX_TEXT {
        true => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        false => Err(io::Error::other("longer than any file of its kind")),
    }
}

/// A file of /proc that is read many times a second: looking up and opening a file costs more than
/// reading it.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: File,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl KeptFile {
    pub(crate) fn open(root: &Root, path: &str) -> Result<Self, ReadError> {
        let path = root.path(path);
        match File::open(&path) {
            Ok(file) => Ok(Self { file, path, bytes: vec![0; 4096] }),
            Err(source) => Err(ReadError::Io { path, source }),
        }
    }

    /// Reads the current text; returns the text and the path. After its process exited, the read fails with ESRCH, even
    /// if the pid is reused. Use only for files that one read returns whole.
    pub(crate) fn read(&mut self) -> Result<(Cow<'_, str>, &Path), ReadError> {
        loop {
            let read = self.file.read_at(&mut self.bytes, 0);
            let read = read.map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
            if read < self.bytes.len() {
                return Ok((String::from_utf8_lossy(&self.bytes[..read]), &self.path));
            }
            self.bytes.resize(2 * read, 0);
        }
    }
}

impl ReadError {
    /// Whether the file or the process does not exist: ENOENT, or ESRCH if the process ended while its file was open.
    pub fn is_gone(&self) -> bool {
        /// asm-generic/errno-base.h, the same on every Linux architecture.
        const ENOENT: i32 = 2;
        const ESRCH: i32 = 3;
        match self {
            Self::Io { source, .. } => {
                source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(ESRCH)
            }
            Self::Sys(error) => [ENOENT, ESRCH].contains(&error.errno()),
            Self::Malformed { .. } => false,
        }
    }

    /// Whether the kernel refused for lack of privilege.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Sys(error) => error.source.kind() == io::ErrorKind::PermissionDenied,
            Self::Malformed { .. } => false,
        }
    }

    pub(crate) fn malformed(path: &Path, line: usize, text: &str, expected: &'static str) -> Self {
        let text = text.chars().take(120).collect();
        Self::Malformed { path: path.to_owned(), line, text, expected }
    }
}

fn of_call(error: &sys::SysError) -> &'static str {
    remedy(Path::new(&error.on), &error.source)
}

fn remedy(path: &Path, source: &io::Error) -> &'static str {
    let of_process = path.components().any(|c| {
        let name = c.as_os_str().as_encoded_bytes();
        !name.is_empty() && name.iter().all(u8::is_ascii_digit)
    });
    match (source.kind(), of_process) {
        (io::ErrorKind::PermissionDenied, true) => {
            "; run as the process's owner or root (CAP_SYS_PTRACE)"
        }
        (io::ErrorKind::PermissionDenied, false) => "; run as root",
        _ => "",
    }
}

// Values that could not be read, with reasons. Rule `unknown-is-not-zero`.

/// An unknown value, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// The unknown value: a file's absolute path, or a few words.
    pub what: String,
    /// The reason, in one line.
    pub why: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// Collects reasons while a snapshot is read.
#[derive(Debug, Default)]
pub(crate) struct Reasons(pub Vec<Unknown>);

impl Reasons {
    /// Returns the value. On an error, records the reason and returns `None`.
    pub fn ask<T>(&mut self, what: &str, result: Result<T, ReadError>) -> Option<T> {
        result.map_err(|why| self.note(what, why.to_string())).ok()
    }

    /// Records a reason.
    pub fn note(&mut self, what: &str, why: impl Into<String>) {
        self.0.push(Unknown { what: what.to_string(), why: why.into() });
    }
}

// Common formats of the kernel's text files.

/// Reads a file that holds one number.
pub fn number(root: &Root, path: &str) -> Result<u64, ReadError> {
    let text = root.read(path)?;
    let bad = || ReadError::malformed(&root.path(path), 1, text.trim_end(), "one number");
    text.trim().parse().map_err(|_| bad())
}

/// Reads a file that holds `0` or `1`.
pub fn flag(root: &Root, path: &str) -> Result<bool, ReadError> {
    let text = root.read(path)?;
    match text.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(ReadError::malformed(&root.path(path), 1, other, "0 or 1")),
    }
}

/// Reads a file that holds one page size in bytes.
pub fn page_size(root: &Root, path: &str) -> Result<PageSize, ReadError> {
    let bad = |n: u64| {
        let found = n.to_string();
        ReadError::malformed(&root.path(path), 1, &found, "a page size (a power of two)")
    };
    let bytes = number(root, path)?;
    PageSize::new(bytes).map_err(|_| bad(bytes))
}

/// Reads a file that holds one word, or a line of words.
pub fn word(root: &Root, path: &str) -> Result<String, ReadError> {
    let text = root.read(path)?;
    let word = text.trim();
    if word.is_empty() {
        return Err(ReadError::malformed(&root.path(path), 1, &text, "a word"));
    }
    Ok(word.to_string())
}

/// Parses `123 kB` to a number of bytes; a number without a unit is one of bytes.
pub fn bytes(value: &str) -> Option<u64> {
    let mut words = value.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match (words.next(), words.next()) {
        (None, _) => Some(number),
        (Some("kB"), None) => number.checked_mul(1024),
        _ => None,
    }
}

/// Parses the page size in a directory name such as `hugepages-2048kB`.
pub fn size_of_dir(name: &str) -> Option<PageSize> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    PageSize::new(kib.checked_mul(1024)?).ok()
}

/// Formats the directory name for a page size.
pub fn dir_of_size(size: PageSize) -> String {
    format!("hugepages-{}kB", size.bytes() / 1024)
}

/// Splits `Node 0, zone   Normal` and the text after the zone's name.
pub fn node_and_zone(line: &str) -> Option<(units::NodeId, &str, &str)> {
    let (node, rest) = line.strip_prefix("Node")?.split_once(',')?;
    let node = units::NodeId(node.trim().parse().ok()?);
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let end = rest.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(rest.len());
    let (zone, rest) = rest.split_at(end);
    if zone.is_empty() { None } else { Some((node, zone, rest)) }
}

/// Iterates over lines; each comes with a function that makes an error with the line's number, from
/// 1.
pub fn numbered<'a>(
    text: &'a str,
    path: &'a Path,
) -> impl Iterator<Item = (&'a str, impl Fn(&'static str) -> ReadError + use<'a>)> {
    text.lines().enumerate().map(move |(index, line)| {
        (line, move |expected| ReadError::malformed(path, index + 1, line, expected))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_denied_has_the_remedy_of_a_file_that_is() {
        let denied = |on: &str| {
            let source = io::ErrorKind::PermissionDenied.into();
            ReadError::Sys(sys::SysError { call: "open", on: on.to_string(), source }).to_string()
        };
        let process = denied("/proc/28323/pagemap");
        assert!(process.ends_with("; run as the process's owner or root (CAP_SYS_PTRACE)"));
        assert!(denied("/proc/kpageflags").ends_with("; run as root"));
    }
}
