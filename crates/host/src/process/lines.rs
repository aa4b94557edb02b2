//! A file read line by line into one buffer: a process may have 65530 mappings and more.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use crate::{ReadError, Root};

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
