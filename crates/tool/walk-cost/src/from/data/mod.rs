//! Reader of `perf record`'s file (tools/perf/Documentation/perf.data-file-format.txt): header, event descriptions, and
//! the records of samples, mappings and processes. Accepts regular files, perf's pipe format, compressed records (`-z`)
//! and both byte orders. Skips all other records.

mod sample;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::reading::{Format, FromError, Reading};
use super::spaces::Spaces;
use crate::estimate::{Tally, UNKNOWN};
use crate::events::Table;
use crate::{Count, events};
use sample::Sample;

/// Header size in pipe format: magic number and size.
const PIPE_HEADER: u64 = 16;

/// Whether `head` starts with the magic number of `perf.data`.
pub(super) fn is_data(head: &[u8]) -> bool {
    Order::of_magic(head).is_some()
}

/// Reads a whole `perf.data`. `head` is the part already read; errors name `path`.
pub(super) fn read(head: Vec<u8>, mut file: File, path: &Path) -> Result<Reading, FromError> {
    let order = Order::of_magic(&head).unwrap_or(Order::Little);
    let records = if order.u64_at(&head, 8) == Some(PIPE_HEADER) {
        let whole = std::io::Cursor::new(head).chain(BufReader::new(file));
        let mut source = Source::new(whole, path);
        source.skip(PIPE_HEADER)?;
        Records::new(Events::new(order)).read(&mut source, None)?
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

// Words of either byte order, and a byte stream that counts its offset.

/// Byte order of the recording machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Detects the byte order from the magic number `PERFILE2`, which is written as a 64-bit word.
    pub fn of_magic(head: &[u8]) -> Option<Self> {
        match head.get(..8)? {
            b"PERFILE2" => Some(Self::Little),
            b"2ELIFREP" => Some(Self::Big),
            _ => None,
        }
    }

    /// Reads the 16-bit word at offset `at`; `None` beyond the end of `bytes`.
    pub fn u16_at(self, bytes: &[u8], at: usize) -> Option<u16> {
        let word = array(bytes, at)?;
        Some(if self == Self::Little { u16::from_le_bytes(word) } else { u16::from_be_bytes(word) })
    }

    /// Reads the 32-bit word at offset `at`; `None` beyond the end.
    pub fn u32_at(self, bytes: &[u8], at: usize) -> Option<u32> {
        let word = array(bytes, at)?;
        Some(if self == Self::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) })
    }

    /// Reads the 64-bit word at offset `at`; `None` beyond the end.
    pub fn u64_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        let word = array(bytes, at)?;
        Some(if self == Self::Little { u64::from_le_bytes(word) } else { u64::from_be_bytes(word) })
    }

    /// Reads a 64-bit word of C bit fields, and returns it with the first field in bit 0. On big-endian machines
    /// compilers allocate bit fields from the high bit of each byte (`swap_bitfield` in tools/perf/util/session.c).
    pub fn bit_fields_at(self, bytes: &[u8], at: usize) -> Option<u64> {
        let word: [u8; 8] = array(bytes, at)?;
        let reversed = word.map(u8::reverse_bits);
        Some(u64::from_le_bytes(if self == Self::Little { word } else { reversed }))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The text up to the first null byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A byte stream with its current offset.
struct Source<'a, R> {
    input: R,
    pub offset: u64,
    path: &'a Path,
}

impl<'a, R: Read> Source<'a, R> {
    pub fn new(input: R, path: &'a Path) -> Self {
        Self { input, offset: 0, path }
    }

    /// Fills `bytes`; returns `false` if the stream has ended.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, FromError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.broken("truncated record")),
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(FromError::Io { path: self.path.to_owned(), source }),
            }
        }
        self.offset += filled as u64;
        Ok(true)
    }

    /// Skips `length` bytes.
    pub fn skip(&mut self, length: u64) -> Result<(), FromError> {
        let skipped = std::io::copy(&mut (&mut self.input).take(length), &mut std::io::sink());
        let skipped =
            skipped.map_err(|source| FromError::Io { path: self.path.to_owned(), source })?;
        self.offset += skipped;
        if skipped < length { Err(self.broken("truncated record")) } else { Ok(()) }
    }

    pub fn broken(&self, what: &'static str) -> FromError {
        FromError::Broken { path: self.path.to_owned(), offset: self.offset, what }
    }
}

