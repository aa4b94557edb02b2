//! Sequences of touches: how far a program has got in new mappings and in the heap, and what is to be
//! populated ahead of it. Used under the area's lock, by the thread and by who hands memory out.
//!
//! The heap says itself what it takes. What a program touches in a mapping is seen by its traces: a
//! superpage is there that nobody populated for it, or one that was holds something else than zeroes
//! (two words of it are looked at, through the kernel, so that nothing can go wrong if it is gone). Who
//! only writes zeroes is seen when it comes to the end of what was prepared.
//!
//! What the program would come to before it is populated is left to it, because two who zero the same
//! superpage waste one of them: first the next two, and then one at least wherever the program has all
//! but caught up. So of a program that is faster than the thread each zeroes a part, and neither waits.
//!
//! What is populated and not known to be touched is at most `SUPERPAGE_PREFAULT`, over all sequences.

use ::ahead::Sequence;

use super::area::Area;
use super::chunk::State;
use super::superpages;
use crate::mapping::demote;
use crate::source::superpage;
use crate::{raw, settings};

/// Mappings that are watched at once: the newest.
const MAPPINGS: usize = 16;
/// Sequences in one mapping: threads that fill a part each.
const STREAMS: usize = 8;
/// Superpages of a mapping that are looked at in one turn, in search of sequences.
const SEARCHED: usize = 16;

/// One sequence and what is still to be populated of what it ordered.
#[derive(Clone, Copy)]
struct Stream {
    sequence: Sequence,
    /// The first row that the program is not known to have touched.
    front: usize,
    next: usize,
    until: usize,
}

/// How long a program takes for a superpage that it populates itself, in what it takes for one that is
/// ready. (Measured, filling memory in order: 237 us and 33; programs that do more with it take longer
/// for both.)
const HOLE: usize = 4;
/// The lead, in the same unit, at which a superpage is ready in time: more than one hole, since the
/// program may be nearly through with the first.
const LEAD: usize = 7;

impl Stream {
    /// Expected to go on at `row`, with what is prepared from `front` on.
    fn from(front: usize, row: usize, units: u64) -> Self {
        let sequence = Sequence::after(front as u64, row as u64, units);
        Self { sequence, front, next: row, until: row }
    }

    /// Populated, and not known to be touched; at most.
    fn untouched(&self) -> u64 {
        self.next.saturating_sub(self.front) as u64
    }

    /// The program has got on to the front: what that orders.
    fn order(&mut self, end: usize) {
        let Some(at) = self.front.checked_sub(1) else { return };
        let (at, end) = (at as u64, end as u64);
        let ordered = if at >= self.sequence.predicted() {
            self.sequence.followed(at, end)
        } else {
            self.sequence.seen(at, end)
        };
        if !ordered.is_empty() {
            self.next = self.next.max(ordered.start as usize);
            self.until = ordered.end as usize;
        }
    }
}

#[derive(Clone, Copy)]
struct Mapping {
    from: usize,
    to: usize,
    streams: [Option<Stream>; STREAMS],
    /// The stream that is replaced next.
    oldest: usize,
    /// Where the search for further sequences is.
    cursor: usize,
}

/// What is watched.
pub struct Watch {
    mappings: [Option<Mapping>; MAPPINGS],
    next: usize,
    heap: Option<Stream>,
    heap_end: usize,
    /// Addresses that came in and are not rows yet.
    arrived: usize,
}

impl Watch {
    /// Nothing.
    pub const fn new() -> Self {
        Self { mappings: [None; MAPPINGS], next: 0, heap: None, heap_end: 0, arrived: 0 }
    }

    /// A new mapping of the rows `[from, to)`, expected to be touched from its first unready row on.
    pub fn mapping(&mut self, from: usize, to: usize, unready: usize) {
        let units = superpages(settings::get().prefault);
        if units == 0 || to - unready < LEAST {
            return;
        }
        let mut streams = [None; STREAMS];
        streams[0] = Some(Stream::from(from, unready, units));
        let at = self.mappings.iter().position(Option::is_none).unwrap_or(self.next % MAPPINGS);
        self.next = at + 1;
        self.mappings[at] = Some(Mapping { from, to, streams, oldest: 1, cursor: unready });
        self.arrived += 1;
    }

    /// The heap took the rows `[first, last]`, and may go on up to `end`.
    pub fn heap(&mut self, first: usize, last: usize, end: usize) {
        let settings = settings::get();
        let units = superpages(settings.prefault.max(settings.prezero));
        let heap = self.heap.get_or_insert_with(|| Stream::from(first, first, units));
        self.heap_end = end;
        let predicted = heap.sequence.predicted() as usize;
        if first <= predicted && predicted <= last {
            // The heap takes what it needs at once: nothing of it is left to be populated.
            let ordered = heap.sequence.followed(last as u64, end as u64);
            (heap.next, heap.until) = (last + 1, ordered.end as usize);
        } else {
            heap.front = last + 1;
            heap.order(end);
        }
    }

    /// Rows that do not belong to who had them any more.
    pub fn forget(&mut self, from: usize, to: usize) {
        for slot in &mut self.mappings {
            if slot.is_some_and(|it| it.from < to && from < it.to) {
                *slot = None;
            }
        }
    }

    /// Whether a mapping is watched.
    pub fn is_active(&self) -> bool {
        self.mappings.iter().any(Option::is_some)
    }

