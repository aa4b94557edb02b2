//! The footer: where the chunks are and what they hold, the totals, the regions' addresses; and the
//! trailer, the file's last 32 bytes, which find it.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{Bytes, put_varint};
use super::chunk::{Head, Packer, Unpacker};
use crate::{Process, Region};

/// Bytes of the trailer.
pub const TRAILER: usize = 32;
/// The longest footer that is believed: six million chunks, 10^12 records and more.
pub const MAX_FOOTER: u64 = 256 << 20;
/// The last eight bytes.
const MAGIC: &[u8; 8] = b"SPTEND\r\n";
const FOOTER: &[u8; 4] = b"SPTF";
/// What begins the part about the run, if there is one.
const RUN: &[u8; 4] = b"SPTR";
/// Its bytes.
const RUN_LENGTH: usize = 28;
/// Bytes of a chunk in the footer.
const ENTRY: usize = 44;
/// More bytes than any chunk has: four planes, counts (a byte and four), events are 10 MiB and a bit.
pub const MAX_CHUNK_BYTES: u32 = 16 << 20;
/// Runs of regions that are believed: as many as there can be regions.
const MAX_RUNS: usize = 1 << 22;

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes there.
    pub length: u32,
    /// Its records.
    pub records: u32,
    /// Its events.
    pub events: u32,
    /// The accesses that its records stand for.
    pub accesses: u64,
    /// The process that runs when it begins.
    pub process: Process,
    /// XXH3 of its bytes.
    pub checksum: u64,
    /// Records before it. Not in the file: a sum.
    pub before: u64,
}

/// What a trace holds in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records.
    pub records: u64,
    /// The accesses they stand for.
    pub accesses: u64,
    /// The accesses of records that write.
    pub writes: u64,
    /// Events.
    pub events: u64,
    /// One more than the highest region that occurs.
    pub regions: u32,
    /// One more than the highest process that occurs, at least 1.
    pub processes: u32,
}

/// What a recorder knows of a run beyond its stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// Instructions that the program executed, all processes together.
    pub instructions: u64,
    /// Accesses that it made, also those that the stream leaves out at its beginning.
    pub accesses: u64,
    /// Nanoseconds that it took, while it was recorded.
    pub nanoseconds: u64,
}

/// Neighbouring regions of a process, and where they are in its address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRun {
    /// The first.
    pub first: Region,
    /// How many.
    pub count: u32,
    /// Whose.
    pub process: Process,
    /// The first one's address in units of a region (virtual page number / 512).
    pub address: u64,
}

/// The whole footer but the runs.
#[derive(Debug, Clone, Default)]
pub struct Footer {
    /// The chunks.
    pub chunks: Vec<ChunkInfo>,
    /// The totals.
    pub totals: Totals,
    /// The runs.
    pub runs: Runs,
    /// The run, where a recorder told of it.
    pub run: Option<Run>,
}

/// Where the regions are.
#[derive(Debug, Clone)]
pub enum Runs {
    /// As they are in the file.
    Packed(Head, Vec<u8>),
    /// Of a file that was cut.
    Found(Vec<RegionRun>),
}

impl Default for Runs {
    fn default() -> Self {
        Self::Found(Vec::new())
    }
}

/// Footer and trailer, which end a file whose chunks end at `offset`.
pub fn encode(
    chunks: &[ChunkInfo],
    totals: &Totals,
    runs: &[RegionRun],
    run: Option<Run>,
    offset: u64,
    packer: &mut Packer,
) -> io::Result<Vec<u8>> {
    let mut out = FOOTER.to_vec();
    out.extend((chunks.len() as u32).to_le_bytes());
    let Totals { records, accesses, writes, events, regions, processes } = *totals;
    [records, accesses, writes, events].iter().for_each(|sum| out.extend(sum.to_le_bytes()));
    [regions, processes].iter().for_each(|count| out.extend(count.to_le_bytes()));
    for chunk in chunks {
        out.extend(chunk.offset.to_le_bytes());
        out.extend(chunk.length.to_le_bytes());
        out.extend(chunk.records.to_le_bytes());
        out.extend(chunk.events.to_le_bytes());
        out.extend(chunk.accesses.to_le_bytes());
        out.extend(chunk.process.0.to_le_bytes());
        out.extend(chunk.checksum.to_le_bytes());
        // Kept zero: room for what a later version may know of a chunk.
        out.extend([0; 4]);
    }
    let mut column = Vec::new();
    for run in runs {
        put_varint(&mut column, run.first.0.into());
        put_varint(&mut column, run.count.into());
        put_varint(&mut column, run.process.0.into());
        put_varint(&mut column, run.address);
    }
    let (mut head, mut stored) = (Vec::new(), Vec::new());
    packer.put(&column, &mut head, &mut stored)?;
    out.extend(head);
    out.extend(stored);
    if let Some(Run { instructions, accesses, nanoseconds }) = run {
        out.extend(RUN);
        [instructions, accesses, nanoseconds].iter().for_each(|sum| out.extend(sum.to_le_bytes()));
    }

    let mut trailer = offset.to_le_bytes().to_vec();
    trailer.extend((out.len() as u64).to_le_bytes());
    trailer.extend(xxh3_64(&out).to_le_bytes());
    trailer.extend(MAGIC);
    out.extend(trailer);
    Ok(out)
}

