//! The records of a `perf.data`, put in the order of their times. Private to the reader.
//!
//! perf drains the CPUs' buffers in rounds: a record may come after one of another CPU that is
//! later, but never by more than a round (`tools/perf/util/ordered-events.c`). So what is older
//! than the round before can be passed on when a round ends.
//! See docs/decisions/walk-cost.md#2.

use std::io::Read;
use std::path::Path;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::bytes::{Source, text};
use super::events::Events;
use super::sample::{self, Sample};
use super::{FromError, Reading};
use crate::Count;
use crate::attribution::{Tally, UNKNOWN};
use crate::from::spaces::Spaces;

/// Types of records (linux/perf_event.h; from 64 on tools/perf/util/event.h).
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
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const EXEC: u16 = 1 << 13;

/// Records kept back at most; 80 bytes each.
const MAX_WAITING: usize = 1 << 20;
/// Bytes unpacked at once.
const CHUNK: usize = 64 << 10;

enum Record {
    Sample(Sample),
    Map { pid: i32, start: u64, length: u64, name: String },
    Fork { child: i32, parent: i32 },
    Exec { pid: i32 },
}

/// What was taken from the records so far.
pub(super) struct Records {
    events: Events,
    spaces: Spaces,
    tallies: Vec<(Tally, WithoutPeriod)>,
    lost: u64,
    waiting: Vec<(u64, Record)>,
    /// The latest time of this round, and of the one before.
    latest: u64,
    settled: u64,
    unpacker: Option<Unpacker>,
}

/// Whether a sample did not say how many events it stands for.
type WithoutPeriod = bool;

impl Records {
    pub fn new(events: Events) -> Self {
        let (spaces, tallies, waiting) = Default::default();
        let (lost, latest, settled) = (0, 0, 0);
        Self { events, spaces, tallies, lost, waiting, latest, settled, unpacker: None }
    }

    /// Takes `length` bytes of records, or all up to the end.
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
            let behind = self.bytes_behind(&record);
            if behind > end - source.offset {
                return Err(source.broken("a record ends beyond the records"));
            }
            source.skip(behind)?;
            if !self.take(&record) {
                return Err(source.broken("damaged compressed records"));
            }
        }
        self.pass_on(u64::MAX);
        match self.events.list.is_empty() {
            true => Err(source.broken("no event descriptions")),
            false => Ok(self),
        }
    }

    fn size(&self, head: &[u8]) -> usize {
        usize::from(self.events.order.u16_at(head, 6).unwrap_or(0))
    }

    /// Two records have bytes behind them that their size does not tell.
    fn bytes_behind(&self, record: &[u8]) -> u64 {
        let order = self.events.order;
        match order.u32_at(record, 0) {
            Some(AUXTRACE) => order.u64_at(record, 8).unwrap_or(0),
            Some(HEADER_TRACING_DATA) => order.u32_at(record, 8).unwrap_or(0).into(),
            _ => 0,
        }
    }

    /// Takes a record; `false` if it is packed and cannot be unpacked.
    fn take(&mut self, record: &[u8]) -> bool {
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
                self.pass_on(self.settled);
                self.settled = self.latest;
            }
            LOST => self.lost = self.lost.saturating_add(word(16).unwrap_or(0)),
            LOST_SAMPLES => self.lost = self.lost.saturating_add(word(8).unwrap_or(0)),
            HEADER_ATTR => {
                // The description says its own length; the ids are what is left.
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
            kind => self.wait(kind, record),
        }
        true
    }

    /// Takes the records that are whole in what was packed so far.
    fn unpack(&mut self, packed: &[u8]) -> bool {
        let Some(mut unpacker) = self.unpacker.take().or_else(Unpacker::new) else { return false };
        let mut input = InBuffer::around(packed);
        loop {
            let Some(more) = unpacker.run(&mut input) else { return false };
            let mut done = 0;
            while let Some(rest) = unpacker.bytes.get(done..).filter(|rest| rest.len() >= 8) {
                let size = self.size(rest);
                // Packed again: perf does not, and nesting would have no bound.
                let kind = self.events.order.u32_at(rest, 0);
                if size < 8 || matches!(kind, Some(COMPRESSED | COMPRESSED2)) {
                    return false;
                }
                let Some(record) = rest.get(..size) else { break };
                self.take(record);
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

    /// Keeps a record of the kernel's until its round is over.
    fn wait(&mut self, kind: u32, record: &[u8]) {
        let misc = self.events.order.u16_at(record, 4).unwrap_or(0);
        let Some((time, one)) = parse(kind, misc, record, &self.events) else { return };
        self.latest = self.latest.max(time);
        self.waiting.push((time, one));
        if self.waiting.len() == MAX_WAITING {
            self.pass_on(u64::MAX);
        }
    }

    /// Passes on what is not later than `time`, in order.
    fn pass_on(&mut self, time: u64) {
        let mut waiting = std::mem::take(&mut self.waiting);
        // Stable: records of one time stay in the file's order.
        waiting.sort_by_key(|(time, _)| *time);
        let end = waiting.partition_point(|(at, _)| *at <= time);
        for (_, record) in waiting.drain(..end) {
            match record {
                Record::Sample(sample) => self.sample(sample),
                Record::Map { pid, start, length, name } => {
                    self.spaces.map(pid, start, length, &name);
                }
                Record::Fork { child, parent } => self.spaces.fork(child, parent),
                Record::Exec { pid } => self.spaces.exec(pid),
            }
        }
        self.waiting = waiting;
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

    /// What they say together.
    pub fn finish(mut self, path: &Path) -> Reading {
        let mut reading = Reading { table: self.events.table(), ..Reading::default() };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let file = file.unwrap_or_default();
        self.tallies.resize_with(self.events.list.len(), Default::default);
        for (event, (tally, without_period)) in self.events.list.iter().zip(self.tallies) {
            let source = format!("{} samples, {file}", tally.samples());
            let value = (!without_period).then(|| tally.events());
            let name = event.name.clone();
            reading.counts.push(Count { event: name, value, counted: None, group: 0, source });
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

/// All compressed records of a file are one stream of zstd; a record may end in the next.
struct Unpacker {
    stream: Decoder<'static>,
    /// Unpacked, and not taken yet: less than a record, after each step.
    bytes: Vec<u8>,
}

impl Unpacker {
    fn new() -> Option<Self> {
        Some(Self { stream: Decoder::new().ok()?, bytes: Vec::new() })
    }

    /// Unpacks up to a chunk; says whether more may come of this input, `None` if it is damaged.
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
