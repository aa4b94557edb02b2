//! Converts traces of other tools to `.spt`.
//!
//! Traces of other tools contain addresses but no mappings. Mappings can be inferred only after the last access, so an
//! import has two passes. The first writes the accesses to a scratch file, with regions numbered in order of first
//! touch. The second infers mappings (`infer`) and writes the trace. The input may be a pipe, and an import needs 24
//! bytes of memory per touched region.

mod champsim;
mod lackey;
mod raw;
mod text;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::file::Output;
use crate::{
    Access, BLOCK, Backing, Block, Event, Filter, Header, Mappings, Page, Pages, Place, Process,
    Reader, Region, SLOTS, Source, Totals, TraceError, Writer,
};

/// The format of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ChampSim's records of 64 bytes, one per instruction.
    ChampSim,
    /// The text of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// 64-bit little-endian addresses.
    Raw,
    /// One address per line.
    Text,
}

impl Format {
    /// The format's name on the command line and in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChampSim => "champsim",
            Self::Lackey => "lackey",
            Self::Raw => "raw",
            Self::Text => "text",
        }
    }
}

/// Options of an import.
#[derive(Debug, Clone)]
pub struct Import {
    /// Format of the input.
    pub format: Format,
    /// Which accesses to omit.
    pub filter: Filter,
    /// More than this many untouched bytes separate two mappings.
    pub gap: u64,
    /// Base page size in bytes.
    pub base_page: u32,
    /// Whether to include instruction fetches, as reads (ChampSim, lackey).
    pub instructions: bool,
    /// For the raw format, the address bit that marks writes.
    pub write_bit: Option<u8>,
    /// Name of the workload.
    pub workload: String,
    /// Whether to replace an existing file.
    pub replace: bool,
    /// Directory for the unnamed scratch file, which is about as large as the trace.
    pub scratch: PathBuf,
}

impl Import {
    /// The defaults: 4 KiB pages, same-page filter, data accesses only. A gap of 4 MiB separates mappings. This value
    /// is inferred: Linux leaves larger gaps between heap, libraries and stack, and the areas of one allocator are
    /// closer together.
    pub fn new(format: Format, workload: &str) -> Self {
        Self {
            format,
            filter: Filter::SamePage,
            gap: 4 << 20,
            base_page: 4096,
            instructions: false,
            write_bit: None,
            workload: workload.to_string(),
            replace: false,
            scratch: PathBuf::from("."),
        }
    }

    fn header(&self) -> Header {
        let creator = format!(
            "superpage {} trace import --from {}{}",
            env!("CARGO_PKG_VERSION"),
            self.format.name(),
            if self.instructions { " --instructions" } else { "" }
        );
        Header {
            base_page: self.base_page,
            filter: self.filter,
            mappings: Mappings::Inferred { gap: self.gap },
            creator,
            workload: self.workload.clone(),
        }
    }
}

/// Progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of accesses read (first pass) or written (second pass).
    pub accesses: u64,
    /// Whether the second pass has started.
    pub writing: bool,
}

/// Result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// Totals of the trace.
    pub totals: Totals,
    /// Number of inferred mappings.
    pub mappings: usize,
    /// Number of touched regions.
    pub touched: usize,
}

