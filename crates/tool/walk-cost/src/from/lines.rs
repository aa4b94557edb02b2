//! Numbered lines of a text file, with bounded length.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::reading::FromError;

/// Maximum line length; perf's longest lines contain a path or a C++ symbol.
const MAX_LINE: u64 = 64 << 10;

/// The lines of a file. Invalid UTF-8 becomes U+FFFD; the part of a line beyond the maximum length is returned as a
/// separate line, which no format accepts.
pub(super) struct Lines<R> {
    input: R,
    path: PathBuf,
    number: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R, path: &Path) -> Self {
        Self { input, path: path.to_owned(), number: 0, bytes: Vec::new() }
    }

    /// Reads the next line, without its line end; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<String>, FromError> {
        self.bytes.clear();
        let io = |source| FromError::Io { path: self.path.clone(), source };
        let read = self.input.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.bytes);
        if read.map_err(io)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let text = String::from_utf8_lossy(&self.bytes);
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_string()))
    }

    /// Makes an error about the last line read.
    pub fn bad(&self, text: &str, expected: &'static str) -> FromError {
        let text = text.chars().take(120).collect();
        FromError::Line { path: self.path.clone(), line: self.number, text, expected }
    }

    /// File name and number of the last line read, as the source of a count.
    pub fn source(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        format!("{}:{}", name.unwrap_or_else(|| self.path.display().to_string()), self.number)
    }
}
