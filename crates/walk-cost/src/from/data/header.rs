//! The header of a `perf.data`: where the records are, which events there are and how their
//! samples are laid out, and which processor it was. Private to the reader.

use std::collections::HashMap;
use std::io::{Read, Seek};

use super::{Bytes, FromError, SWAPPED_MAGIC, text, u32_at, u64_at};
use crate::events::{self, Table};

/// What the header says.
pub(super) struct Header {
    /// Where the records begin, and how many bytes they are.
    pub data: (u64, u64),
    /// The events, in the file's order; never empty.
    pub events: Vec<Event>,
    /// Which event an id belongs to.
    pub of_id: HashMap<u64, usize>,
    cpu: Option<String>,
}

/// One recorded event.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// As it was named on perf's command line, if the file says.
    pub name: String,
    /// `sample_type`: which fields its samples have.
    pub fields: u64,
    /// Whether other records end with the same fields (`sample_id_all`).
    pub trailer: bool,
    /// The period all samples have, unless they say their own.
    pub period: Option<u64>,
}

/// Bytes of the header itself (`struct perf_file_header`), as all versions have had it.
const HEADER: u64 = 104;
/// A file that was written into a pipe has this header only.
const PIPE_HEADER: u64 = 16;
/// Bits of `adds_features` (tools/perf/util/header.h).
const CPUID: u32 = 9;
const EVENT_DESC: u32 = 12;
const COMPRESSED: u32 = 27;
const FEATURES: u32 = 256;
/// More events than anybody records.
const MAX_EVENTS: u64 = 4096;

impl Header {
    pub fn read<R: Read + Seek>(file: &mut Bytes<R>) -> Result<Self, FromError> {
        let first = file.section(0, PIPE_HEADER.min(file.length))?;
        let size = u64_at(&first, 8).ok_or_else(|| file.broken(0, "the header is cut off"))?;
        if first.starts_with(SWAPPED_MAGIC) {
            return Err(file.packed("it was recorded on a machine of the other byte order"));
        }
        if size == PIPE_HEADER {
            return Err(file.packed("it was recorded into a pipe"));
        }
        if size < HEADER || file.length < HEADER {
            return Err(file.broken(8, "the header is shorter than any perf's"));
        }
        let bytes = file.section(0, HEADER)?;
        let word = |at| u64_at(&bytes, at).unwrap_or(0);
        let (attr_size, attrs, data) = (word(16), (word(24), word(32)), (word(40), word(48)));
        let has = |bit: u32| word(72 + bit as usize / 64 * 8) >> (bit % 64) & 1 == 1;
        if data.0.checked_add(data.1).is_none_or(|end| end > file.length) {
            return Err(file.broken(40, "the records do not lie in the file"));
        }
        // perf fills it in when it ends: zero was never filled in.
        if data.1 == 0 {
            return Err(file.broken(48, "no records: perf did not end properly"));
        }
        let mut header = Self { data, events: Vec::new(), of_id: HashMap::new(), cpu: None };
        header.read_attributes(file, attr_size, attrs)?;
        if has(COMPRESSED) {
            return Err(file.packed("its records are compressed (perf record -z)"));
        }
        // One section for each feature that is there, in their order, after the records.
        let mut at = data.0 + data.1;
        for bit in (0..FEATURES).filter(|bit| has(*bit)) {
            if bit == CPUID || bit == EVENT_DESC {
                let place = file.section(at, 16)?;
                let offset = u64_at(&place, 0).unwrap_or(0);
                let section = file.section(offset, u64_at(&place, 8).unwrap_or(0))?;
                match bit {
                    CPUID => header.cpu = section.get(4..).map(text),
                    _ => header.read_names(&section),
                }
            }
            at += 16;
        }
        Ok(header)
    }

    /// The descriptions of the events: `struct perf_event_attr` and where their ids are.
    fn read_attributes<R: Read + Seek>(
        &mut self,
        file: &mut Bytes<R>,
        size: u64,
        (offset, length): (u64, u64),
    ) -> Result<(), FromError> {
        // 64 bytes was the first version's (PERF_ATTR_SIZE_VER0); 16 more say where the ids are.
        if !(64 + 16..=4096).contains(&size) || length / size == 0 || length / size > MAX_EVENTS {
            return Err(file.broken(16, "no description of events"));
        }
        let bytes = file.section(offset, length)?;
        for (index, entry) in bytes.chunks_exact(size as usize).enumerate() {
            self.events.push(Event::of(entry, index));
            let ids_at = size as usize - 16;
            let (at, length) = (u64_at(entry, ids_at), u64_at(entry, ids_at + 8));
            let ids = file.section(at.unwrap_or(0), length.unwrap_or(0))?;
            self.of_id.extend(ids.chunks_exact(8).filter_map(|id| Some((u64_at(id, 0)?, index))));
        }
        Ok(())
    }

    /// The feature that names the events. What does not fit is left unnamed.
    fn read_names(&mut self, section: &[u8]) {
        let (Some(count), Some(size)) = (u32_at(section, 0), u32_at(section, 4)) else { return };
        let mut at = 8usize;
        for index in 0..(count as usize).min(self.events.len()) {
            let Some(after) = at.checked_add(size as usize) else { return };
            let (Some(ids), Some(length)) = (u32_at(section, after), u32_at(section, after + 4))
            else {
                return;
            };
            let Some(name) = section.get(after + 8..).and_then(|rest| rest.get(..length as usize))
            else {
                return;
            };
            self.events[index].name = text(name);
            at = after + 8 + length as usize + ids as usize * 8;
        }
    }

    /// The events of the processor that was recorded: `GenuineIntel,6,85,7`, or a MIDR.
    pub fn table(&self) -> Option<&'static Table> {
        let cpu = self.cpu.as_deref()?;
        let mut parts = cpu.split(',');
        let vendor = parts.next()?;
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        events::table(vendor, number(), number())
    }
}

impl Event {
    fn of(attribute: &[u8], index: usize) -> Self {
        let word = |at| u64_at(attribute, at).unwrap_or(0);
        // linux/perf_event.h: `freq` is bit 10 of the flags, `sample_id_all` bit 18.
        let flags = word(40);
        let by_frequency = flags >> 10 & 1 == 1;
        Self {
            name: format!("event {index}"),
            fields: word(24),
            trailer: flags >> 18 & 1 == 1,
            period: (!by_frequency).then(|| word(16)).filter(|period| *period > 0),
        }
    }
}
