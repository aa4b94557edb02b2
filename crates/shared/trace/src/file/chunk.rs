//! A chunk: up to 2^20 records and the events between them, decodable independently of other chunks. The writer encodes
//! chunks, and the reader decodes them.
//!
//! Life cycle of a [`Chunk`] in the reader: `load` decompresses the columns of one chunk, into the memory of the chunk
//! before; then `emit` returns the records in blocks until none are left.

use std::io;
use std::io::{Read, Seek, SeekFrom};

use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::{Compressor, Decompressor};

use super::foot::{ChunkInfo, Footer, MAX_CHUNK_BYTES, Runs};
use super::writer::Tally;
use super::{CHUNK, PAGES, events};
use crate::{Access, BLOCK, Block, Event, Page, Region};

const MAGIC: &[u8; 4] = b"SPTC";
/// Number of bytes before the column heads: magic, records, coding, number of columns, two reserved
/// bytes.
const HEAD_BYTES: usize = 12;
/// Values of the coding: 1 and 2 for indices of 1 and 2 bytes; 16 + n for n planes.
const PLANES: u8 = 16;
/// Maximum number of distinct records of an indexed chunk with indices of 1 byte.
const MAX_U8_INDEX: usize = 1 << 8;
/// Maximum number of distinct records of an indexed chunk with indices of 2 bytes.
const MAX_U16_INDEX: usize = events::MAX_DISTINCT;
/// Marks a count that is stored in the list of large counts.
const ESCAPE: u8 = 255;

/// Maximum number of bytes that [`extent`] needs.
pub const MAX_HEAD: usize = HEAD_BYTES + 8 * HEAD;

/// Returns the length in bytes and the number of records of the chunk that starts with `bytes`; `None` if `bytes` do
/// not start a chunk.
pub fn extent(bytes: &[u8]) -> Option<(u64, u32)> {
    let mut bytes = Bytes(bytes);
    if bytes.take(4)? != MAGIC {
        return None;
    }
    let records = bytes.u32()?;
    bytes.u8()?;
    let columns = usize::from(bytes.u8()?);
    bytes.take(2)?;
    let mut heads = Bytes(bytes.take(columns * HEAD)?);
    let mut length = (HEAD_BYTES + columns * HEAD) as u64;
    for _ in 0..columns {
        length += Head::read(&mut heads)?.stored as u64;
    }
    Some((length, records))
}

/// Encodes records into the bytes of a chunk.
pub struct Encoder {
    packer: Packer,
    indexer: events::Indexer,
    indices: Vec<u16>,
    column: Vec<u8>,
    heads: Vec<u8>,
    body: Vec<u8>,
}

