//! Recording: blocks in, a file out.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::chunk::Encoder;
use super::foot::{self, ChunkInfo, Run, Totals};
use super::tally::Tally;
use super::{CHUNK, Header, Output, events};
use crate::filter::Recorder;
use crate::{Block, Event, Process, TraceError};

/// Bytes of events after which a chunk is full: the longest event is some 1 KiB.
const EVENTS: usize = events::MAX_EVENTS - (8 << 10);

/// Writes one trace. Life: [`Writer::create`], [`Writer::push`] for every block of the stream,
/// [`Writer::finish`]. Dropped before that, it leaves nothing.
pub struct Writer {
    output: Output,
    encoder: Encoder,
    /// The records of the chunk being filled.
    recorder: Recorder,
    /// Its events as bytes; how many; the record of the last.
    events: Vec<u8>,
    event_count: u32,
    last_event: usize,
    /// The process that ran when it began.
    process: Process,
    tally: Tally,
    chunks: Vec<ChunkInfo>,
    run: Option<Run>,
    encoded: Vec<u8>,
}

impl Writer {
    /// Begins a trace at `path`. A file that is there is replaced when the trace is finished, or
    /// without `replace` refused.
    ///
    /// # Errors
    /// [`TraceError`]: the file exists, or cannot be written; or the header is one that [`Header::check`] refuses.
    pub fn create(path: &Path, header: &Header, replace: bool) -> Result<Self, TraceError> {
        Self::to(Output::create(path, replace)?, header)
    }

    /// Begins a trace in an output.
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

    /// Adds a piece of the stream.
    ///
    /// # Errors
    /// [`TraceError::Stream`]: it breaks the rules of streams. [`TraceError::Io`]: a chunk could not be written.
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

    /// What was written so far (records that are not yet in a chunk count too).
    pub fn totals(&self) -> Totals {
        let records = self.tally.totals.records + self.recorder.accesses.len() as u64;
        Totals { records, ..self.tally.totals }
    }

    /// Tells what a recorder knows of the run beyond its stream.
    pub fn ran(&mut self, run: Run) {
        self.run = Some(run);
    }

    /// Ends the trace: only now is there a file of its name.
    ///
    /// # Errors
    /// [`TraceError::Io`]: the rest could not be written, or the file not be named. What had its name before stays.
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

    /// Writes the chunk, if there is something in it.
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