/// Imports `input` to `output`. Calls `watch` with the progress at intervals; `watch` may stop the import.
///
/// # Errors
/// [`TraceError`]: a malformed line or record of the input, with its place; an output that exists or cannot be written;
/// [`TraceError::Stopped`] if `watch` stopped it.
pub fn import(
    import: &Import,
    mut input: Input,
    output: &Path,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Imported, TraceError> {
    // Create the output first, so that an unwritable one is an error before minutes of reading.
    let writer = Writer::create(output, &import.header(), import.replace)?;
    let scratch = TraceError::io(&import.scratch, "no scratch file can be made there");
    let file = tempfile::tempfile_in(&import.scratch).map_err(scratch)?;
    let again = file.try_clone().map_err(scratch)?;
    let filter = if import.filter == Filter::None { Filter::None } else { Filter::SamePage };
    let header = Header { filter, ..import.header() };
    let first = Writer::to(Output::through(file, &import.scratch), &header)?;

    let path = input.path.clone();
    let mut collector = Collector::new(first, import.base_page, path.clone(), watch);
    match import.format {
        Format::ChampSim => champsim::parse(&mut input, import.instructions, &mut collector)?,
        Format::Lackey => lackey::parse(&mut input, import.instructions, &mut collector)?,
        Format::Raw => raw::parse(&mut input, import.write_bit, &mut collector)?,
        Format::Text => text::parse(&mut input, &mut collector)?,
    }
    let (touched, watch) = collector.finish()?;
    let layout = infer(&touched, import.gap / u64::from(import.base_page));
    let Some(layout) = layout else {
        let what = "its mappings span more than 2^22 regions of 512 pages; are these addresses? \
                    A smaller --gap makes more and shorter mappings"
            .to_string();
        return Err(TraceError::TooLarge { path, what });
    };
    let reader = Reader::new(again, &import.scratch)?;
    let totals = rewrite(reader, &layout, writer, output, watch)?;
    Ok(Imported { totals, mappings: layout.mappings.len(), touched: touched.len() })
}

/// The second pass: writes the mappings, then the same accesses with the layout's numbers.
fn rewrite(
    mut reader: Reader,
    layout: &Layout,
    mut writer: Writer,
    output: &Path,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Totals, TraceError> {
    let mut block = Block::default();
    block.event(Event::Spawn(Process(0)));
    for some in layout.mappings.chunks(BLOCK) {
        some.iter().for_each(|mapping| block.event(mapping.clone()));
        writer.push(&block)?;
        block.clear();
    }
    while reader.next(&mut block)? {
        for access in &mut block.accesses {
            let page = access.page();
            let region = Region(layout.numbers[page.region().0 as usize]);
            access.0 = access.0 & crate::Access::WRITE | Page::new(region, page.slot()).0;
        }
        writer.push(&block)?;
        let accesses = writer.totals().accesses;
        if watch(Progress { accesses, writing: true }).is_break() {
            return Err(TraceError::Stopped { path: output.to_path_buf() });
        }
    }
    writer.finish()
}

// All parsers use the collector, which converts addresses to pages in densely numbered regions.

/// Maximum accepted access size in bytes: the largest save all registers, about 11 KiB with AMX (Intel SDM vol. 1,
/// 13.4.2 and 18.3).
pub(crate) const MAX_ACCESS: u64 = 64 << 10;
/// Maximum number of regions.
const REGIONS: usize = 1 << 22;

type Watch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Region number in the address space.
    pub address: u64,
    /// The lowest touched page.
    pub first: u16,
    /// The highest touched page.
    pub last: u16,
}

pub(crate) struct Collector<'a> {
    writer: Writer,
    block: Block,
    page_bits: u32,
    path: PathBuf,
    /// Region number for each address. The map is never iterated, so its order does not matter.
    numbers: HashMap<u64, u32>,
    /// Touched regions, indexed by region number.
    touched: Vec<Touched>,
    /// Address and number of the last access's region.
    last: (u64, u32),
    accesses: u64,
    watch: Watch<'a>,
}

impl<'a> Collector<'a> {
    /// A collector that writes to `writer`; `path` is the input's name.
    pub fn new(writer: Writer, base_page: u32, path: PathBuf, watch: Watch<'a>) -> Self {
        Self {
            writer,
            block: Block::default(),
            page_bits: base_page.trailing_zeros(),
            path,
            numbers: HashMap::new(),
            touched: Vec::new(),
            last: (u64::MAX, 0),
            accesses: 0,
            watch,
        }
    }

    /// Adds an access of `size` bytes at `address`: one access to each page that it overlaps.
    pub fn access(
        &mut self,
        address: u64,
        size: u64,
        writes: bool,
        place: Place,
    ) -> Result<(), TraceError> {
        let first = address >> self.page_bits;
        let last = address.saturating_add(size.clamp(1, MAX_ACCESS) - 1) >> self.page_bits;
        for page in first..=last {
            self.page(page, writes, place)?;
        }
        Ok(())
    }

    fn page(&mut self, page: u64, writes: bool, place: Place) -> Result<(), TraceError> {
        let address = page / u64::from(SLOTS);
        let slot = (page % u64::from(SLOTS)) as u32;
        if address != self.last.0 {
            self.last = (address, self.number(address, slot, place)?);
        }
        let region = self.last.1;
        let touched = &mut self.touched[region as usize];
        touched.first = touched.first.min(slot as u16);
        touched.last = touched.last.max(slot as u16);
        let page = Page::new(Region(region), slot);
        self.block.accesses.push(if writes { Access::write(page) } else { Access::read(page) });
        self.accesses += 1;
        if self.block.accesses.len() == BLOCK { self.flush() } else { Ok(()) }
    }

