//! Reading a trace as a stream.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::chunk::Unpacker;
use super::chunk::{self, Chunk, Frame};
use super::foot::{ChunkInfo, Footer, MAX_FOOTER, RegionRun, Run, TRAILER, Totals, Trailer};
use super::{Header, PAGES, head};
use crate::{Block, Event, Process, Region, Source, TraceError};

/// Contents of a trace's header and footer.
#[derive(Debug, Clone)]
pub struct Info {
    /// The header.
    pub header: Header,
    /// The totals.
    pub totals: Totals,
    /// The chunks, in order.
    pub chunks: Vec<ChunkInfo>,
    /// Length of the file in bytes.
    pub length: u64,
    /// The measured run, if a recorder wrote it.
    pub run: Option<Run>,
    /// Offset of the end of the last complete chunk, if the footer is missing (the writer was killed, or the copy is
    /// incomplete). The stream ends at this offset, and has no checksums.
    pub cut: Option<u64>,
}

/// Offsets added to a stream's numbers, so that several streams can share a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Region number that the stream's region 0 becomes.
    pub region: Region,
    /// Process number that the stream's process 0 becomes.
    pub process: Process,
    /// Number that the stream's shared object 0 and file 0 become.
    pub object: u32,
}

impl Default for Placement {
    fn default() -> Self {
        Self { region: Region(0), process: Process(0), object: 0 }
    }
}

/// Reads one trace. Life cycle: [`Reader::open`] reads header and footer; [`Source::next`] returns the stream's blocks,
/// chunk by chunk; [`Reader::seek`] moves to a chunk. One reader per thread.
pub struct Reader<R = File> {
    path: PathBuf,
    input: R,
    info: Info,
    /// The footer, which has the region addresses that `info` lacks.
    footer: Footer,
    placement: Placement,
    /// Number of the next chunk to load.
    next: usize,
    /// Number of the loaded chunk.
    loaded: Option<usize>,
    chunk: Chunk,
    bytes: Vec<u8>,
    unpacker: Unpacker,
}

