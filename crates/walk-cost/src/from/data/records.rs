//! The records of a `perf.data`, put in the order of their times. Private to the reader.
//!
//! perf drains the CPUs' buffers in rounds: a record may come after one of another CPU that is
//! later, but never by more than a round (`tools/perf/util/ordered-events.c`). So what is older
//! than the round before can be passed on when a round ends.

use std::io::{BufReader, Read, Seek, SeekFrom};

use super::header::Header;
use super::sample::{self, Sample};
use super::{Bytes, FromError, Reading, text, u32_at, u64_at};
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
const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const EXEC: u16 = 1 << 13;

/// Records kept back at most; 80 bytes each.
const MAX_WAITING: usize = 1 << 20;

enum Record {
    Sample(Sample),
    Map { pid: i32, start: u64, length: u64, name: String },
    Fork { child: i32, parent: i32 },
    Exec { pid: i32 },
}

pub(super) fn read<R: Read + Seek>(
    file: &mut Bytes<R>,
    header: &Header,
) -> Result<Reading, FromError> {
    let mut taken = Taken::new(header.events.len());
    let mut waiting: Vec<(u64, Record)> = Vec::new();
    // The latest time of this round, and of the one before.
    let (mut latest, mut settled) = (0, 0);
    let (start, length) = header.data;
    let io = |path: &std::path::Path, source| FromError::Io { path: path.to_owned(), source };
    let path = file.path.clone();
    file.input.seek(SeekFrom::Start(start)).map_err(|source| io(&path, source))?;
    let mut input = BufReader::with_capacity(1 << 20, (&mut file.input).take(length));
    let mut offset = start;
    let mut record = Vec::new();
    while offset < start + length {
        let broken = |what| FromError::Broken { path: path.clone(), offset, what };
        let mut head = [0; 8];
        if start + length - offset < 8 {
            return Err(broken("a record's header is cut off"));
        }
        input.read_exact(&mut head).map_err(|source| io(&path, source))?;
        let kind = u32_at(&head, 0).unwrap_or(0);
        let misc = u16::from_ne_bytes([head[4], head[5]]);
        let size = u16::from_ne_bytes([head[6], head[7]]);
        if size < 8 || u64::from(size) > start + length - offset {
            return Err(broken("a record that does not lie among the records"));
        }
        record.clear();
        record.extend_from_slice(&head);
        record.resize(usize::from(size), 0);
        input.read_exact(&mut record[8..]).map_err(|source| io(&path, source))?;
        offset += u64::from(size);
        match kind {
            COMPRESSED | COMPRESSED2 => {
                return Err(file.packed("its records are compressed (perf record -z)"));
            }
            // The only record with bytes behind it that its size does not tell.
            AUXTRACE => {
                let behind = u64_at(&record, 8).unwrap_or(0).min(start + length - offset);
                std::io::copy(&mut (&mut input).take(behind), &mut std::io::sink())
                    .map_err(|source| io(&path, source))?;
                offset += behind;
            }
            FINISHED_ROUND => {
                taken.up_to(&mut waiting, settled);
                settled = latest;
            }
            LOST => taken.lost += u64_at(&record, 16).unwrap_or(0),
            LOST_SAMPLES => taken.lost += u64_at(&record, 8).unwrap_or(0),
            _ => {
                let Some((time, one)) = parse(kind, misc, &record, header) else { continue };
                latest = latest.max(time);
                waiting.push((time, one));
                if waiting.len() == MAX_WAITING {
                    taken.up_to(&mut waiting, u64::MAX);
                }
            }
        }
    }
    taken.up_to(&mut waiting, u64::MAX);
    Ok(taken.finish(header, &path))
}

fn parse(kind: u32, misc: u16, record: &[u8], header: &Header) -> Option<(u64, Record)> {
    let pid = |at| u32_at(record, at).map(|pid| pid as i32);
    let one = match kind {
        SAMPLE => {
            let sample = sample::parse(record, header)?;
            return Some((sample.time, Record::Sample(sample)));
        }
        MMAP | MMAP2 => {
            let name = record.get(if kind == MMAP { 40 } else { 72 }..)?;
            let (start, length) = (u64_at(record, 16)?, u64_at(record, 24)?);
            Record::Map { pid: pid(8)?, start, length, name: text(name) }
        }
        FORK => Record::Fork { child: pid(8)?, parent: pid(12)? },
        COMM if misc & EXEC != 0 => Record::Exec { pid: pid(8)? },
        _ => return None,
    };
    Some((sample::time_of_other(record, &header.events[0]), one))
}

/// What was taken from the records so far.
struct Taken {
    spaces: Spaces,
    tallies: Vec<Tally>,
    without_period: Vec<bool>,
    lost: u64,
}

impl Taken {
    fn new(events: usize) -> Self {
        let tallies = (0..events).map(|_| Tally::default()).collect();
        Self { spaces: Spaces::default(), tallies, without_period: vec![false; events], lost: 0 }
    }

    /// Takes what is not later than `time`, in order.
    fn up_to(&mut self, waiting: &mut Vec<(u64, Record)>, time: u64) {
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
    }

    fn sample(&mut self, sample: Sample) {
        let at = |address| self.spaces.name(sample.pid, address).unwrap_or(UNKNOWN);
        let (mapping, code) = (sample.address.map(at), sample.ip.map_or(UNKNOWN, at));
        self.without_period[sample.event] |= sample.period.is_none();
        self.tallies[sample.event].add(sample.period.unwrap_or(1) as f64, mapping, code);
    }

    fn finish(self, header: &Header, path: &std::path::Path) -> Reading {
        let mut reading = Reading::default();
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let file = file.unwrap_or_default();
        let events = header.events.iter().zip(self.tallies).zip(self.without_period);
        for ((event, tally), without_period) in events {
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
        reading.notes.push("functions are named by file; for their names use perf script".into());
        reading
    }
}