impl Encoder {
    /// Makes an encoder.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            packer: Packer::new()?,
            indexer: events::Indexer::new(),
            indices: Vec::new(),
            column: Vec::new(),
            heads: Vec::new(),
            body: Vec::new(),
        })
    }

    /// The compressor, which also compresses the footer.
    pub fn packer(&mut self) -> &mut Packer {
        &mut self.packer
    }

    /// Encodes a chunk into `out`, replacing its contents.
    pub fn encode(
        &mut self,
        accesses: &[Access],
        counts: &[u32],
        events: &[u8],
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.heads.clear();
        self.body.clear();
        let coding = self.records(accesses, counts)?;
        self.packer.put(events, &mut self.heads, &mut self.body)?;
        out.clear();
        out.extend(MAGIC);
        out.extend((accesses.len() as u32).to_le_bytes());
        out.extend([coding, (self.heads.len() / HEAD) as u8, 0, 0]);
        out.extend_from_slice(&self.heads);
        out.extend_from_slice(&self.body);
        Ok(())
    }

    fn records(&mut self, accesses: &[Access], counts: &[u32]) -> io::Result<u8> {
        if self.indexer.index(accesses, counts, &mut self.indices).is_some() {
            return self.indexed();
        }
        let planes = events::planes_of(accesses);
        for number in 0..planes {
            events::plane(accesses, number, &mut self.column);
            self.put()?;
        }
        events::writes(accesses, &mut self.column);
        self.put()?;
        self.counts(counts)?;
        Ok(PLANES + planes as u8)
    }

    /// Writes the distinct accesses, their counts (empty if all are one), and the indices.
    fn indexed(&mut self) -> io::Result<u8> {
        let distinct = &self.indexer.distinct;
        let width = if distinct.len() <= 256 { 1 } else { 2 };
        let counted = distinct.iter().any(|(_, count)| *count != 1);
        self.column.clear();
        self.column.extend(distinct.iter().flat_map(|(access, _)| access.0.to_le_bytes()));
        self.packer.put(&self.column, &mut self.heads, &mut self.body)?;
        self.column.clear();
        let counts = distinct.iter().filter(|_| counted);
        self.column.extend(counts.flat_map(|(_, count)| count.to_le_bytes()));
        self.put()?;
        self.column.clear();
        match width {
            1 => self.column.extend(self.indices.iter().map(|&index| index as u8)),
            _ => self.column.extend(self.indices.iter().flat_map(|index| index.to_le_bytes())),
        }
        self.put()?;
        Ok(width)
    }

    /// Writes the counts minus one as bytes, and the list of large counts. Both are empty if all counts are one.
    fn counts(&mut self, counts: &[u32]) -> io::Result<()> {
        self.column.clear();
        if counts.iter().any(|&count| count != 1) {
            let byte = |&count: &u32| u8::try_from(count - 1).unwrap_or(ESCAPE);
            self.column.extend(counts.iter().map(byte));
        }
        self.put()?;
        self.column.clear();
        let large = counts.iter().filter(|&&count| count > u32::from(ESCAPE));
        self.column.extend(large.flat_map(|count| count.to_le_bytes()));
        self.put()
    }

    fn put(&mut self) -> io::Result<()> {
        self.packer.put(&self.column, &mut self.heads, &mut self.body)
    }
}

/// A decoded chunk.
#[derive(Default)]
pub struct Chunk {
    records: usize,
    coding: u8,
    /// For indexed chunks: the distinct accesses, shifted to the stream's placement.
    distinct: Vec<Access>,
    /// For indexed chunks: the count of each distinct access; empty if all counts are one.
    different_counts: Vec<u32>,
    /// The indices, or the planes; the coding tells how many.
    planes: [Vec<u8>; 4],
    /// For planes: one bit per record. For indexed chunks: the encoded distinct accesses.
    writes: Vec<u8>,
    /// For planes: counts minus one. For indexed chunks: the encoded distinct counts.
    counts: Vec<u8>,
    /// For planes: the large counts.
    large: Vec<u8>,
    events: Vec<u8>,
    /// Number of records that `emit` has returned.
    at: usize,
    /// Number of bytes of large counts that `emit` has consumed.
    large_at: usize,
    /// Number of bytes of events that `emit` has consumed.
    events_at: usize,
    /// The next event that `emit` returns.
    next_event: Option<Event>,
    /// Index of the record before which the next event occurs.
    position: usize,
}

/// Bounds and placement of the pages of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Number of regions in the stream.
    pub regions: u32,
    /// Offset added to page numbers.
    pub shift: u32,
}

