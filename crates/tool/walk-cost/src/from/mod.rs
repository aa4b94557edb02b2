//! Readers of other tools' measurements: `perf stat -j`, `perf.data`, `opreport -l`, and `key = value`. The beginning
//! of the file determines the format.
//!
//! Readers skip unknown parts, report broken parts with their location, and use bounded memory for any file.

mod data;
mod keys;
mod lines;
mod number;
mod opreport;
mod reading;
mod spaces;
mod stat_json;
mod sums;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

pub use reading::{Format, FromError, Reading};

/// Number of bytes for format detection.
const HEAD: u64 = 64 << 10;

/// Reads a file of any format.
pub fn read(path: &Path) -> Result<Reading, FromError> {
    let io = |source| FromError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut head = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut head).map_err(io)?;
    if data::is_data(&head) {
        return data::read(head, file, path);
    }
    // Do not seek, because the file may be a pipe.
    text(std::io::Cursor::new(head.clone()).chain(file), &head, path)
}

/// Reads text in memory; errors name `path`.
pub fn read_text(text_at_hand: &str, path: &Path) -> Result<Reading, FromError> {
    let head = &text_at_hand.as_bytes()[..text_at_hand.len().min(HEAD as usize)];
    text(text_at_hand.as_bytes(), head, path)
}

fn text(input: impl Read, head: &[u8], path: &Path) -> Result<Reading, FromError> {
    let unknown = || FromError::Unknown { path: path.to_owned() };
    let format = format(&String::from_utf8_lossy(head)).ok_or_else(unknown)?;
    let lines = lines::Lines::new(BufReader::new(input), path);
    let mut reading = match format {
        Format::StatJson => stat_json::read(lines)?,
        Format::Opreport => opreport::read(lines)?,
        Format::Keys | Format::Data => keys::read(lines)?,
    };
    reading.format = format;
    Ok(reading)
}

/// Number of lines inspected to find the format, because the program's own output may come first.
const MAX_LINES: usize = 2000;

/// Determines the format of a text from its first lines; `None` if unknown.
fn format(head: &str) -> Option<Format> {
    // A null byte means a binary file.
    if head.contains('\0') {
        return None;
    }
    let lines = || head.lines().take(MAX_LINES);
    if lines().any(|line| line.starts_with('{') && line.contains("\"counter-value\"")) {
        return Some(Format::StatJson);
    }
    if lines().any(opreport::is_line) {
        return Some(Format::Opreport);
    }
    // A key-value file must match from its first line.
    let first = lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with('['));
    first.is_some_and(keys::is_line).then_some(Format::Keys)
}
