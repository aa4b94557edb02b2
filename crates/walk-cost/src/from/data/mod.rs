//! `perf record`'s file (tools/perf/Documentation/perf.data-file-format.txt): its header, the
//! descriptions of its events, and the records of samples, mappings and processes. Files, what
//! perf writes into a pipe, compressed records (`-z`) and both byte orders; everything else in
//! them is passed over.

mod bytes;
mod events;
mod header;
mod records;
mod sample;

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::reading::{Format, FromError, Reading};
use bytes::{Order, Source};
use header::Header;
use records::Records;

/// Of the header that perf writes into a pipe: the magic number and this size.
const PIPE_HEADER: u64 = 16;

/// Whether a file that begins so is a `perf.data`.
pub(super) fn is_data(head: &[u8]) -> bool {
    Order::of_magic(head).is_some()
}

/// Reads a whole `perf.data`; `head` is what was read of it already, `path` is named in errors.
pub(super) fn read(head: Vec<u8>, mut file: File, path: &Path) -> Result<Reading, FromError> {
    let order = Order::of_magic(&head).unwrap_or(Order::Little);
    let records = if order.u64_at(&head, 8) == Some(PIPE_HEADER) {
        let whole = std::io::Cursor::new(head).chain(BufReader::new(file));
        let mut source = Source::new(whole, path);
        source.skip(PIPE_HEADER)?;
        Records::new(events::Events::new(order)).read(&mut source, None)?
    } else {
        let length = file.seek(SeekFrom::End(0));
        let length = length.map_err(|_| FromError::Unseekable { path: path.to_owned() })?;
        let header = Header::read(&mut file, length, order, path)?;
        let sought = file.seek(SeekFrom::Start(header.data.0));
        sought.map_err(|source| FromError::Io { path: path.to_owned(), source })?;
        let mut source = Source::new(BufReader::with_capacity(1 << 20, file), path);
        source.offset = header.data.0;
        Records::new(header.events).read(&mut source, Some(header.data.1))?
    };
    Ok(Reading { format: Format::Data, ..records.finish(path) })
}