impl Chunk {
    /// Decodes the chunk `bytes`, which has `records` records.
    pub fn load(
        &mut self,
        bytes: &[u8],
        records: u32,
        frame: Frame,
        unpacker: &mut Unpacker,
    ) -> Result<(), &'static str> {
        (self.at, self.large_at, self.events_at, self.position) = (0, 0, 0, 0);
        self.next_event = None;
        self.records = 0;
        self.unpack(bytes, records as usize, frame, unpacker)?;
        self.peek().ok_or(EVENTS)
    }

    fn unpack(
        &mut self,
        bytes: &[u8],
        records: usize,
        frame: Frame,
        unpacker: &mut Unpacker,
    ) -> Result<(), &'static str> {
        let mut bytes = Bytes(bytes);
        let fixed = bytes.take(HEAD_BYTES).ok_or("a chunk's head is missing")?;
        let mut fixed = Bytes(fixed);
        let known = fixed.take(4) == Some(MAGIC) && fixed.u32() == Some(records as u32);
        if !known || records > CHUNK {
            return Err("a chunk begins wrongly");
        }
        self.coding = fixed.u8().unwrap_or(0);
        let planes = match self.coding {
            1 | 2 => 1,
            17..=20 => usize::from(self.coding - PLANES),
            _ => return Err("a chunk is coded in no known way"),
        };
        let columns = if self.coding < PLANES { 4 } else { planes + 4 };
        if fixed.u8() != Some(columns as u8) {
            return Err("a chunk has a wrong number of columns");
        }
        let heads = bytes.take(columns * HEAD).ok_or("a chunk's columns are missing")?;
        let mut heads = Bytes(heads);
        let mut take = |out: &mut Vec<u8>, fits: &dyn Fn(usize) -> bool| {
            let head = Head::read(&mut heads).filter(|head| fits(head.length));
            head.and_then(|head| unpacker.take(head, &mut bytes, out))
                .ok_or("a chunk's column cannot be unpacked")
        };
        if self.coding < PLANES {
            let most = 4 * events::MAX_DISTINCT.min(records);
            take(&mut self.writes, &|length| length % 4 == 0 && length <= most)?;
            let distinct = self.writes.len();
            take(&mut self.counts, &|length| length == 0 || length == distinct)?;
            let width = usize::from(self.coding);
            take(&mut self.planes[0], &|length| length == records * width)?;
        } else {
            for plane in &mut self.planes[..planes] {
                take(plane, &|length| length == records)?;
            }
            take(&mut self.writes, &|length| length == records.div_ceil(8))?;
            take(&mut self.counts, &|length| length == 0 || length == records)?;
            take(&mut self.large, &|length| length % 4 == 0 && length <= 4 * records)?;
        }
        take(&mut self.events, &|length| length <= events::MAX_EVENTS)?;
        if !bytes.0.is_empty() {
            return Err("a chunk is longer than its columns");
        }
        if self.coding < PLANES {
            self.distinct(frame).ok_or("a chunk's index of pages makes no sense")?;
        }
        self.records = records;
        Ok(())
    }

    /// Decodes the distinct records; `None` if an index is invalid.
    fn distinct(&mut self, frame: Frame) -> Option<()> {
        self.distinct.clear();
        for access in words(&self.writes).map(Access) {
            if access.page().region().0 >= frame.regions {
                return None;
            }
            self.distinct.push(Access(access.0 + frame.shift));
        }
        self.different_counts.clear();
        self.different_counts.extend(words(&self.counts));
        if self.different_counts.contains(&0) {
            return None;
        }
        let indices = &self.planes[0];
        let highest = match self.coding {
            1 => indices.iter().max().map(|&index| u16::from(index)),
            _ => pairs(indices).max(),
        };
        let distinct = self.distinct.len();
        let length = if self.coding == 1 { MAX_U8_INDEX } else { MAX_U16_INDEX };
        if highest.is_some_and(|highest| usize::from(highest) >= distinct) || distinct > length {
            return None;
        }
        self.distinct.resize(length, Access(0));
        self.different_counts.resize(length, 1);
        Some(())
    }

    /// Decodes the next event.
    fn peek(&mut self) -> Option<()> {
        let mut bytes = Bytes(&self.events[self.events_at..]);
        if bytes.0.is_empty() {
            return Some(());
        }
        let (distance, event) = events::take(&mut bytes)?;
        self.events_at = self.events.len() - bytes.0.len();
        self.position += distance as usize;
        self.next_event = Some(event);
        (self.position <= self.records).then_some(())
    }

    /// Replaces the contents of `block` by the next part of the chunk; returns `false` if nothing
    /// is left.
    pub fn emit(&mut self, block: &mut Block, frame: Frame) -> Result<bool, &'static str> {
        block.clear();
        let begin = self.at;
        let mut end = self.records.min(begin + BLOCK);
        while self.next_event.is_some() && self.position <= end {
            if block.events.len() == BLOCK {
                end = self.position;
                break;
            }
            let position = (self.position - begin) as u32;
            block.events.extend(self.next_event.take().map(|event| (position, event)));
            self.peek().ok_or(EVENTS)?;
        }
        self.accesses(begin, end, frame, &mut block.accesses)?;
        self.counts(begin, end, &mut block.counts)?;
        self.at = end;
        Ok(begin < end || !block.events.is_empty())
    }

    fn accesses(
        &self,
        begin: usize,
        end: usize,
        frame: Frame,
        out: &mut Vec<Access>,
    ) -> Result<(), &'static str> {
        match self.coding {
            1 | 2 => self.look_up(begin, end, &self.distinct, out),
            _ => {
                out.extend(self.planes[0][begin..end].iter().map(|&byte| Access(byte.into())));
                for number in 1..usize::from(self.coding - PLANES) {
                    let plane = &self.planes[number][begin..end];
                    let shift = 8 * number;
                    out.iter_mut().zip(plane).for_each(|(access, &byte)| {
                        access.0 |= u32::from(byte) << shift;
                    });
                }
                // A page number of 2^31 or more would look like a write.
                let highest = out.iter().map(|access| access.0).max().unwrap_or(0);
                if highest >= frame.regions << 9 && end > begin {
                    return Err("a page lies beyond the regions that the footer tells of");
                }
                for (access, record) in out.iter_mut().zip(begin..) {
                    let writes = u32::from(self.writes[record / 8] >> (record % 8) & 1);
                    access.0 = (access.0 + frame.shift) | writes << 31;
                }
            }
        }
        Ok(())
    }

    /// Appends the values in `table` for the records `begin..end` of an indexed chunk.
    fn look_up<T: Copy>(&self, begin: usize, end: usize, table: &[T], out: &mut Vec<T>) {
        let indices = &self.planes[0];
        // `distinct` makes the tables cover every possible index, so the look-up needs no bounds checks, which would
        // take a third of its time.
        if let (1, Some(table)) = (self.coding, table.first_chunk::<MAX_U8_INDEX>()) {
            out.extend(indices[begin..end].iter().map(|&index| table[usize::from(index)]));
        } else if let Some(table) = table.first_chunk::<MAX_U16_INDEX>() {
            let indices = pairs(&indices[2 * begin..2 * end]);
            out.extend(indices.map(|index| table[usize::from(index)]));
        }
    }

    fn counts(&mut self, begin: usize, end: usize, out: &mut Vec<u32>) -> Result<(), &'static str> {
        if self.counts.is_empty() {
            return Ok(());
        }
        if self.coding < PLANES {
            self.look_up(begin, end, &self.different_counts, out);
            return Ok(());
        }
        let bytes = &self.counts[begin..end];
        out.extend(bytes.iter().map(|&byte| u32::from(byte) + 1));
        if self.large.is_empty() && !bytes.contains(&ESCAPE) {
            return Ok(());
        }
        let mut large = Bytes(&self.large[self.large_at..]);
        for (count, _) in out.iter_mut().zip(bytes).filter(|(_, byte)| **byte == ESCAPE) {
            *count = large
                .u32()
                .filter(|&count| count > u32::from(ESCAPE))
                .ok_or("a chunk's large counts make no sense")?;
        }
        self.large_at = self.large.len() - large.0.len();
        Ok(())
    }
}

