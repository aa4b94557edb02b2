//! Writing blocks of a stream to a file.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_64;

use super::chunk::Encoder;
use super::events::Regions;
use super::foot::{ChunkInfo, Run, Totals};
use super::{CHUNK, Header, events, foot};
use crate::filter::Recorder;
use crate::{Access, Block, Event, Process, TraceError};

/// A chunk is flushed after this many bytes of events. The longest event has about 1 KiB.
const EVENTS: usize = events::MAX_EVENTS - (8 << 10);

/// Writes one trace. Life cycle: [`Writer::create`], [`Writer::push`] for every block of the stream,
/// [`Writer::finish`]. A writer that is dropped before `finish` leaves no file.
pub struct Writer {
    output: Output,
    encoder: Encoder,
    /// Records of the current chunk.
    recorder: Recorder,
    /// Encoded events of the current chunk.
    events: Vec<u8>,
    /// Number of events of the current chunk.
    event_count: u32,
    /// Record number of the last event.
    last_event: usize,
    /// The process that ran at the start of the chunk.
    process: Process,
    tally: Tally,
    chunks: Vec<ChunkInfo>,
    run: Option<Run>,
    encoded: Vec<u8>,
}

impl Writer {
    /// Starts a trace at `path`. With `replace`, the finished trace replaces an existing file; without, an existing
    /// file is an error.
    ///
    /// # Errors
    /// [`TraceError`]: the file exists, or cannot be written; or [`Header::check`] refuses the header.
    pub fn create(path: &Path, header: &Header, replace: bool) -> Result<Self, TraceError> {
        Self::to(Output::create(path, replace)?, header)
    }

    /// Starts a trace in `output`.
    pub(crate) fn to(mut output: Output, header: &Header) -> Result<Self, TraceError> {
        if let Err(what) = header.check() {
            return Err(TraceError::Stream {
                path: output.path,
                record: 0,
                what: what.to_string(),
            });
        }
        output.write(&header.encode())?;
        let started = Encoder::new();
        let encoder = started.map_err(TraceError::io(&output.path, "zstd cannot be started"))?;
        Ok(Self {
            output,
            encoder,
            recorder: Recorder::new(header.filter),
            events: Vec::new(),
            event_count: 0,
            last_event: 0,
            process: Process(0),
            tally: Tally::new(),
            chunks: Vec::new(),
            run: None,
            encoded: Vec::new(),
        })
    }

    /// Appends a block of the stream.
    ///
    /// # Errors
    /// [`TraceError::Stream`]: the block is inconsistent. [`TraceError::Io`]: a chunk could not be written.
    pub fn push(&mut self, block: &Block) -> Result<(), TraceError> {
        if !block.counts.is_empty() && block.counts.len() != block.accesses.len() {
            return self.wrong("a block has not as many counts as accesses");
        }
        let mut at = 0;
        for (position, event) in &block.events {
            let position = *position as usize;
            if position < at || position > block.accesses.len() {
                return self.wrong("a block's events are not in order");
            }
            self.records(block, at, position)?;
            at = position;
            self.event(event)?;
        }
        self.records(block, at, block.accesses.len())
    }

    /// Returns the totals so far, including records not yet in a chunk.
    pub fn totals(&self) -> Totals {
        let records = self.tally.totals.records + self.recorder.accesses.len() as u64;
        Totals { records, ..self.tally.totals }
    }

    /// Sets the measurements of the recorded run.
    pub fn ran(&mut self, run: Run) {
        self.run = Some(run);
    }

    /// Finishes the trace and gives the file its name.
    ///
    /// # Errors
    /// [`TraceError::Io`]: the file could not be written or renamed. Then an existing file stays
    /// unchanged.
    pub fn finish(mut self) -> Result<Totals, TraceError> {
        self.flush()?;
        let offset = self.output.written;
        let Tally { totals, regions } = &self.tally;
        let packer = self.encoder.packer();
        let foot = foot::encode(&self.chunks, totals, &regions.runs, self.run, offset, packer);
        let foot = foot.map_err(|source| self.packing(source))?;
        self.output.write(&foot)?;
        self.output.finish()?;
        Ok(self.tally.totals)
    }