    fn number(&mut self, address: u64, slot: u32, place: Place) -> Result<u32, TraceError> {
        if let Some(&number) = self.numbers.get(&address) {
            return Ok(number);
        }
        let number = self.touched.len();
        if number == REGIONS {
            return Err(TraceError::Import {
                path: self.path.clone(),
                place,
                what: format!("more than {REGIONS} regions of {SLOTS} pages are touched"),
                remedy: "these are hardly addresses of a program: is --from right?",
            });
        }
        self.numbers.insert(address, number as u32);
        self.touched.push(Touched { address, first: slot as u16, last: slot as u16 });
        Ok(number as u32)
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        self.writer.push(&self.block)?;
        self.block.clear();
        let progress = Progress { accesses: self.accesses, writing: false };
        match (self.watch)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TraceError::Stopped { path: self.path.clone() }),
        }
    }

    /// Ends the first pass; returns the touched regions in order of their numbers.
    pub fn finish(mut self) -> Result<(Vec<Touched>, Watch<'a>), TraceError> {
        self.flush()?;
        if self.touched.is_empty() {
            let what = "holds no access; is --from right?".to_string();
            return Err(TraceError::TooLarge { path: self.path, what });
        }
        self.writer.finish()?;
        Ok((self.touched, self.watch))
    }
}

// The input: a file or standard input, decompressed if necessary.

/// Memory limit for decompressing .xz: `xz -9` needs 65 MiB, and the format allows gigabytes.
const XZ_MEMORY: u64 = 256 << 20;
/// Bytes per read.
const BUFFER: usize = 256 << 10;

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Xz,
    Zstd,
}

/// An input.
pub struct Input {
    /// Name for errors.
    pub path: PathBuf,
    /// The decompressed bytes.
    reader: BufReader<Box<dyn Read>>,
}

impl Input {
    /// Opens `path`; .gz, .xz and .zst are decompressed.
    ///
    /// # Errors
    /// [`TraceError`]: it is a directory, or cannot be read.
    pub fn open(path: &Path, format: Format) -> Result<Self, TraceError> {
        let io = TraceError::unreadable(path);
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(TraceError::NotAFile { path: path.to_path_buf(), what: "a directory" });
        }
        Self::new(Box::new(file), path, format)
    }

    /// Reads from `raw`, which may be compressed; errors name `path`.
    ///
    /// # Errors
    /// [`TraceError::Io`]: its first bytes cannot be read.
    pub fn new(mut raw: Box<dyn Read>, path: &Path, format: Format) -> Result<Self, TraceError> {
        let io = TraceError::unreadable(path);
        let mut begin = Vec::new();
        raw.by_ref().take(6).read_to_end(&mut begin).map_err(io)?;
        let packing = packing(path, format, &begin);
        let raw = io::Cursor::new(begin).chain(raw);
        let reader: Box<dyn Read> = match packing {
            Packing::None => Box::new(raw),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(raw)),
            Packing::Xz => {
                let flags = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY, flags);
                let stream = stream.map_err(|error| io(error.into()))?;
                Box::new(liblzma::read::XzDecoder::new_stream(raw, stream))
            }
            // The decoder's default window limit applies: 128 MiB.
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(raw).map_err(io)?),
        };
        let reader = BufReader::with_capacity(BUFFER, reader);
        Ok(Self { path: path.to_path_buf(), reader })
    }

    /// The decompressed bytes.
    pub(super) fn reader(&mut self) -> &mut BufReader<Box<dyn Read>> {
        &mut self.reader
    }

    pub(super) fn wrong(&self, place: Place, what: String, remedy: &'static str) -> TraceError {
        TraceError::Import { path: self.path.clone(), place, what, remedy }
    }

    /// Makes an error for a failed read or decompression.
    pub(super) fn unreadable(&self, place: Place, error: &io::Error) -> TraceError {
        let remedy = "if it is packed (.gz, .xz, .zst), it is damaged: get it again";
        self.wrong(place, format!("cannot be read on: {error}"), remedy)
    }

    /// Fills `buffer`, except at the end of the input; returns the number of bytes read. `at` is
    /// the current byte offset in the input.
    pub(super) fn fill(&mut self, buffer: &mut [u8], at: u64) -> Result<usize, TraceError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(Place::Byte(at + filled as u64), &error)),
            }
        }
        Ok(filled)
    }
}

/// Detects compression by the file name, then by the first bytes. Raw addresses can start with any bytes, so for them
/// only the name counts.
fn packing(path: &Path, format: Format, begin: &[u8]) -> Packing {
    match path.extension().and_then(OsStr::to_str) {
        Some("gz") => Packing::Gzip,
        Some("xz") => Packing::Xz,
        Some("zst") => Packing::Zstd,
        _ if format == Format::Raw => Packing::None,
        _ if begin.starts_with(&[0x1f, 0x8b, 8]) => Packing::Gzip,
        _ if begin.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) => Packing::Xz,
        _ if begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => Packing::Zstd,
        _ => Packing::None,
    }
}

// Inference of mappings from touched regions, without I/O.

