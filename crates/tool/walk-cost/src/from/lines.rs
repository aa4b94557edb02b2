//! Numbered lines of a text file, with bounded length, as people post them: without colours, marks of quotation and
//! HTML's signs.

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
        if self.bytes.contains(&0) {
            return Err(self.unknown());
        }
        Ok(Some(clean(&String::from_utf8_lossy(&self.bytes))))
    }

    /// Makes an error about the last line read.
    pub fn bad(&self, text: &str, expected: &'static str) -> FromError {
        let text = text.chars().take(120).collect();
        FromError::Line { path: self.path.clone(), line: self.number, text, expected }
    }

    /// Makes the error that another report begins at a line.
    pub fn several(&self, line: u64) -> FromError {
        FromError::Several { path: self.path.clone(), line, before: line - 1 }
    }

    /// Number of the last line read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Makes an error about a file of no format.
    pub fn unknown(&self) -> FromError {
        FromError::Unknown { path: self.path.clone() }
    }

    /// File name and number of the last line read, as the source of a count.
    pub fn source(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        format!("{}:{}", name.unwrap_or_else(|| self.path.display().to_string()), self.number)
    }
}

/// Removes the line end, ECMA-48 control sequences (colours), `> ` of mails, `* ` of comments, and HTML's names of `<` and
/// `>`.
fn clean(line: &str) -> String {
    let line = line.trim_end_matches(['\n', '\r']).trim_start_matches('\u{feff}');
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.trim_start_matches(|c: char| (' '..='?').contains(&c));
        let mut after = end.chars();
        after.next();
        text += after.as_str();
    }
    if text.contains("&lt;") {
        text = text.replace("&lt;", "<").replace("&gt;", ">");
    }
    let mut rest = text.as_str();
    while let Some(quoted) = rest.trim_start().strip_prefix(['>', '*']) {
        rest = quoted.strip_prefix(' ').unwrap_or(quoted);
    }
    rest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mails_and_terminals_add_is_removed() {
        for (line, text) in [
            ("> > 12 cycles\r\n", "12 cycles"),
            (">>  12 cycles", " 12 cycles"),
            (" * 12 cycles", "12 cycles"),
            ("\u{1b}[31m0.5\u{1b}[0;1m x\u{1b}[m", "0.5 x"),
            ("\u{1b}[", ""),
            ("&lt;not counted&gt; cycles", "<not counted> cycles"),
            ("<not counted> cycles", "<not counted> cycles"),
            ("\u{feff}a", "a"),
        ] {
            assert_eq!(clean(line), text, "{line:?}");
        }
    }
}
