//! `perf record`'s file (tools/perf/Documentation/perf.data-file-format.txt): its header, the
//! descriptions of its events, and the records of samples, mappings and processes. Everything
//! else is passed over.

mod header;
mod records;
mod sample;

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::{Format, FromError, Reading};
use header::Header;

/// `PERFILE2` of a machine of our byte order.
pub(super) const MAGIC: &[u8] = b"PERFILE2";
/// The same of the other byte order.
pub(super) const SWAPPED_MAGIC: &[u8] = b"2ELIFREP";

/// Reads a whole file of `length` bytes; `path` is named in errors.
pub(super) fn read<R: Read + Seek>(
    input: R,
    length: u64,
    path: &Path,
) -> Result<Reading, FromError> {
    let mut file = Bytes { input, length, path: path.to_owned() };
    let header = Header::read(&mut file)?;
    let mut reading = records::read(&mut file, &header)?;
    reading.format = Format::Data;
    reading.table = header.table();
    Ok(reading)
}

/// The file, read by place, with bounds.
struct Bytes<R> {
    input: R,
    length: u64,
    path: PathBuf,
}

/// No part that is read whole is longer: a header's section of event names.
const MAX_SECTION: u64 = 16 << 20;

impl<R: Read + Seek> Bytes<R> {
    /// `size` bytes from `offset`, all inside the file.
    fn section(&mut self, offset: u64, size: u64) -> Result<Vec<u8>, FromError> {
        let end = offset.checked_add(size);
        if size > MAX_SECTION || end.is_none_or(|end| end > self.length) {
            return Err(self.broken(offset, "a section that does not lie in the file"));
        }
        let mut bytes = vec![0; size as usize];
        let read = self.input.seek(SeekFrom::Start(offset));
        let read = read.and_then(|_| self.input.read_exact(&mut bytes));
        read.map_err(|source| FromError::Io { path: self.path.clone(), source })?;
        Ok(bytes)
    }

    fn broken(&self, offset: u64, what: &'static str) -> FromError {
        FromError::Broken { path: self.path.clone(), offset, what }
    }

    fn packed(&self, what: &'static str) -> FromError {
        FromError::Packed { path: self.path.clone(), what }
    }
}

/// The 32-bit word at `at`, if the slice reaches that far. perf writes its machine's byte order,
/// which is ours, or the magic number had said so.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The 64-bit word at `at`.
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