    fn records(&mut self, block: &Block, begin: usize, end: usize) -> Result<(), TraceError> {
        for at in begin..end {
            let access = block.accesses[at];
            let count = if block.counts.is_empty() { 1 } else { block.counts[at] };
            if count == 0 {
                return self.wrong("a record stands for no access");
            }
            if self.recorder.accesses.len() == CHUNK {
                self.flush()?;
            }
            let region = access.page().region();
            self.tally.record(access, count);
            self.recorder.add(access, count, || self.tally.regions.address(region));
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), TraceError> {
        if let Err(what) = events::check(event) {
            return self.wrong(&what);
        }
        if self.events.len() > EVENTS {
            self.flush()?;
        }
        let position = self.recorder.accesses.len();
        events::put(&mut self.events, (position - self.last_event) as u32, event);
        self.last_event = position;
        self.event_count += 1;
        self.recorder.fence();
        if !self.tally.event(event) {
            return self.wrong("a process has the highest number there is");
        }
        Ok(())
    }

    /// Writes the current chunk unless it is empty.
    fn flush(&mut self) -> Result<(), TraceError> {
        let Recorder { accesses, counts, .. } = &self.recorder;
        if accesses.is_empty() && self.events.is_empty() {
            return Ok(());
        }
        let done = self.encoder.encode(accesses, counts, &self.events, &mut self.encoded);
        let chunk = ChunkInfo {
            offset: self.output.written,
            length: self.encoded.len() as u32,
            records: accesses.len() as u32,
            events: self.event_count,
            accesses: counts.iter().map(|&count| u64::from(count)).sum(),
            process: self.process,
            checksum: xxh3_64(&self.encoded),
            before: self.tally.totals.records,
        };
        done.map_err(|source| self.packing(source))?;
        self.output.write(&self.encoded)?;
        self.tally.totals.records += u64::from(chunk.records);
        self.chunks.push(chunk);
        self.recorder.clear();
        self.events.clear();
        (self.event_count, self.last_event) = (0, 0);
        self.process = self.tally.regions.running();
        Ok(())
    }

    fn wrong<T>(&self, what: &str) -> Result<T, TraceError> {
        Err(TraceError::Stream {
            path: self.output.path.clone(),
            record: self.totals().records,
            what: what.to_string(),
        })
    }

    fn packing(&self, source: std::io::Error) -> TraceError {
        TraceError::io(&self.output.path, "cannot be compressed")(source)
    }
}

// The output is a temporary file in the target's directory, renamed when complete. If the writer is killed, an existing
// file stays unchanged.

/// A file being written.
pub(crate) struct Output {
    /// Path for errors.
    pub path: PathBuf,
    to: To,
    replace: bool,
    /// Number of bytes written so far.
    pub written: u64,
}

enum To {
    /// A temporary file, and its final path.
    Temporary(NamedTempFile, PathBuf),
    /// A device or pipe, which is written directly.
    Direct(File),
}

impl Output {
    /// Starts writing `path`. With `replace`, the complete new file replaces an existing file. Without, an existing
    /// file is an error, both now and at the end.
    pub fn create(path: &Path, replace: bool) -> Result<Self, TraceError> {
        let io = |doing| TraceError::io(path, doing);
        let to = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let what = "a directory";
                return Err(TraceError::NotAFile { path: path.to_path_buf(), what });
            }
            Ok(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(path);
                To::Direct(file.map_err(io("cannot be written"))?)
            }
            Ok(_) if !replace => return Err(TraceError::Exists { path: path.to_path_buf() }),
            Ok(_) => {
                // Keep a symbolic link, and replace its target.
                let target = fs::canonicalize(path).map_err(io("cannot be found"))?;
                let file = beside(&target).map_err(io("cannot be written"))?;
                To::Temporary(file, target)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = beside(path).map_err(io("cannot be written"))?;
                To::Temporary(file, path.to_path_buf())
            }
            Err(error) => return Err(io("cannot be written")(error)),
        };
        Ok(Self { path: path.to_path_buf(), to, replace, written: 0 })
    }

    /// Writes to an open file; errors name `path`.
    pub fn through(file: File, path: &Path) -> Self {
        let to = To::Direct(file);
        Self { path: path.to_path_buf(), to, replace: true, written: 0 }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let file: &mut dyn Write = match &mut self.to {
            To::Temporary(file, _) => file,
            To::Direct(file) => file,
        };
        file.write_all(bytes).map_err(TraceError::io(&self.path, "cannot be written"))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Renames the file to its final path.
    pub fn finish(self) -> Result<(), TraceError> {
        let Self { path, to, replace, .. } = self;
        let To::Temporary(file, name) = to else { return Ok(()) };
        let io = |doing| TraceError::io(&path, doing);
        // Sync before the rename, so that after a system crash the path cannot lead to an incomplete file.
        file.as_file().sync_all().map_err(io("cannot be written to disk"))?;
        let done = if replace { file.persist(&name) } else { file.persist_noclobber(&name) };
        match done {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(TraceError::Exists { path })
            }
            Err(error) => Err(io("cannot be given its name")(error.error)),
        }
    }
}

fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file name"));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        // The usual mode of new files; the umask applies.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}

// Totals of a stream, updated while it is written, or recomputed if there is no footer.

/// Totals of a stream up to now, and its region addresses.
pub struct Tally {
    /// The totals; the caller that makes chunks sets `records`.
    pub totals: Totals,
    pub regions: Regions,
}

impl Tally {
    /// Makes the totals of an empty stream.
    pub fn new() -> Self {
        let totals = Totals { processes: 1, ..Totals::default() };
        Self { totals, regions: Regions::new() }
    }

    /// Counts a record.
    pub fn record(&mut self, access: Access, count: u32) {
        let totals = &mut self.totals;
        totals.regions = totals.regions.max(access.page().region().0 + 1);
        totals.accesses += u64::from(count);
        totals.writes += if access.writes() { u64::from(count) } else { 0 };
    }

    /// Counts an event; returns `false` if its process number is too large.
    pub fn event(&mut self, event: &Event) -> bool {
        self.regions.update(event);
        self.totals.events += 1;
        let mut regions = self.regions.count();
        if let Some(pages) = event.pages() {
            regions = regions.max(((pages.first.0 + (pages.count - 1)) >> 9) + 1);
        }
        // Count the region of the offset even if the child inherits nothing, because readers check that the offset is
        // in the stream's range.
        if let Event::Fork { offset, .. } = event {
            regions = regions.max((offset >> 9) + 1);
        }
        self.totals.regions = self.totals.regions.max(regions);
        let above = event.process().map_or(Some(1), |process| process.0.checked_add(1));
        self.totals.processes = self.totals.processes.max(above.unwrap_or(0));
        above.is_some()
    }
}
