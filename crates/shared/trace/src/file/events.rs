//! Encoding of events: number of records since the previous event, a tag, and the fields as varints.

use std::collections::BTreeMap;

use super::chunk::{Bytes, put_varint};
use super::foot::RegionRun;
use super::{CHUNK, PAGES};
use crate::{Access, Advice, Backing, Event, Pace, Page, Pages, Process, Region, SLOTS};

/// Maximum bytes of events in a chunk.
pub const MAX_EVENTS: usize = 1 << 20;
/// Maximum length of a phase name in bytes.
const MAX_NAME: usize = 1 << 10;

/// Appends `event`, which comes `distance` records after the previous event.
pub fn put(out: &mut Vec<u8>, distance: u32, event: &Event) {
    put_varint(out, distance.into());
    let mut put = |tag: u8, fields: &[u64]| {
        out.push(tag);
        fields.iter().for_each(|&field| put_varint(out, field));
    };
    let of = |pages: &Pages| [u64::from(pages.first.0), u64::from(pages.count)];
    match event {
        Event::Spawn(process) => put(0, &[process.0.into()]),
        Event::Run(process) => put(1, &[process.0.into()]),
        Event::Map { pages, address, backing } => {
            let [first, count] = of(pages);
            let (kind, more): (u64, u64) = match *backing {
                Backing::Anonymous => (0, 0),
                Backing::Heap => (1, 0),
                Backing::Shared(object) => (2, object.into()),
                Backing::File { file, cached } => (3 + u64::from(cached), file.into()),
            };
            put(2, &[first, count, *address, kind, more]);
        }
        Event::Grow { pages } => put(3, &of(pages)),
        Event::Unmap(pages) => put(4, &of(pages)),
        Event::Advise(pages, advice) => {
            let [first, count] = of(pages);
            put(5, &[first, count, advice_number(*advice)]);
        }
        Event::Protect(pages, read_only) => {
            let [first, count] = of(pages);
            put(6, &[first, count, u64::from(*read_only)]);
        }
        Event::Fork { child, offset } => put(7, &[child.0.into(), u64::from(*offset)]),
        Event::Exit(process) => put(8, &[process.0.into()]),
        Event::Pace(pace) => put(
            9,
            &[
                pace.work.into(),
                pace.exposed_permille.into(),
                pace.weight.into(),
                pace.threads.into(),
            ],
        ),
        Event::Wait(microseconds) => put(10, &[*microseconds]),
        Event::Phase(name) => {
            put(11, &[name.len() as u64]);
            out.extend(name.as_bytes());
        }
        Event::RequestBegin => put(12, &[]),
        Event::RequestEnd => put(13, &[]),
    }
}

const ADVICE: [Advice; 6] = [
    Advice::Huge,
    Advice::NoHuge,
    Advice::Collapse,
    Advice::Populate,
    Advice::DontNeed,
    Advice::Free,
];

fn advice_number(advice: Advice) -> u64 {
    ADVICE.iter().position(|&one| one == advice).unwrap_or_default() as u64
}

/// Parses the next event and its distance in records from the previous event; `None` if it is
/// malformed.
pub fn take(bytes: &mut Bytes<'_>) -> Option<(u32, Event)> {
    let distance = bytes.varint32().filter(|&distance| distance as usize <= CHUNK)?;
    let pages = |bytes: &mut Bytes<'_>| {
        Some(Pages { first: Page(bytes.varint32()?), count: bytes.varint32()? })
    };
    let event = match bytes.u8()? {
        0 => Event::Spawn(Process(bytes.varint32()?)),
        1 => Event::Run(Process(bytes.varint32()?)),
        2 => {
            let pages = pages(bytes)?;
            let address = bytes.varint()?;
            let kind = bytes.u8()?;
            let number = bytes.varint32()?;
            let backing = match kind {
                0 => Backing::Anonymous,
                1 => Backing::Heap,
                2 => Backing::Shared(number),
                3 | 4 => Backing::File { file: number, cached: kind == 4 },
                _ => return None,
            };
            Event::Map { pages, address, backing }
        }
        3 => Event::Grow { pages: pages(bytes)? },
        4 => Event::Unmap(pages(bytes)?),
        5 => Event::Advise(pages(bytes)?, *ADVICE.get(bytes.u8()? as usize)?),
        6 => Event::Protect(pages(bytes)?, flag(bytes)?),
        7 => Event::Fork { child: Process(bytes.varint32()?), offset: bytes.varint32()? },
        8 => Event::Exit(Process(bytes.varint32()?)),
        9 => Event::Pace(Pace {
            work: bytes.varint32()?,
            exposed_permille: bytes.varint32()?.try_into().ok()?,
            weight: bytes.varint32()?,
            threads: bytes.varint32()?.try_into().ok()?,
        }),
        10 => Event::Wait(bytes.varint()?),
        11 => {
            let length = bytes.varint32().filter(|&length| length as usize <= MAX_NAME)?;
            Event::Phase(String::from_utf8(bytes.take(length as usize)?.to_vec()).ok()?)
        }
        12 => Event::RequestBegin,
        13 => Event::RequestEnd,
        _ => return None,
    };
    check(&event).ok().map(|()| (distance, event))
}