// The events of a recording: their sample layouts, and the CPU that counted them.

/// The recorded events and their byte order.
struct Events {
    pub order: Order,
    /// The events in file order.
    pub list: Vec<Event>,
    /// Event index for each sample id.
    pub of_id: HashMap<u64, usize>,
    cpu: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Event {
    /// Name as on perf's command line, if the file contains it.
    pub name: String,
    /// `sample_type`: the fields of its samples.
    pub fields: u64,
    /// Whether other records also end with the time and id fields of samples (`sample_id_all`).
    pub trailer: bool,
    /// Fixed sample period; `None` if samples carry their own.
    pub period: Option<u64>,
}

/// Feature numbers (tools/perf/util/header.h).
const CPUID: u64 = 9;
const EVENT_DESC: u64 = 12;

/// Maximum number of events that are read.
const MAX_EVENTS: usize = 4096;

impl Events {
    pub fn new(order: Order) -> Self {
        Self { order, list: Vec::new(), of_id: HashMap::new(), cpu: None }
    }

    /// Adds an event by its `struct perf_event_attr` and its ids.
    pub fn add(&mut self, attribute: &[u8], ids: &[u8]) {
        let index = self.list.len();
        if index == MAX_EVENTS {
            return;
        }
        let word = |at| self.order.u64_at(attribute, at).unwrap_or(0);
        // linux/perf_event.h: `freq` is bit 10 of the flags, `sample_id_all` bit 18.
        let flags = self.order.bit_fields_at(attribute, 40).unwrap_or(0);
        let by_frequency = flags >> 10 & 1 == 1;
        self.list.push(Event {
            name: format!("event {index}"),
            fields: word(24),
            trailer: flags >> 18 & 1 == 1,
            period: (!by_frequency).then(|| word(16)).filter(|period| *period > 0),
        });
        let ids = ids.chunks_exact(8).filter_map(|id| self.order.u64_at(id, 0));
        self.of_id.extend(ids.map(|id| (id, index)));
    }

    /// Reads a feature section; most features are ignored.
    pub fn feature(&mut self, number: u64, section: &[u8]) {
        match number {
            CPUID => self.cpu = section.get(4..).map(text),
            EVENT_DESC => {
                self.read_names(section);
            }
            _ => {}
        }
    }

    /// Reads the event names from EVENT_DESC. Names that cannot be read are skipped.
    fn read_names(&mut self, section: &[u8]) -> Option<()> {
        let word = |at| Some(self.order.u32_at(section, at)? as usize);
        let (count, size) = (word(0)?, word(4)?);
        let mut at = 8usize;
        for event in self.list.iter_mut().take(count) {
            let after = at.checked_add(size)?;
            let (ids, length) = (word(after)?, word(after + 4)?);
            event.name = text(section.get(after + 8..)?.get(..length)?);
            at = after + 8 + length + ids * 8;
        }
        Some(())
    }

    /// The event table of the recorded CPU: `GenuineIntel,6,85,7`, or a MIDR.
    pub fn table(&self) -> Option<&'static Table> {
        let cpu = self.cpu.as_deref()?;
        let mut parts = cpu.split(',');
        let vendor = parts.next()?;
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        events::table(vendor, number(), number())
    }
}

// The header of a `perf.data` file: offset of the records, and the event descriptions.

struct Header {
    /// Offset and size of the records, in bytes.
    pub data: (u64, u64),
    /// The recorded events; never empty.
    pub events: Events,
}

