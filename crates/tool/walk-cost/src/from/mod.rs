//! Readers of other tools' measurements: `perf stat`, `perf.data`, `opreport`, and `key = value`. The first line that a
//! format knows determines it.
//!
//! Readers skip unknown parts, report broken parts with their location, and use bounded memory for any file.

mod data;
mod keys;
mod lines;
mod number;
mod opreport;
mod reading;
mod spaces;
mod stat;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

pub use reading::{Format, FromError, Reading};

/// Number of bytes that tell a perf.data from a text.
const HEAD: u64 = 64;

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
    text(std::io::Cursor::new(head).chain(file), path)
}

/// Reads text in memory; errors name `path`.
pub fn read_text(text_at_hand: &str, path: &Path) -> Result<Reading, FromError> {
    text(text_at_hand.as_bytes(), path)
}

fn text(input: impl Read, path: &Path) -> Result<Reading, FromError> {
    let mut lines = lines::Lines::new(BufReader::new(input), path);
    let mut is_first = true;
    let mut unknown_key = None;
    // Output of the measured program may come before perf's.
    while let Some(line) = lines.next()? {
        // A key-value file must match from its first line.
        let is_content = !line.trim().is_empty() && !line.starts_with(['#', '[']);
        if is_first && keys::is_line(&line) {
            if keys::is_known(&line) {
                let reading = keys::read(line, lines)?;
                return Ok(Reading { format: Format::Keys, ..reading });
            }
            unknown_key = Some(lines.bad(&line, keys::EXPECTED));
        }
        is_first &= !is_content;
        if let Some(dialect) = stat::Dialect::of(&line) {
            return stat::read(dialect, line, lines);
        }
        if opreport::is_line(&line) {
            let reading = opreport::read(line, lines)?;
            return Ok(Reading { format: Format::Opreport, ..reading });
        }
    }
    Err(unknown_key.unwrap_or_else(|| lines.unknown()))
}