fn flag(bytes: &mut Bytes<'_>) -> Option<bool> {
    match bytes.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Checks conditions of a single event, which writers enforce and readers rely on.
///
/// # Errors
/// The violated condition.
pub fn check(event: &Event) -> Result<(), String> {
    if let Some(pages) = event.pages() {
        let end = u64::from(pages.first.0) + u64::from(pages.count);
        if pages.count == 0 || end > u64::from(PAGES) {
            return Err(format!("{} pages from page {}", pages.count, pages.first.0));
        }
    }
    match event {
        Event::Map { pages, address, .. }
            if address % u64::from(SLOTS) != u64::from(pages.first.slot()) =>
        {
            Err(format!(
                "page {} of a region is mapped at page number {address:#x}, which has another place \
                 in its 512 pages",
                pages.first.slot()
            ))
        }
        Event::Map { pages, address, .. } if address.checked_add(pages.count.into()).is_none() => {
            Err(format!("a mapping at page number {address:#x} goes past the end of memory"))
        }
        Event::Fork { offset, .. } if offset % SLOTS != 0 || *offset >= PAGES => {
            Err(format!("a fork's offset of {offset} is no multiple of a region"))
        }
        Event::Pace(pace)
            if pace.weight == 0 || pace.threads == 0 || pace.exposed_permille > 1000 =>
        {
            Err(format!("a pace of {pace:?}"))
        }
        Event::Phase(name) if name.len() > MAX_NAME => {
            Err(format!("a phase's name has {} bytes, more than {MAX_NAME}", name.len()))
        }
        _ => Ok(()),
    }
}

// Record codings of a chunk, selected by the number of distinct records:
//
// - **Indexed**, for at most 65,536 distinct records (page, write bit, count): a list of the distinct records in order
//   of first use, and an index of one or two bytes for each record. Typical for programs. Decoding decompresses one
//   column, and loads twice from small tables for each record.
// - **Planes**: the lowest bytes of all page numbers, then all second bytes, and so on until the remaining bytes are
//   zero; a write bit per record; the counts. Typical for random accesses to much memory: low bytes are noise and are
//   stored raw, high bytes compress well.

/// Maximum number of distinct records of an indexed chunk.
pub const MAX_DISTINCT: usize = 1 << 16;

/// Assigns indices to records with a hash table (open addressing, linear probing) that is cleared for each chunk.
pub struct Indexer {
    /// Access and count of each slot; 0 for an empty slot, because counts are never 0.
    keys: Vec<u64>,
    indices: Vec<u16>,
    /// The distinct records in order of first use.
    pub distinct: Vec<(Access, u32)>,
}

/// log2 of the number of slots: twice [`MAX_DISTINCT`], so the table is at most half full.
const BITS: u32 = 17;

impl Indexer {
    /// An empty table.
    pub fn new() -> Self {
        let size = 1 << BITS;
        Self { keys: vec![0; size], indices: vec![0; size], distinct: Vec::new() }
    }

    /// Replaces the contents of `out` by the index of each record. `None` if there are too many distinct records.
    pub fn index(&mut self, accesses: &[Access], counts: &[u32], out: &mut Vec<u16>) -> Option<()> {
        self.keys.fill(0);
        self.distinct.clear();
        out.clear();
        out.reserve(accesses.len());
        for (&access, &count) in accesses.iter().zip(counts) {
            out.push(self.index_of(access, count)?);
        }
        Some(())
    }

    fn index_of(&mut self, access: Access, count: u32) -> Option<u16> {
        let key = u64::from(count) << 32 | u64::from(access.0);
        // Fibonacci hashing spreads adjacent pages.
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize;
        while self.keys[at] != key {
            if self.keys[at] == 0 {
                if self.distinct.len() == MAX_DISTINCT {
                    return None;
                }
                self.keys[at] = key;
                self.indices[at] = self.distinct.len() as u16;
                self.distinct.push((access, count));
                break;
            }
            at = (at + 1) & ((1 << BITS) - 1);
        }
        Some(self.indices[at])
    }
}

/// Number of bytes needed for the highest page number, at least 1.
pub fn planes_of(accesses: &[Access]) -> usize {
    let all = accesses.iter().fold(0, |all, access| all | access.page().0);
    (4 - all.leading_zeros() as usize / 8).max(1)
}

/// Replaces the contents of `out` by byte number `number` of each page number.
pub fn plane(accesses: &[Access], number: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend(accesses.iter().map(|access| (access.page().0 >> (8 * number)) as u8));
}

/// Replaces the contents of `out` by the write bit of each record, low bits first.
pub fn writes(accesses: &[Access], out: &mut Vec<u8>) {
    out.clear();
    let byte = |eight: &[Access]| {
        eight.iter().rev().fold(0, |bits, access| bits << 1 | u8::from(access.writes()))
    };
    out.extend(accesses.chunks(8).map(byte));
}

// The writer tracks the addresses of a stream's regions, because addresses select TLB sets, not the dense numbers of a
// stream.

/// The regions mapped so far.
pub struct Regions {
    /// For each region, its address (virtual page number / 512) plus one; 0 if unknown.
    address: Vec<u64>,
    /// Runs of adjacent regions, in the order of mapping.
    pub runs: Vec<RegionRun>,
    /// Indices of each process's runs, for its children.
    of: BTreeMap<Process, Vec<usize>>,
    running: Process,
}

impl Regions {
    /// Starts without regions; process 0 runs.
    pub fn new() -> Self {
        Self { address: Vec::new(), runs: Vec::new(), of: BTreeMap::new(), running: Process(0) }
    }

    /// The address of `region` (virtual page number / 512), or if unknown, its number in the stream.
    pub fn address(&self, region: Region) -> u64 {
        match self.address.get(region.0 as usize) {
            None | Some(0) => region.0.into(),
            Some(above) => above - 1,
        }
    }

    /// Highest number of a mapped region, plus one.
    pub fn count(&self) -> u32 {
        self.address.len() as u32
    }

    /// The process that runs the next accesses.
    pub fn running(&self) -> Process {
        self.running
    }

    /// Updates the regions after an event.
    pub fn update(&mut self, event: &Event) {
        match *event {
            Event::Spawn(process) | Event::Run(process) => self.running = process,
            Event::Map { pages, address, .. } => self.map(pages, address / u64::from(SLOTS)),
            Event::Grow { pages } if pages.first.slot() == 0 && pages.first.0 > 0 => {
                let before = Region(pages.first.region().0 - 1);
                self.map(pages, self.address(before) + 1);
            }
            Event::Grow { pages } => self.map(pages, self.address(pages.first.region())),
            Event::Fork { child, offset } => self.fork(child, offset),
            _ => {}
        }
    }

    fn map(&mut self, pages: Pages, address: u64) {
        let first = pages.first.region();
        let last = (pages.first.0 + (pages.count - 1)) >> 9;
        self.add(RegionRun { first, count: last - first.0 + 1, process: self.running, address });
    }

    fn fork(&mut self, child: Process, offset: u32) {
        let mine = self.of.get(&self.running).cloned().unwrap_or_default();
        for index in mine {
            let mut run = self.runs[index];
            run.first.0 = run.first.0.saturating_add(offset / SLOTS);
            self.add(RegionRun { process: child, ..run });
        }
    }

    /// Adds the regions of a run that are new, because small mappings may share regions. An adjacent run extends the
    /// last run.
    fn add(&mut self, run: RegionRun) {
        // Page numbers have 31 bits, so there are at most 2^22 regions.
        let end = (run.first.0.saturating_add(run.count)).min(1 << 22);
        if self.address.len() < end as usize {
            self.address.resize(end as usize, 0);
        }
        for region in run.first.0..end {
            let address = run.address + u64::from(region - run.first.0);
            if self.address[region as usize] == address + 1 {
                continue;
            }
            self.address[region as usize] = address + 1;
            self.list(RegionRun { first: Region(region), count: 1, process: run.process, address });
        }
    }

    fn list(&mut self, one: RegionRun) {
        if let Some(last) = self.runs.last_mut()
            && last.process == one.process
            && last.first.0 + last.count == one.first.0
            && last.address + u64::from(last.count) == one.address
        {
            last.count += 1;
            return;
        }
        self.of.entry(one.process).or_default().push(self.runs.len());
        self.runs.push(one);
    }
}
