//! The header of a `perf.data` that is a file: where the records are, and the descriptions of the
//! events. Private to the reader.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::FromError;
use super::bytes::Order;
use super::events::{CPUID, EVENT_DESC, Events, MAX_EVENTS};

/// What the header says.
pub(super) struct Header {
    /// Where the records begin, and how many bytes they are.
    pub data: (u64, u64),
    /// Never empty.
    pub events: Events,
}

/// Bytes of the header itself (`struct perf_file_header`), as all versions have had it.
const HEADER: u64 = 104;
/// Bits of `adds_features` (tools/perf/util/header.h).
const MAX_FEATURES: u64 = 256;
/// No part that is read whole is longer: a header's section of event names.
const MAX_SECTION: u64 = 16 << 20;

impl Header {
    pub fn read<R: Read + Seek>(
        input: R,
        length: u64,
        order: Order,
        path: &Path,
    ) -> Result<Self, FromError> {
        let mut file = Sections { input, length, path };
        if length < HEADER.min(16) {
            return Err(file.broken(0, "truncated header"));
        }
        let bytes = file.section(0, HEADER.min(length))?;
        let word = |at| order.u64_at(&bytes, at).unwrap_or(0);
        if word(8) < HEADER || length < HEADER {
            return Err(file.broken(8, "the header is too short"));
        }
        let data = (word(40), word(48));
        if data.0.checked_add(data.1).is_none_or(|end| end > length) {
            return Err(file.broken(40, "the records end beyond the file"));
        }
        // perf fills it in when it ends: zero was never filled in.
        if data.1 == 0 {
            return Err(file.broken(48, "no records: perf was killed"));
        }
        let mut events = Events::new(order);
        file.read_attributes(&mut events, word(16), (word(24), word(32)))?;
        // One section for each feature that is there, in their order, after the records.
        let has = |bit: u64| word(72 + bit as usize / 64 * 8) >> (bit % 64) & 1 == 1;
        for (index, bit) in (0..MAX_FEATURES).filter(|bit| has(*bit)).enumerate() {
            if bit == CPUID || bit == EVENT_DESC {
                let place = file.section(data.0 + data.1 + 16 * index as u64, 16)?;
                let part = |at| order.u64_at(&place, at).unwrap_or(0);
                events.feature(bit, &file.section(part(0), part(8))?);
            }
        }
        Ok(Self { data, events })
    }
}

/// The file, read by place, with bounds.
struct Sections<'a, R> {
    input: R,
    length: u64,
    path: &'a Path,
}

impl<R: Read + Seek> Sections<'_, R> {
    /// `size` bytes from `offset`, all inside the file.
    fn section(&mut self, offset: u64, size: u64) -> Result<Vec<u8>, FromError> {
        let end = offset.checked_add(size);
        if size > MAX_SECTION || end.is_none_or(|end| end > self.length) {
            return Err(self.broken(offset, "a section ends beyond the file"));
        }
        let mut bytes = vec![0; size as usize];
        let read = self.input.seek(SeekFrom::Start(offset));
        let read = read.and_then(|_| self.input.read_exact(&mut bytes));
        read.map_err(|source| FromError::Io { path: self.path.to_owned(), source })?;
        Ok(bytes)
    }

    /// The descriptions of the events: `struct perf_event_attr` and where their ids are.
    fn read_attributes(
        &mut self,
        events: &mut Events,
        size: u64,
        (offset, length): (u64, u64),
    ) -> Result<(), FromError> {
        // 64 bytes was the first version's (PERF_ATTR_SIZE_VER0); 16 more say where the ids are.
        let count = length.checked_div(size).unwrap_or(0);
        if !(64 + 16..=4096).contains(&size) || count == 0 || count > MAX_EVENTS as u64 {
            return Err(self.broken(16, "no event descriptions"));
        }
        let bytes = self.section(offset, length)?;
        for entry in bytes.chunks_exact(size as usize) {
            let (attribute, ids) = entry.split_at(entry.len() - 16);
            let place = |at| events.order.u64_at(ids, at).unwrap_or(0);
            let ids = self.section(place(0), place(8))?;
            events.add(attribute, &ids);
        }
        Ok(())
    }

    fn broken(&self, offset: u64, what: &'static str) -> FromError {
        FromError::Broken { path: self.path.to_owned(), offset, what }
    }
}