impl Reader<File> {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// [`TraceError`]: the path is not a plain file, cannot be read, or is not a trace of this version; or the header
    /// or footer is damaged. A truncated trace is opened up to its last complete chunk.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let io = TraceError::unreadable(path);
        // Check this before opening, because opening a pipe would wait for its writer.
        let metadata = std::fs::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "a directory" } else { "a pipe or a device" };
            return Err(TraceError::NotAFile { path: path.to_path_buf(), what });
        }
        Self::new(File::open(path).map_err(io)?, path)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the trace in `input`; errors name `path`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn new(mut input: R, path: &Path) -> Result<Self, TraceError> {
        let at = TraceError::unreadable(path);
        let length = input.seek(SeekFrom::End(0)).map_err(at)?;
        let (header, begin) = Self::header(&mut input, path, length)?;
        let mut unpacker = Unpacker::new().map_err(at)?;
        let (mut footer, cut) = match Self::footer(&mut input, path, begin, length)? {
            Some(footer) => (footer, None),
            None => {
                let (footer, end) = chunk::footer(&mut input, begin, &mut unpacker).map_err(at)?;
                (footer, Some(end))
            }
        };
        let (totals, chunks) = (footer.totals, std::mem::take(&mut footer.chunks));
        Ok(Self {
            path: path.to_path_buf(),
            input,
            info: Info { header, totals, chunks, length, run: footer.run, cut },
            footer,
            placement: Placement::default(),
            next: 0,
            loaded: None,
            chunk: Chunk::default(),
            bytes: Vec::new(),
            unpacker,
        })
    }

    fn header(input: &mut R, path: &Path, length: u64) -> Result<(Header, u64), TraceError> {
        let path = path.to_path_buf();
        let mut all = Vec::new();
        let longest = (head::MAX_HEADER as u64).min(length);
        let read = input.seek(SeekFrom::Start(0));
        let read = read.and_then(|_| input.take(longest).read_to_end(&mut all));
        read.map_err(TraceError::unreadable(&path))?;
        if all.is_empty() {
            return Err(TraceError::NotATrace { path, what: "an empty file" });
        }
        let begins = all.len().min(head::MAGIC.len());
        if all[..begins] != head::MAGIC[..begins] {
            return Err(TraceError::NotATrace { path, what: "other bytes" });
        }
        let truncated = |path, what| TraceError::Truncated { path, offset: length, what };
        let Some(fixed) = all.get(head::MAGIC.len()..head::HEAD_BYTES) else {
            return Err(truncated(path, "it ends in its header"));
        };
        let found = u16::from_le_bytes([fixed[0], fixed[1]]);
        if found != super::VERSION {
            return Err(TraceError::Version { path, found });
        }
        let body = usize::from(u16::from_le_bytes([fixed[2], fixed[3]]));
        let end = head::HEAD_BYTES + body + 8;
        match all.get(..end) {
            None if end > head::MAX_HEADER => {
                Err(TraceError::corrupt(&path, None, 10, "the header is too long"))
            }
            None => Err(truncated(path, "it ends in its header")),
            Some(bytes) => Header::decode(bytes)
                .map(|header| (header, end as u64))
                .map_err(|what| TraceError::corrupt(&path, None, 0, what)),
        }
    }

    /// Reads the footer; `None` if the file has none.
    fn footer(
        input: &mut R,
        path: &Path,
        begin: u64,
        length: u64,
    ) -> Result<Option<Footer>, TraceError> {
        let Some(end) = length.checked_sub(TRAILER as u64).filter(|&end| end >= begin) else {
            return Ok(None);
        };
        let mut trailer = [0; TRAILER];
        let read = input.seek(SeekFrom::Start(end));
        let read = read.and_then(|_| input.read_exact(&mut trailer));
        read.map_err(TraceError::unreadable(path))?;
        let Some(trailer) = Trailer::decode(&trailer) else { return Ok(None) };
        let corrupt = |offset, what: &str| TraceError::corrupt(path, None, offset, what);
        let inside = trailer.offset >= begin
            && trailer.length <= MAX_FOOTER
            && trailer.offset.checked_add(trailer.length) == Some(end);
        if !inside {
            return Err(corrupt(end, "the end does not say where the footer is"));
        }
        let mut bytes = Vec::new();
        let read = input.seek(SeekFrom::Start(trailer.offset));
        let read = read.and_then(|_| input.take(trailer.length).read_to_end(&mut bytes));
        read.map_err(TraceError::unreadable(path))?;
        let footer = trailer.footer(&bytes, begin);
        footer.map(Some).map_err(|what| corrupt(trailer.offset, what))
    }

    /// Sets the placement of the stream's numbers, so that several streams can share a machine. Call it before reading
    /// the first block.
    ///
    /// # Errors
    /// [`TraceError::TooLarge`]: region or process numbers would exceed their maximum.
    pub fn place(mut self, placement: Placement) -> Result<Self, TraceError> {
        let Totals { regions, processes, .. } = self.info.totals;
        let regions = placement.region.0.checked_add(regions);
        let processes = placement.process.0.checked_add(processes);
        if regions.is_none_or(|regions| regions > PAGES >> 9) || processes.is_none() {
            let what = format!(
                "its {} regions do not fit behind {} others: a machine has {} (8 TiB of 4 KiB pages)",
                self.info.totals.regions,
                placement.region.0,
                PAGES >> 9
            );
            return Err(TraceError::TooLarge { path: self.path, what });
        }
        self.placement = placement;
        Ok(self)
    }

    /// Returns the contents of header and footer.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the trace's base page size equals `base_page`, in bytes.
    ///
    /// # Errors
    /// [`TraceError::Geometry`]: they differ.
    pub fn expect_geometry(&self, base_page: u64) -> Result<(), TraceError> {
        let trace = self.info.header.base_page;
        if u64::from(trace) == base_page {
            return Ok(());
        }
        Err(TraceError::Geometry { path: self.path.clone(), trace, machine: base_page })
    }

    /// Returns the addresses of the stream's regions in their processes, in the order of mapping. Region and process
    /// numbers are without the placement.
    ///
    /// # Errors
    /// [`TraceError::Corrupt`]: the footer's list cannot be decoded.
    pub fn regions(&mut self) -> Result<Vec<RegionRun>, TraceError> {
        let end = self.info.chunks.last().map(|last| last.offset + u64::from(last.length));
        self.footer.runs(&mut self.unpacker).ok_or_else(|| {
            let what = "the footer's list of regions makes no sense";
            TraceError::corrupt(&self.path, None, end.unwrap_or(0), what)
        })
    }

    /// Continues with chunk `number`, or ends the stream if there is no such chunk. The running process is in the
    /// chunk's `ChunkInfo`; mappings that were made before this chunk are in earlier chunks.
    pub fn seek(&mut self, number: usize) {
        self.next = number;
        self.loaded = None;
    }

    fn frame(&self) -> Frame {
        Frame { regions: self.info.totals.regions, shift: self.placement.region.first().0 }
    }

    /// Reads, checks and decodes chunk `number`.
    fn load(&mut self, number: usize) -> Result<(), TraceError> {
        let ChunkInfo { offset, length, records, checksum, .. } = self.info.chunks[number];
        self.bytes.clear();
        let read = self.input.seek(SeekFrom::Start(offset));
        let input = &mut self.input;
        // Do not allocate `length` bytes in advance, because the footer may be wrong.
        let read = read.and_then(|_| input.take(length.into()).read_to_end(&mut self.bytes));
        let read = read.and_then(|read| {
            let short = read < length as usize;
            if short { Err(io::Error::from(ErrorKind::UnexpectedEof)) } else { Ok(()) }
        });
        read.map_err(TraceError::unreadable(&self.path))?;
        if !super::is_sum(&self.bytes, checksum) {
            return Err(self.corrupt(number, "its checksum is wrong"));
        }
        let frame = self.frame();
        let loaded = self.chunk.load(&self.bytes, records, frame, &mut self.unpacker);
        loaded.map_err(|what| self.corrupt(number, what))
    }

    fn corrupt(&self, number: usize, what: &str) -> TraceError {
        let offset = self.info.chunks[number].offset;
        TraceError::corrupt(&self.path, Some(number), offset, what)
    }

    /// Checks that the page and process numbers of a block's events are within the footer's totals, then shifts them by
    /// the reader's [`Placement`].
    fn place_events(&self, block: &mut Block) -> Result<(), &'static str> {
        let Totals { regions, processes, .. } = self.info.totals;
        let end = u64::from(regions) << 9;
        for (_, event) in &mut block.events {
            let pages = event.pages();
            if pages.is_some_and(|p| u64::from(p.first.0) + u64::from(p.count) > end) {
                return Err("an event names pages beyond the regions that the footer tells of");
            }
            if matches!(event, Event::Fork { offset, .. } if u64::from(*offset) >= end) {
                return Err("a child's pages lie beyond the regions that the footer tells of");
            }
            if event.process().is_some_and(|process| process.0 >= processes) {
                return Err("an event names a process that the footer does not tell of");
            }
            let Placement { region, process, object } = self.placement;
            chunk::place(event, region, process.0, object);
        }
        Ok(())
    }
}

impl<R: Read + Seek> Source for Reader<R> {
    type Error = TraceError;

    fn next(&mut self, block: &mut Block) -> Result<bool, TraceError> {
        loop {
            let number = match self.loaded {
                Some(number) => number,
                None if self.next >= self.info.chunks.len() => {
                    block.clear();
                    return Ok(false);
                }
                None => {
                    let number = self.next;
                    self.load(number)?;
                    self.next += 1;
                    self.loaded = Some(number);
                    number
                }
            };
            let frame = self.frame();
            let emitted = self.chunk.emit(block, frame);
            let emitted = emitted.and_then(|some| self.place_events(block).map(|()| some));
            match emitted {
                Ok(true) => return Ok(true),
                Ok(false) => self.loaded = None,
                Err(what) => {
                    block.clear();
                    self.loaded = None;
                    return Err(self.corrupt(number, what));
                }
            }
        }
    }
}