const EVENTS: &str = "a chunk's events make no sense";

fn pairs(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// Shifts the page, process and object numbers of an event to the stream's placement.
pub fn place(event: &mut Event, region: Region, process: u32, object: u32) {
    use crate::{Backing, Process};
    let shift = region.first().0;
    match event {
        Event::Map { pages, backing, .. } => {
            pages.first = Page(pages.first.0 + shift);
            match backing {
                Backing::Shared(number) | Backing::File { file: number, .. } => {
                    *number = number.wrapping_add(object);
                }
                Backing::Anonymous | Backing::Heap => {}
            }
        }
        Event::Grow { pages }
        | Event::Unmap(pages)
        | Event::Advise(pages, _)
        | Event::Protect(pages, _) => pages.first = Page(pages.first.0 + shift),
        Event::Spawn(number) | Event::Run(number) | Event::Exit(number) => {
            *number = Process(number.0 + process);
        }
        Event::Fork { child, .. } => *child = Process(child.0 + process),
        _ => {}
    }
}

// A column of a chunk: bytes that are stored raw or compressed.

/// zstd's compression level. The format's sizes and decoding speeds were measured with level 3
/// (docs/sources/simulators.md 3.5). Higher levels slow recording and do not speed up decoding.
const LEVEL: i32 = 3;

/// Bytes of a column head: codec, length, stored length.
pub const HEAD: usize = 9;

const RAW: u8 = 0;
const ZSTD: u8 = 1;

/// A compressor with its buffer.
pub struct Packer {
    zstd: Compressor<'static>,
    packed: Vec<u8>,
}

impl Packer {
    /// Makes a compressor.
    pub fn new() -> io::Result<Self> {
        Ok(Self { zstd: Compressor::new(LEVEL)?, packed: Vec::new() })
    }

    /// Compresses `column`; appends its head to `heads` and its bytes to `out`.
    pub fn put(&mut self, column: &[u8], heads: &mut Vec<u8>, out: &mut Vec<u8>) -> io::Result<()> {
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(column.len()));
        let length = self.zstd.compress_to_buffer(column, &mut self.packed)?;
        // If compression saves little, store the bytes raw, which is faster to read.
        let (codec, stored) = if length < column.len() - column.len() / 32 {
            (ZSTD, &self.packed[..])
        } else {
            (RAW, column)
        };
        heads.push(codec);
        heads.extend((column.len() as u32).to_le_bytes());
        heads.extend((stored.len() as u32).to_le_bytes());
        out.extend_from_slice(stored);
        Ok(())
    }
}

