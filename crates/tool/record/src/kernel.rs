//! Converts perf records to frames for `stream`. perf_event_open(2), "MMAP layout", describes the layouts; they depend
//! on the attributes that `sys::perf` sets. A malformed record gives no frame.

use sys::perf::Record;

use crate::RecordError;
use crate::wire::{Frame, Mapped, Message, Span, Words};

// PERF_RECORD_ types, linux/perf_event.h.
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const MMAP2: u32 = 10;
/// PERF_RECORD_MISC_COMM_EXEC.
const BY_EXEC: u16 = 1 << 13;

/// A buffered record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    time: u64,
    kind: u32,
    misc: u16,
    body: Vec<u8>,
}

/// Sorts the records of several CPUs by time. A CPU's record may be older than a record that was already read from
/// another CPU, but never older than the latest record of the previous round.
#[derive(Debug, Default)]
pub struct Order {
    kept: Vec<Kept>,
    /// Latest timestamp of the previous rounds.
    safe: u64,
    /// Latest timestamp of all rounds, including the current one.
    latest: u64,
}

impl Order {
    /// Buffers a record.
    pub fn add(&mut self, record: &Record<'_>) {
        let body = record.body;
        let time = if record.kind == SAMPLE {
            word(body, 8)
        } else {
            body.len().checked_sub(8).and_then(|at| word(body, at))
        };
        let time = time.unwrap_or_default();
        self.latest = self.latest.max(time);
        let (kind, misc, body) = (record.kind, record.misc, body.to_vec());
        self.kept.push(Kept { time, kind, misc, body });
    }

    /// Ends a round and returns the records that are safe to process; with `all`, all records.
    pub fn due(&mut self, all: bool) -> Vec<Kept> {
        self.kept.sort_by_key(|kept| kept.time);
        let end = if all {
            self.kept.len()
        } else {
            self.kept.partition_point(|kept| kept.time <= self.safe)
        };
        self.safe = self.latest;
        self.kept.drain(..end).collect()
    }
}

fn word(body: &[u8], at: usize) -> Option<u64> {
    let bytes = body.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn half(body: &[u8], at: usize) -> Option<u32> {
    let bytes = body.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

type To<'a> = &'a mut dyn FnMut(Frame<'_>) -> Result<(), RecordError>;

/// Passes the frames of a record to `to`.
pub fn frames(record: &Kept, to: To<'_>) -> Result<(), RecordError> {
    some(record, to).unwrap_or(Ok(()))
}

/// Like [`frames`]; `None` if the record is malformed or irrelevant.
fn some(record: &Kept, to: To<'_>) -> Option<Result<(), RecordError>> {
    let body = record.body.as_slice();
    let frame = |pid, what| Frame { pid, instructions: None, what };
    match record.kind {
        SAMPLE => {
            let pid = half(body, 0)?;
            // After the length of the raw data (offset 24): address and error code.
            let (address, error) = (word(body, 28 + 8)?, word(body, 28 + 24)?);
            // Error code bit 1: a write access (Intel SDM vol. 3, 4.7).
            let access = (address >> 12) << 1 | error >> 1 & 1 | 1 << 45;
            let user = address < 1 << 56;
            let words = [access.to_le_bytes()];
            user.then(|| to(frame(pid, Message::Accesses(Words::new(&words)))))
        }
        MMAP2 => {
            let (pid, span) =
                (half(body, 0)?, Span { begin: word(body, 8)?, length: word(body, 16)? });
            let (major, minor, inode) = (half(body, 32)?, half(body, 36)?, word(body, 40)?);
            let (protection, flags) = (half(body, 56)?, half(body, 60)?);
            let name = body.get(64..)?;
            let file = (inode ^ u64::from(major << 8 | minor) << 40) | 1;
            let mapped = Mapped {
                span: Span { length: span.length.min(1 << 56), ..span },
                protection: protection.into(),
                // MAP_SHARED is 1.
                shared: flags & 1 != 0,
                file: if inode == 0 { 0 } else { file },
                offset: word(body, 24)?,
            };
            let heap = name.starts_with(b"[heap]");
            (span.begin < 1 << 56).then(|| to(frame(pid, Message::Declared(mapped, heap))))
        }
        FORK => {
            let (pid, parent) = (half(body, 0)?, half(body, 4)?);
            if pid == parent {
                return Some(to(frame(pid, Message::Thread)));
            }
            let name = u64::from(pid);
            let made = to(frame(parent, Message::Forking(name)));
            Some(made.and_then(|()| to(frame(pid, Message::Forked(name)))))
        }
        COMM if record.misc & BY_EXEC != 0 => Some(to(frame(half(body, 0)?, Message::Start))),
        EXIT => {
            let (pid, thread) = (half(body, 0)?, half(body, 8)?);
            (pid == thread).then(|| to(frame(pid, Message::Exit)))
        }
        LOST => Some(to(frame(0, Message::Lost(word(body, 8)?)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_record_is_frames_or_nothing(
            kind in 0u32..12, misc: u16, body in prop::collection::vec(any::<u8>(), 0..120)
        ) {
            let mut order = Order::default();
            order.add(&Record { kind, misc, body: &body });
            for kept in order.due(true) {
                frames(&kept, &mut |_| Ok(())).unwrap();
            }
        }

        #[test]
        fn rounds_of_two_cpus_come_out_in_order(times in prop::collection::vec((0u64..20, any::<bool>()), 1..200)) {
            // Each CPU's times ascend. A round drains one CPU, then the other, up to the same time.
            let (mut order, mut now, mut out) = (Order::default(), [0u64; 2], Vec::new());
            for round in times.chunks(8) {
                let begin = now[0].max(now[1]);
                now = [begin; 2];
                for (step, second) in round {
                    let cpu = usize::from(*second);
                    now[cpu] += step;
                    let mut body = [0u8; 16];
                    body[8..].copy_from_slice(&now[cpu].to_le_bytes());
                    order.add(&Record { kind: COMM, misc: 0, body: &body });
                }
                out.extend(order.due(false));
            }
            out.extend(order.due(true));
            prop_assert_eq!(out.len(), times.len());
            prop_assert!(out.is_sorted_by_key(|kept| kept.time));
        }
    }
}
