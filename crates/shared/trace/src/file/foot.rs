//! The footer: locations and contents of the chunks, totals, region addresses; and the trailer, the file's last 32
//! bytes, which locates the footer.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::{Bytes, put_varint};
use super::chunk::{Head, Packer, Unpacker};
use crate::{Process, Region};

/// Bytes of the trailer.
pub const TRAILER: usize = 32;
/// Maximum accepted size of a footer: enough for six million chunks, more than 10^12 records.
pub const MAX_FOOTER: u64 = 256 << 20;
/// The last eight bytes of the file.
const MAGIC: &[u8; 8] = b"SPTEND\r\n";
const FOOTER: &[u8; 4] = b"SPTF";
/// Magic of the optional part about the run.
const RUN: &[u8; 4] = b"SPTR";
/// Bytes of the part about the run.
const RUN_LENGTH: usize = 28;
/// Bytes per chunk in the footer.
const ENTRY: usize = 44;
/// Upper bound for the bytes of a chunk. Four planes, counts (one byte, or five for large ones) and events take
/// slightly more than 10 MiB.
pub const MAX_CHUNK_BYTES: u32 = 16 << 20;
/// Maximum accepted number of runs of regions: as many as there are possible regions.
const MAX_RUNS: usize = 1 << 22;

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// Number of records.
    pub records: u32,
    /// Number of events.
    pub events: u32,
    /// Number of accesses that its records represent.
    pub accesses: u64,
    /// The process that runs at the start of the chunk.
    pub process: Process,
    /// XXH3 checksum of its bytes.
    pub checksum: u64,
    /// Number of records in earlier chunks. Computed, not stored in the file.
    pub before: u64,
}

/// Totals of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of records.
    pub records: u64,
    /// Number of accesses that the records represent.
    pub accesses: u64,
    /// Number of accesses that write.
    pub writes: u64,
    /// Number of events.
    pub events: u64,
    /// Highest region number, plus one.
    pub regions: u32,
    /// Highest process number plus one, at least 1.
    pub processes: u32,
}

/// Measurements of the recorded run that are not in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Run {
    /// Number of instructions executed by all processes.
    pub instructions: u64,
    /// Number of accesses, including those that the recorder skipped at the beginning.
    pub accesses: u64,
    /// Duration of the recorded run in nanoseconds.
    pub nanoseconds: u64,
}

/// A run of adjacent regions of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRun {
    /// The first region.
    pub first: Region,
    /// Number of regions.
    pub count: u32,
    /// The process.
    pub process: Process,
    /// Address of the first region in units of a region (virtual page number / 512).
    pub address: u64,
}

/// The footer; its runs of regions are decoded on demand.
#[derive(Debug, Clone, Default)]
pub struct Footer {
    /// The chunks.
    pub chunks: Vec<ChunkInfo>,
    /// The totals.
    pub totals: Totals,
    /// The runs of regions.
    pub runs: Runs,
    /// The measured run, if a recorder wrote it.
    pub run: Option<Run>,
}

/// The runs of regions.
#[derive(Debug, Clone)]
pub enum Runs {
    /// As stored in the file.
    Packed(Head, Vec<u8>),
    /// Reconstructed, because the file has no footer.
    Found(Vec<RegionRun>),
}

impl Default for Runs {
    fn default() -> Self {
        Self::Found(Vec::new())
    }
}

/// Encodes footer and trailer for a file whose chunks end at `offset`.
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
        // Reserved bytes, zero.
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

/// The trailer: the last bytes of the file.
pub struct Trailer {
    /// Offset of the footer.
    pub offset: u64,
    /// Length of the footer in bytes.
    pub length: u64,
    checksum: u64,
}

impl Trailer {
    /// Parses the trailer; `None` if the file is truncated or its writer did not finish.
    pub fn decode(bytes: &[u8; TRAILER]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let trailer = Self { offset: bytes.u64()?, length: bytes.u64()?, checksum: bytes.u64()? };
        (bytes.0 == MAGIC).then_some(trailer)
    }

    /// Parses the footer. The chunks must fill the file from `begin` to `self.offset`.
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
    // A run takes at most 25 bytes.
    if head.length > MAX_RUNS * 25 {
        return None;
    }
    let runs = bytes.take(head.stored)?.to_vec();
    let run = run(bytes)?;
    Some(Footer { chunks, totals, runs: Runs::Packed(head, runs), run })
}

/// Parses the optional part about the run from the remaining bytes.
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
    /// Checks that the chunks fill the file from `begin` to `end` and add up to the totals.
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

    /// Decodes the runs of regions; `None` if they are malformed.
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