/// Head of a column.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    codec: u8,
    /// Length in bytes, decompressed.
    pub length: usize,
    /// Length in bytes, as stored.
    pub stored: usize,
}

impl Head {
    /// Parses a column head.
    pub fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let codec = bytes.u8()?;
        let length = bytes.u32()? as usize;
        let stored = bytes.u32()? as usize;
        Some(Self { codec, length, stored })
    }
}

/// A decompressor.
pub struct Unpacker(Decompressor<'static>);

impl Unpacker {
    /// Makes a decompressor.
    pub fn new() -> io::Result<Self> {
        Decompressor::new().map(Self)
    }

    /// Decompresses the column with this head from the start of `bytes` into `out`, replacing its contents. The caller
    /// must have checked `head.length`.
    pub fn take(&mut self, head: Head, bytes: &mut Bytes<'_>, out: &mut Vec<u8>) -> Option<()> {
        let stored = bytes.take(head.stored)?;
        out.clear();
        match head.codec {
            RAW => out.extend_from_slice(stored),
            ZSTD => {
                out.reserve(head.length);
                self.0.decompress_to_buffer(stored, out).ok()?;
            }
            _ => return None,
        }
        (out.len() == head.length).then_some(())
    }
}

// Recovery of a file without footer, whose writer was killed. Each chunk contains its length and can be decoded alone,
// so the chunks before the first incomplete one are a valid beginning of the stream. Only the checksums, which the
// footer holds, are missing.

/// Reconstructs the footer of the chunks from `begin` on; also returns the offset where the last
/// chunk ends.
pub fn footer(
    input: &mut (impl Read + Seek),
    begin: u64,
    unpacker: &mut Unpacker,
) -> io::Result<(Footer, u64)> {
    let (mut tally, mut chunks) = (Tally::new(), Vec::new());
    let (mut chunk, mut block, mut bytes) = (Chunk::default(), Block::default(), Vec::new());
    let frame = Frame { regions: PAGES >> 9, shift: 0 };
    let mut at = begin;
    loop {
        let mut read = |bytes: &mut Vec<u8>, most: u64| {
            bytes.clear();
            input.seek(SeekFrom::Start(at))?;
            input.by_ref().take(most).read_to_end(bytes)
        };
        read(&mut bytes, MAX_HEAD as u64)?;
        let Some((length, records)) = extent(&bytes) else { break };
        if length > MAX_CHUNK_BYTES.into() || records as usize > CHUNK {
            break;
        }
        let is_whole = read(&mut bytes, length)? as u64 == length
            && chunk.load(&bytes, records, frame, unpacker).is_ok();
        if !is_whole {
            break;
        }
        let mut info = ChunkInfo {
            offset: at,
            length: length as u32,
            records,
            events: 0,
            accesses: 0,
            process: tally.regions.running(),
            checksum: xxh3_64(&bytes),
            before: tally.totals.records,
        };
        let before = tally.totals;
        let mut is_sound = true;
        while is_sound
            && let Ok(some) = chunk.emit(&mut block, frame).inspect_err(|_| is_sound = false)
        {
            if !some {
                break;
            }
            for (at, access) in block.accesses.iter().enumerate() {
                tally.record(*access, block.counts.get(at).copied().unwrap_or(1));
            }
            is_sound = block.events.iter().all(|(_, event)| tally.event(event));
        }
        if !is_sound {
            tally.totals = before;
            break;
        }
        tally.totals.records += u64::from(records);
        info.events = (tally.totals.events - before.events) as u32;
        info.accesses = tally.totals.accesses - before.accesses;
        chunks.push(info);
        at += length;
    }
    let Tally { totals, regions } = tally;
    Ok((Footer { chunks, totals, runs: Runs::Found(regions.runs), run: None }, at))
}

// Parsing of little-endian integers and LEB128 varints. Reads never panic; past the end they return `None`.

/// A cursor over bytes.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// Takes the next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    /// Takes one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }
    /// Takes a two-byte integer.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// Takes a four-byte integer.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// Takes an eight-byte integer.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// Takes a LEB128 varint: seven bits per byte, low bits first. `None` also if the value exceeds
    /// 64 bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    /// Takes a varint; `None` also if the value exceeds 32 bits.
    pub fn varint32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }
    /// Takes a string: its length (a two-byte number of bytes), then UTF-8.
    pub fn text(&mut self) -> Option<String> {
        let length = self.u16()?;
        String::from_utf8(self.take(length.into())?.to_vec()).ok()
    }
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a string, truncated to `most` bytes (at a character boundary).
pub fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let cut = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    let text = &text[..cut.unwrap_or(0)];
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod bytes_tests {
    use proptest::prelude::*;

    use super::{Bytes, put_varint};

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, shift in 0u32..64) {
            let mut out = Vec::new();
            put_varint(&mut out, value >> shift);
            let mut bytes = Bytes(&out);
            prop_assert_eq!(bytes.varint(), Some(value >> shift));
            prop_assert!(bytes.0.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut reader = Bytes(&bytes);
            while reader.varint().is_some() {}
            let mut reader = Bytes(&bytes);
            while reader.text().is_some() {}
        }
    }
}