/// Bytes of `struct perf_file_header`, the same in all versions.
const HEADER: u64 = 104;
/// Number of bits in `adds_features` (tools/perf/util/header.h).
const MAX_FEATURES: u64 = 256;
/// Maximum size of a section that is read whole.
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
        // perf writes the size when it exits; zero means that perf was killed.
        if data.1 == 0 {
            return Err(file.broken(48, "no records: perf was killed"));
        }
        let mut events = Events::new(order);
        file.read_attributes(&mut events, word(16), (word(24), word(32)))?;
        // After the records follows one section descriptor per feature, in bit order.
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

/// Random access to the file, with bounds checks.
struct Sections<'a, R> {
    input: R,
    length: u64,
    path: &'a Path,
}

impl<R: Read + Seek> Sections<'_, R> {
    /// Reads `size` bytes at `offset`, which must lie inside the file.
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

    /// Reads the event descriptions: `struct perf_event_attr`, each followed by the location of its ids.
    fn read_attributes(
        &mut self,
        events: &mut Events,
        size: u64,
        (offset, length): (u64, u64),
    ) -> Result<(), FromError> {
        // The first version of the structure had 64 bytes (PERF_ATTR_SIZE_VER0); 16 more bytes
        // locate the ids.
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

// The records of a `perf.data`, sorted by time.
//
// perf drains the per-CPU buffers in rounds. A record may come after a later record of another CPU, but at most one
// round after it (`tools/perf/util/ordered-events.c`). So at the end of a round, records from before the previous
// round's end can be processed. See docs/decisions/walk-cost.md#2.

/// Record types (linux/perf_event.h; from 64 on tools/perf/util/event.h).
const MMAP: u32 = 1;
const LOST: u32 = 2;
const COMM: u32 = 3;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
const LOST_SAMPLES: u32 = 13;
const HEADER_ATTR: u32 = 64;
const HEADER_TRACING_DATA: u32 = 66;
const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const STAT: u32 = 76;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const EXEC: u16 = 1 << 13;

/// Maximum number of buffered records, of 80 bytes each.
const MAX_BUFFERED: usize = 1 << 20;
/// Bytes decompressed per step.
const CHUNK: usize = 64 << 10;

enum Record {
    Sample(Sample),
    Map { pid: i32, start: u64, length: u64, name: String },
    Fork { child: i32, parent: i32 },
    Exec { pid: i32 },
}

/// State of the record reader.
struct Records {
    events: Events,
    spaces: Spaces,
    tallies: Vec<(Tally, WithoutPeriod)>,
    lost: u64,
    buffered: Vec<(u64, Record)>,
    /// Latest timestamp of this round.
    latest: u64,
    /// Latest timestamp of the previous round.
    settled: u64,
    unpacker: Option<Unpacker>,
    /// Whether the file has counts instead of samples.
    is_of_stat: bool,
}

/// Whether some sample had no period.
type WithoutPeriod = bool;

impl Records {
    pub fn new(events: Events) -> Self {
        let (spaces, tallies, buffered) = Default::default();
        let (lost, latest, settled) = (0, 0, 0);
        let (unpacker, is_of_stat) = (None, false);
        Self { events, spaces, tallies, lost, buffered, latest, settled, unpacker, is_of_stat }
    }

    /// Reads `length` bytes of records, or all until the end of the stream.
    pub fn read<R: Read>(
        mut self,
        source: &mut Source<R>,
        length: Option<u64>,
    ) -> Result<Self, FromError> {
        let end = length.map_or(u64::MAX, |length| source.offset.saturating_add(length));
        let mut record = Vec::new();
        while source.offset < end {
            let left = end - source.offset;
            if left < 8 {
                return Err(source.broken("truncated record"));
            }
            record.resize(8, 0);
            if !source.fill(&mut record)? {
                if length.is_none() {
                    break;
                }
                return Err(source.broken("truncated record"));
            }
            let size = self.size(&record);
            if size < 8 || size as u64 > left {
                return Err(source.broken("a record ends beyond the records"));
            }
            record.resize(size, 0);
            if size > 8 && !source.fill(&mut record[8..])? {
                return Err(source.broken("truncated record"));
            }
            let payload = self.payload_size(&record);
            if payload > end - source.offset {
                return Err(source.broken("a record ends beyond the records"));
            }
            source.skip(payload)?;
            if !self.process(&record) {
                return Err(source.broken("damaged compressed records"));
            }
        }
        self.flush_until(u64::MAX);
        if self.is_of_stat {
            return Err(FromError::StatRecord { path: source.path.to_owned() });
        }
        match self.events.list.is_empty() {
            true => Err(source.broken("no event descriptions")),
            false => Ok(self),
        }
    }

    fn size(&self, head: &[u8]) -> usize {
        usize::from(self.events.order.u16_at(head, 6).unwrap_or(0))
    }

    /// Number of bytes after a record that the record's size does not include. Only two record
    /// types are followed by such bytes.
    fn payload_size(&self, record: &[u8]) -> u64 {
        let order = self.events.order;
        match order.u32_at(record, 0) {
            Some(AUXTRACE) => order.u64_at(record, 8).unwrap_or(0),
            Some(HEADER_TRACING_DATA) => order.u32_at(record, 8).unwrap_or(0).into(),
            _ => 0,
        }
    }

    /// Processes a record; returns `false` if the record is compressed and damaged.
    fn process(&mut self, record: &[u8]) -> bool {
        let order = self.events.order;
        let word = |at| order.u64_at(record, at);
        match order.u32_at(record, 0).unwrap_or(0) {
            COMPRESSED => return self.unpack(&record[8..]),
            COMPRESSED2 => {
                let packed = word(8)
                    .and_then(|length| record.get(16..)?.get(..usize::try_from(length).ok()?));
                return packed.is_some_and(|packed| self.unpack(packed));
            }
            FINISHED_ROUND => {
                self.flush_until(self.settled);
                self.settled = self.latest;
            }
            STAT => self.is_of_stat = true,
            LOST => self.lost = self.lost.saturating_add(word(16).unwrap_or(0)),
            LOST_SAMPLES => self.lost = self.lost.saturating_add(word(8).unwrap_or(0)),
            HEADER_ATTR => {
                // The attribute contains its own size; the ids follow it.
                let size = order.u32_at(record, 12).unwrap_or(0) as usize;
                if let Some((attribute, ids)) = record[8..].split_at_checked(size) {
                    self.events.add(attribute, ids);
                }
            }
            HEADER_FEATURE => {
                if let (Some(number), Some(section)) = (word(8), record.get(16..)) {
                    self.events.feature(number, section);
                }
            }
            kind => self.buffer(kind, record),
        }
        true
    }

    /// Decompresses a record's data and processes the complete records in it.
    fn unpack(&mut self, packed: &[u8]) -> bool {
        let Some(mut unpacker) = self.unpacker.take().or_else(Unpacker::new) else { return false };
        let mut input = InBuffer::around(packed);
        loop {
            let Some(more) = unpacker.run(&mut input) else { return false };
            let mut done = 0;
            while let Some(rest) = unpacker.bytes.get(done..).filter(|rest| rest.len() >= 8) {
                let size = self.size(rest);
                // Refuse nested compression: perf does not write it, and it would allow unbounded recursion.
                let kind = self.events.order.u32_at(rest, 0);
                if size < 8 || matches!(kind, Some(COMPRESSED | COMPRESSED2)) {
                    return false;
                }
                let Some(record) = rest.get(..size) else { break };
                self.process(record);
                done += size;
            }
            unpacker.bytes.drain(..done);
            if !more {
                break;
            }
        }
        self.unpacker = Some(unpacker);
        true
    }

    /// Buffers a kernel record until its round is over.
    fn buffer(&mut self, kind: u32, record: &[u8]) {
        let misc = self.events.order.u16_at(record, 4).unwrap_or(0);
        let Some((time, one)) = parse(kind, misc, record, &self.events) else { return };
        self.latest = self.latest.max(time);
        self.buffered.push((time, one));
        if self.buffered.len() == MAX_BUFFERED {
            self.flush_until(u64::MAX);
        }
    }

    /// Processes the buffered records up to `time`, sorted by time.
    fn flush_until(&mut self, time: u64) {
        let mut buffered = std::mem::take(&mut self.buffered);
        // A stable sort: records of equal time stay in file order.
        buffered.sort_by_key(|(time, _)| *time);
        let end = buffered.partition_point(|(at, _)| *at <= time);
        for (_, record) in buffered.drain(..end) {
            match record {
                Record::Sample(sample) => self.sample(sample),
                Record::Map { pid, start, length, name } => {
                    self.spaces.map(pid, start, length, &name);
                }
                Record::Fork { child, parent } => self.spaces.fork(child, parent),
                Record::Exec { pid } => self.spaces.exec(pid),
            }
        }
        self.buffered = buffered;
    }

    fn sample(&mut self, sample: Sample) {
        let at = |address| self.spaces.name(sample.pid, address).unwrap_or(UNKNOWN);
        let (mapping, code) = (sample.address.map(at), sample.ip.map_or(UNKNOWN, at));
        if self.tallies.len() <= sample.event {
            self.tallies.resize_with(sample.event + 1, Default::default);
        }
        let (tally, without_period) = &mut self.tallies[sample.event];
        *without_period |= sample.period.is_none();
        tally.add(sample.period.unwrap_or(1) as f64, mapping, code);
    }

    /// Converts the state into a [`Reading`].
    pub fn finish(mut self, path: &Path) -> Reading {
        let mut reading = Reading { table: self.events.table(), ..Reading::default() };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let file = file.unwrap_or_default();
        self.tallies.resize_with(self.events.list.len(), Default::default);
        for (event, (tally, without_period)) in self.events.list.iter().zip(self.tallies) {
            let source = format!("{} samples, {file}", tally.samples());
            let value = (!without_period).then(|| tally.events());
            let name = event.name.clone();
            reading.counts.push(Count { event: name, value, source, ..Count::default() });
            if tally.samples() > 0 {
                reading.attributions.push(tally.finish(&event.name));
            }
        }
        if self.lost > 0 {
            reading.notes.push(format!(
                "{} samples were lost while recording; record with a longer period (-c)",
                self.lost
            ));
        }
        reading.notes.push("code is attributed to files; perf report shows functions".into());
        reading
    }
}

fn parse(kind: u32, misc: u16, record: &[u8], events: &Events) -> Option<(u64, Record)> {
    let order = events.order;
    let pid = |at| order.u32_at(record, at).map(|pid| pid as i32);
    let one = match kind {
        SAMPLE => {
            let sample = sample::parse(record, events)?;
            return Some((sample.time, Record::Sample(sample)));
        }
        MMAP | MMAP2 => {
            let name = record.get(if kind == MMAP { 40 } else { 72 }..)?;
            let (start, length) = (order.u64_at(record, 16)?, order.u64_at(record, 24)?);
            Record::Map { pid: pid(8)?, start, length, name: text(name) }
        }
        FORK => Record::Fork { child: pid(8)?, parent: pid(12)? },
        COMM if misc & EXEC != 0 => Record::Exec { pid: pid(8)? },
        _ => return None,
    };
    Some((sample::time_of_other(record, events.list.first()?, order), one))
}

/// Decompressor: all compressed records of a file form one zstd stream, and a record may continue in the next one.
struct Unpacker {
    stream: Decoder<'static>,
    /// Decompressed bytes that are not yet processed. After each step they are less than one
    /// record.
    bytes: Vec<u8>,
}

impl Unpacker {
    fn new() -> Option<Self> {
        Some(Self { stream: Decoder::new().ok()?, bytes: Vec::new() })
    }

    /// Decompresses up to one chunk; returns whether more output may follow, `None` if the data is damaged.
    fn run(&mut self, input: &mut InBuffer) -> Option<bool> {
        let before = self.bytes.len();
        self.bytes.resize(before + CHUNK, 0);
        let mut output = OutBuffer::around_pos(&mut self.bytes, before);
        self.stream.run(input, &mut output).ok()?;
        let end = output.pos();
        self.bytes.truncate(end);
        Some(end == before + CHUNK || input.pos() < input.src.len())
    }
}