/// The file's last bytes.
pub struct Trailer {
    /// Where the footer begins.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    checksum: u64,
}

impl Trailer {
    /// Reads it; `None` if it is none: the file was cut, or its writer never came to an end.
    pub fn decode(bytes: &[u8; TRAILER]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let trailer = Self { offset: bytes.u64()?, length: bytes.u64()?, checksum: bytes.u64()? };
        (bytes.0 == MAGIC).then_some(trailer)
    }

    /// Reads the footer from its bytes. The chunks lie from `begin` to `self.offset`.
    pub fn footer(&self, bytes: &[u8], begin: u64) -> Result<Footer, &'static str> {
        if !super::is_sum(bytes, self.checksum) {
            return Err("the footer's checksum is wrong");
        }
        let footer = decode(bytes).ok_or("the footer's fields make no sense")?;
        footer.check(begin, self.offset).ok_or("the footer contradicts itself")?;
        Ok(footer)
    }
}

fn decode(bytes: &[u8]) -> Option<Footer> {
    let mut bytes = Bytes(bytes);
    if bytes.take(4)? != FOOTER {
        return None;
    }
    let count = bytes.u32()? as usize;
    let totals = Totals {
        records: bytes.u64()?,
        accesses: bytes.u64()?,
        writes: bytes.u64()?,
        events: bytes.u64()?,
        regions: bytes.u32()?,
        processes: bytes.u32()?,
    };
    let mut entries = Bytes(bytes.take(count.checked_mul(ENTRY)?)?);
    let mut chunks = Vec::with_capacity(count);
    let mut before = 0u64;
    for _ in 0..count {
        let chunk = ChunkInfo {
            offset: entries.u64()?,
            length: entries.u32()?,
            records: entries.u32()?,
            events: entries.u32()?,
            accesses: entries.u64()?,
            process: Process(entries.u32()?),
            checksum: entries.u64()?,
            before,
        };
        entries.u32()?;
        before = before.checked_add(chunk.records.into())?;
        chunks.push(chunk);
    }
    let head = Head::read(&mut bytes)?;
    // A run takes 25 bytes at most.
    if head.length > MAX_RUNS * 25 {
        return None;
    }
    let runs = bytes.take(head.stored)?.to_vec();
    let run = run(bytes)?;
    Some(Footer { chunks, totals, runs: Runs::Packed(head, runs), run })
}

/// What is left is nothing, or all of the part about the run.
fn run(mut bytes: Bytes<'_>) -> Option<Option<Run>> {
    match bytes.0.len() {
        0 => Some(None),
        RUN_LENGTH if bytes.take(4)? == RUN => {
            let (instructions, accesses) = (bytes.u64()?, bytes.u64()?);
            Some(Some(Run { instructions, accesses, nanoseconds: bytes.u64()? }))
        }
        _ => None,
    }
}

impl Footer {
    /// Whether the chunks fill the file from `begin` to `end` and add up to the totals.
    fn check(&self, begin: u64, end: u64) -> Option<()> {
        let (mut at, mut sum) = (begin, Totals::default());
        for chunk in &self.chunks {
            let too_much = chunk.records as usize > super::CHUNK || chunk.length > MAX_CHUNK_BYTES;
            if chunk.offset != at || too_much {
                return None;
            }
            at = at.checked_add(chunk.length.into())?;
            sum.records += u64::from(chunk.records);
            sum.events += u64::from(chunk.events);
            sum.accesses = sum.accesses.checked_add(chunk.accesses)?;
        }
        let Totals { records, accesses, writes, events, regions, processes } = self.totals;
        let fits = at == end
            && (sum.records, sum.accesses, sum.events) == (records, accesses, events)
            && accesses >= records
            && writes <= accesses
            && regions <= 1 << 22
            && processes >= 1
            && self.chunks.iter().all(|chunk| chunk.process.0 < processes);
        fits.then_some(())
    }

    /// Where the regions are; `None` if that part makes no sense.
    pub fn runs(&self, unpacker: &mut Unpacker) -> Option<Vec<RegionRun>> {
        let (head, packed) = match &self.runs {
            Runs::Packed(head, packed) => (*head, packed),
            Runs::Found(runs) => return Some(runs.clone()),
        };
        let mut column = Vec::new();
        unpacker.take(head, &mut Bytes(packed), &mut column)?;
        let mut bytes = Bytes(&column);
        let mut runs = Vec::new();
        while !bytes.0.is_empty() {
            let run = RegionRun {
                first: Region(bytes.varint32()?),
                count: bytes.varint32()?,
                process: Process(bytes.varint32()?),
                address: bytes.varint()?,
            };
            let inside = run.first.0.checked_add(run.count)? <= self.totals.regions;
            if !inside || run.count == 0 || run.process.0 >= self.totals.processes {
                return None;
            }
            runs.push(run);
        }
        Some(runs)
    }
}