    /// Mappings that were ever watched: more of them is something new.
    pub fn arrived(&self) -> usize {
        self.arrived
    }

    /// No sequence went on for so long that none is expected to.
    pub fn give_up(&mut self) {
        self.mappings = [None; MAPPINGS];
    }

    fn untouched(&self) -> u64 {
        let streams = self.mappings.iter().flatten().flat_map(|it| it.streams.iter().flatten());
        streams.map(Stream::untouched).sum()
    }
}

/// What is smaller has been touched by the time anybody looks.
const LEAST: usize = 4;

impl Area {
    /// Looks where the program is; whether it got on.
    pub fn look(&mut self) -> bool {
        let mut got_on = false;
        for at in 0..MAPPINGS {
            if let Some(mut mapping) = self.watch.mappings[at] {
                got_on |= self.look_at(&mut mapping);
                self.watch.mappings[at] = Some(mapping);
            }
        }
        got_on
    }

    fn look_at(&mut self, mapping: &mut Mapping) -> bool {
        let mut got_on = false;
        for stream in mapping.streams.iter_mut().flatten() {
            let front = self.front(stream, mapping.to);
            if front > stream.front {
                stream.front = front;
                stream.order(mapping.to);
                got_on = true;
            }
        }
        self.search(mapping);
        got_on
    }

    /// How far a program has got: past everything it touched in a row, and past whatever it populated
    /// itself, which it does not do before it is there.
    fn front(&mut self, stream: &Stream, end: usize) -> usize {
        let (mut front, mut is_in_a_row) = (stream.front, true);
        let ahead = stream.next.max(stream.front) + SEARCHED;
        for at in stream.front..ahead.min(end) {
            if !self.row(at).is_prefaulted {
                is_in_a_row = demote::is_present(self.address(at));
            } else if is_in_a_row {
                is_in_a_row = holds_something(self.address(at));
            }
            if is_in_a_row {
                front = at + 1;
            } else if at >= stream.next {
                break;
            }
        }
        front
    }

    /// Looks for places where somebody else touches: the last of a few touched superpages.
    fn search(&mut self, mapping: &mut Mapping) {
        let span = mapping.to - mapping.from;
        for _ in 0..SEARCHED.min(span) {
            let at = mapping.cursor;
            mapping.cursor = if at + 1 < mapping.to { at + 1 } else { mapping.from };
            let is_known = mapping
                .streams
                .iter()
                .flatten()
                .any(|it| (it.front.saturating_sub(1)..=it.until).contains(&at));
            let is_edge = at + 1 < mapping.to
                && !is_known
                && !self.row(at).is_prefaulted
                && demote::is_present(self.address(at))
                && !demote::is_present(self.address(at + 1));
            if is_edge {
                let units = superpages(settings::get().prefault);
                mapping.streams[mapping.oldest] = Some(Stream::from(at + 1, at + 1, units));
                mapping.oldest = 1 + mapping.oldest % (STREAMS - 1);
            }
        }
    }

    /// The next superpage to be populated ahead of a program: its row.
    pub fn next_ahead(&mut self) -> Option<usize> {
        if let Some(mut heap) = self.watch.heap {
            while heap.next < heap.until.min(self.watch.heap_end) {
                let at = heap.next;
                heap.next += 1;
                self.watch.heap = Some(heap);
                if self.row(at).state == State::Empty {
                    return Some(at);
                }
            }
        }
        let limit = superpages(settings::get().prefault);
        if self.watch.untouched() >= limit {
            return None;
        }
        for slot in 0..MAPPINGS {
            for which in 0..STREAMS {
                while let Some(mut stream) =
                    self.watch.mappings[slot].and_then(|it| it.streams[which])
                    && stream.next < stream.until
                {
                    let at = stream.next;
                    stream.next = at + 1;
                    let is_left =
                        !self.has_lead(&stream, at) || demote::is_present(self.address(at));
                    if let Some(mapping) = &mut self.watch.mappings[slot] {
                        mapping.streams[which] = Some(stream);
                    }
                    if !is_left && self.row(at).state == State::Given {
                        return Some(at);
                    }
                }
            }
        }
        None
    }
}

impl Area {
    /// Whether a row will be populated before the program comes there.
    fn has_lead(&mut self, stream: &Stream, at: usize) -> bool {
        let lead = |row| if self.row(row).is_prefaulted { 1 } else { HOLE };
        (stream.front..at).rev().map(lead).take(LEAD).sum::<usize>() >= LEAD
    }
}

/// Whether memory holds something else than zeroes in the places that are looked at.
fn holds_something(address: usize) -> bool {
    // A program that fills memory has passed the beginning first.
    let places = [0, raw::base_page()];
    let mut words = [0u64; 2];
    let mut from = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 8 }; 2];
    for (vector, place) in from.iter_mut().zip(places) {
        vector.iov_base = (address + place.min(superpage() - 8)) as *mut _;
    }
    let into = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
    raw::keeping_errno(|| {
        // SAFETY: words of our own are written; the kernel checks what is read.
        unsafe {
            let (into, from) = (&raw const into, from.as_ptr());
            raw::call!(SYS_process_vm_readv, raw::pid(), into, 1, from, 2, 0)
        }
    });
    words != [0; 2]
}