/// An inferred address space.
#[derive(Debug, PartialEq)]
pub(crate) struct Layout {
    /// The mappings, in order of their first touch.
    pub mappings: Vec<Event>,
    /// For each touched region, in order of first touch, its number in the trace. In the trace all regions of a
    /// mapping, including untouched ones, have consecutive numbers.
    pub numbers: Vec<u32>,
}

/// Infers one mapping for each group of regions with at most `gap` untouched pages between them. A mapping starts and
/// ends with a touched page, because nothing is known about the memory around it. `None`: too many regions.
pub(crate) fn infer(touched: &[Touched], gap: u64) -> Option<Layout> {
    let mut order: Vec<usize> = (0..touched.len()).collect();
    order.sort_unstable_by_key(|&number| touched[number].address);
    let page = |address: u64, slot: u16| address * u64::from(SLOTS) + u64::from(slot);
    let apart = |&left: &usize, &right: &usize| {
        let end = page(touched[left].address, touched[left].last);
        page(touched[right].address, touched[right].first) - end - 1 <= gap
    };
    let mut groups: Vec<&[usize]> = order.chunk_by(apart).collect();
    groups.sort_by_key(|group| group.iter().min().copied());

    let mut numbers = vec![0; touched.len()];
    let mut mappings = Vec::with_capacity(groups.len());
    let mut free = 0u64;
    for group in groups {
        let (first, last) = (touched[*group.first()?], touched[*group.last()?]);
        let regions = last.address - first.address + 1;
        if free.checked_add(regions)? > 1 << 22 {
            return None;
        }
        for &number in group {
            numbers[number] = (free + touched[number].address - first.address) as u32;
        }
        let begin = page(first.address, first.first);
        let pages = Pages {
            first: Page::new(Region(free as u32), first.first.into()),
            count: (page(last.address, last.last) - begin + 1) as u32,
        };
        mappings.push(Event::Map { pages, address: begin, backing: Backing::Anonymous });
        free += regions;
    }
    Some(Layout { mappings, numbers })
}

// Numbered lines of a text, and parsing of their fields.

/// Maximum line length in bytes.
const MAX_LINE: u64 = 4096;

/// A line reader.
pub(crate) struct Lines<'a> {
    pub input: &'a mut Input,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Reads the lines of `input`.
    pub fn new(input: &'a mut Input) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// Reads the next line; `false` at the end of the input.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        self.number += 1;
        let place = Place::Line(self.number);
        let reader = self.input.reader();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| self.input.unreadable(place, &error))?;
        if read as u64 == MAX_LINE && self.line.last() != Some(&b'\n') {
            let what = format!("longer than {MAX_LINE} bytes");
            return Err(self.input.wrong(place, what, "is this a text?"));
        }
        Ok(read > 0)
    }

    /// The current line, trimmed.
    pub fn line(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// The place of the current line.
    pub fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// Makes an error about the current line.
    pub fn wrong(&self, what: &str, remedy: &'static str) -> TraceError {
        let shown: String = String::from_utf8_lossy(self.line()).chars().take(60).collect();
        let shown = shown.escape_debug().collect::<String>();
        self.input.wrong(self.place(), format!("`{shown}` is {what}"), remedy)
    }
}

/// Parses a hexadecimal number without a prefix.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        Some(value << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = char::from(digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod layout_tests {
    use super::*;

    fn touched(address: u64, first: u16, last: u16) -> Touched {
        Touched { address, first, last }
    }

    fn map(region: u32, slot: u32, count: u32, address: u64) -> Event {
        let pages = Pages { first: Page::new(Region(region), slot), count };
        Event::Map { pages, address, backing: Backing::Anonymous }
    }

    #[test]
    fn groups_split_at_gaps_and_number_in_order_of_first_touch() {
        // A stack, touched first; a heap with an untouched region; and a region 1024 pages after the heap.
        let all =
            [touched(90, 500, 511), touched(12, 0, 9), touched(10, 3, 511), touched(14, 10, 10)];
        let layout = infer(&all, 1023).unwrap();
        assert_eq!(layout.numbers, [0, 3, 1, 4]);
        let expected = [
            map(0, 500, 12, 90 * 512 + 500),
            map(1, 3, 509 + 512 + 10, 10 * 512 + 3),
            map(4, 10, 1, 14 * 512 + 10),
        ];
        assert_eq!(layout.mappings, expected);
        assert_eq!(infer(&all, 1024).unwrap().mappings.len(), 2);
        assert_eq!(infer(&all, 0).unwrap().mappings.len(), 4);
        assert_eq!(infer(&all, u64::MAX >> 12).unwrap().mappings.len(), 1);
        assert_eq!(infer(&[touched(0, 0, 0), touched(1 << 43, 0, 0)], u64::MAX >> 12), None);
    }
}
