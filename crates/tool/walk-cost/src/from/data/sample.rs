//! Locates the fields of a sample. `sample_type` selects the fields, and their order is fixed (`perf_event_open(2)`,
//! PERF_RECORD_SAMPLE).

use super::Order;
use super::{Event, Events};

/// The fields of a sample that this crate uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Index of the sample's event.
    pub event: usize,
    pub pid: i32,
    pub time: u64,
    pub ip: Option<u64>,
    pub address: Option<u64>,
    pub period: Option<u64>,
}

/// Bits of `sample_type` (linux/perf_event.h) for the fields before the first of variable size.
const IP: u64 = 1;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDR: u64 = 1 << 3;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM_ID: u64 = 1 << 9;
const IDENTIFIER: u64 = 1 << 16;

/// Parses a sample record, including its 8-byte header. `None` if it is too short.
pub(super) fn parse(record: &[u8], events: &Events) -> Option<Sample> {
    let (first, order) = (events.list.first()?, events.order);
    // With PERF_SAMPLE_IDENTIFIER the id comes first and selects the layout; without it, the samples of all events
    // have the same fields.
    let event = if first.fields & IDENTIFIER != 0 {
        events.of_id.get(&order.u64_at(record, 8)?).copied()?
    } else {
        let id = fields(record, first, order)?.id;
        id.and_then(|id| events.of_id.get(&id).copied()).unwrap_or(0)
    };
    let found = fields(record, events.list.get(event)?, order)?;
    Some(Sample { event, ..found.sample })
}

struct Fields {
    sample: Sample,
    id: Option<u64>,
}

fn fields(record: &[u8], event: &Event, order: Order) -> Option<Fields> {
    let mut at = 8;
    let mut next = |bit: u64| -> Option<Option<usize>> {
        if event.fields & bit == 0 {
            return Some(None);
        }
        at += 8;
        // The record must contain the whole field.
        (record.len() >= at).then_some(Some(at - 8))
    };
    next(IDENTIFIER)?;
    let (ip, tid, time, address) = (next(IP)?, next(TID)?, next(TIME)?, next(ADDR)?);
    let id = next(ID)?;
    next(STREAM_ID)?;
    next(CPU)?;
    let period = next(PERIOD)?;
    let word = |at: Option<usize>| at.and_then(|at| order.u64_at(record, at));
    let sample = Sample {
        event: 0,
        pid: tid.and_then(|at| order.u32_at(record, at)).unwrap_or(0) as i32,
        time: word(time).unwrap_or(0),
        ip: word(ip),
        address: word(address).filter(|address| *address != 0),
        period: word(period).or(event.period),
    };
    Some(Fields { sample, id: word(id) })
}

/// Timestamp of a non-sample record, from its trailer. Trailer fields are located from the record's
/// end.
pub(super) fn time_of_other(record: &[u8], event: &Event, order: Order) -> u64 {
    if !event.trailer || event.fields & TIME == 0 {
        return 0;
    }
    let after = [ID, STREAM_ID, CPU, IDENTIFIER].iter().filter(|bit| event.fields & **bit != 0);
    let from_end = 8 * (after.count() + 1);
    record.len().checked_sub(from_end).and_then(|at| order.u64_at(record, at)).unwrap_or(0)
}
