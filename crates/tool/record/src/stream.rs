//! Converts frames to a trace: tracks processes, their memory and their accesses. The only I/O is writing the trace.

use std::collections::HashMap;
use std::time::Duration;

use trace::{Advice, BLOCK, Block, Event, Process, Run, Totals, Writer};

use crate::RecordError;
use crate::parts::{Kind, Rights};
use crate::shared_state::{Full, SharedState};
use crate::space::Space;
use crate::wire::{Frame, Mapped, Message, Span, Words};

/// log2 of the page size.
const PAGE: u32 = 12;
/// Maximum number of unrecorded programs that are listed by path.
const FOREIGN: usize = 16;

/// Counts of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of instructions of all processes, including the skipped beginning; `None` for fault
    /// recordings.
    pub instructions: Option<u64>,
    /// Number of accesses before the filter, including skipped accesses.
    pub accesses: u64,
    /// Number of accesses skipped at the beginning.
    pub skipped: u64,
    /// Number of records received from the plugin.
    pub records: u64,
    /// Number of instruction fetches.
    pub fetches: u64,
    /// Number of processes; each exec starts a new process.
    pub processes: u32,
    /// Number of mappings created.
    pub mappings: u64,
    /// Number of threads created.
    pub threads: u64,
    /// Paths of programs that were executed but not recorded: the first few.
    pub foreign: Vec<String>,
    /// Number of all programs that were executed but not recorded.
    pub foreign_count: u64,
    /// Number of records lost because a ring buffer overflowed.
    pub lost: u64,
}

/// One trace being written.
struct Sink {
    writer: Writer,
    block: Block,
}

impl Sink {
    fn new(writer: Writer) -> Self {
        Self { writer, block: Block::default() }
    }

    fn flush(&mut self) -> Result<(), RecordError> {
        self.writer.push(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// State of a recording.
pub struct Stream {
    data: Sink,
    code: Option<Sink>,
    shared: SharedState,
    /// Address spaces of the running processes, by pid.
    living: HashMap<u32, Space>,
    /// Address spaces of forked children that have not sent a frame yet, by the child's name.
    pending_forks: HashMap<u64, Space>,
    running: Option<Process>,
    next: u32,
    skip: u64,
    most: u64,
    seen: Counts,
    /// Events of the current frame.
    events: Vec<Event>,
    /// Whether recording has stopped, because `most` is reached or region numbers are exhausted
    /// (`out_of_numbers`).
    full: bool,
    out_of_numbers: bool,
}

impl Stream {
    /// Writes data accesses to `data` and instruction fetches to `code`. Skips the first `skip` accesses; after `most`
    /// further accesses the stream is full.
    pub fn new(data: Writer, code: Option<Writer>, skip: u64, most: u64) -> Self {
        Self {
            data: Sink::new(data),
            code: code.map(Sink::new),
            shared: SharedState::new(),
            living: HashMap::new(),
            pending_forks: HashMap::new(),
            running: None,
            next: 0,
            skip,
            most,
            seen: Counts::default(),
            events: Vec::new(),
            full: false,
            out_of_numbers: false,
        }
    }

    /// Returns the counts so far.
    pub fn seen(&self) -> &Counts {
        &self.seen
    }

    /// Whether the stream accepts no more records.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether region numbers are exhausted.
    pub fn is_out_of_numbers(&self) -> bool {
        self.out_of_numbers
    }

    /// Processes a frame.
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<(), RecordError> {
        if let Some(count) = frame.instructions {
            *self.seen.instructions.get_or_insert(0) += count;
        }
        if self.full {
            return Ok(());
        }
        match self.apply(frame) {
            Ok(done) => done,
            Err(Full) => {
                (self.full, self.out_of_numbers) = (true, true);
                Ok(())
            }
        }
    }

    /// Finishes the traces. Returns the counts, the totals of the data trace, and the totals of the fetch trace.
    pub fn finish(
        mut self,
        wall: Duration,
    ) -> Result<(Counts, Totals, Option<Totals>), RecordError> {
        // Only the plugin counts instructions, and it sees every access of the run; fault
        // recordings do not.
        if let Some(instructions) = self.seen.instructions {
            let (accesses, nanoseconds) = (self.seen.accesses, wall.as_nanos() as u64);
            let run = Run { instructions, accesses, nanoseconds };
            self.data.writer.ran(run);
            if let Some(code) = &mut self.code {
                code.writer.ran(Run { accesses: self.seen.fetches, ..run });
            }
        }
        self.data.flush()?;
        let data = self.data.writer.finish()?;
        let code = match self.code {
            Some(mut code) => {
                code.flush()?;
                Some(code.writer.finish()?)
            }
            None => None,
        };
        Ok((self.seen, data, code))
    }

    fn apply(&mut self, frame: &Frame<'_>) -> Result<Result<(), RecordError>, Full> {
        match frame.what {
            Message::Start => {
                self.end(frame.pid);
                let space = Space::new(self.number());
                self.event(Event::Spawn(space.process));
                self.running = Some(space.process);
                self.living.insert(frame.pid, space);
            }
            Message::Forked(name) => {
                // An earlier process with this pid ended without an EXIT frame.
                self.end(frame.pid);
                if let Some(space) = self.pending_forks.remove(&name) {
                    self.living.insert(frame.pid, space);
                }
            }
            Message::ForkFailed(name) => {
                if let Some(space) = self.pending_forks.remove(&name) {
                    self.exit(space);
                }
            }
            Message::Exit => self.end(frame.pid),
            Message::Foreign(path) => {
                self.seen.foreign_count += 1;
                if self.seen.foreign.len() < FOREIGN {
                    self.seen.foreign.push(String::from_utf8_lossy(path).into_owned());
                }
            }
            Message::Thread => self.seen.threads += 1,
            Message::Lost(count) => self.seen.lost += count,
            Message::Accesses(words) => return self.accesses(frame.pid, words),
            Message::Fetches(words) => return self.fetches(frame.pid, words),
            ref call => return self.call(frame.pid, call),
        }
        Ok(self.flush_if_long())
    }

    /// Applies a system call to a process's memory.
    fn call(&mut self, pid: u32, call: &Message<'_>) -> Result<Result<(), RecordError>, Full> {
        // The process may have ended although one of its threads still sends frames.
        let Some(space) = self.living.get_mut(&pid) else { return Ok(Ok(())) };
        let (shared, out) = (&mut self.shared, &mut self.events);
        match *call {
            Message::Map(mapped) => {
                let (kind, rights) = kind_of(&mapped, shared);
                let (begin, end) = pages(mapped.span);
                space.map(begin, end, kind, rights, shared, out)?;
            }
            Message::Declared(mapped, heap) => {
                let (kind, rights) = kind_of(&mapped, shared);
                let kind = if heap { Kind::Heap } else { kind };
                let (begin, end) = pages(mapped.span);
                space.declare(begin, end, kind, rights, shared, out)?;
            }
            Message::Unmap(span) => {
                let (begin, end) = pages(span);
                space.unmap(begin, end, out);
            }
            Message::Detach(address) => space.detach(address >> PAGE, out),
            Message::Remap { old, new, keeps_old } => {
                space.remap(pages(old), pages(new), keeps_old, shared, out)?;
            }
            Message::Break(old, new) => {
                let end = |address: u64| address.div_ceil(1 << PAGE);
                space.heap(end(old), end(new), shared, out)?;
            }
            Message::Advise(span, advice) => {
                if let Some(advice) = advice_of(advice) {
                    let (begin, end) = pages(span);
                    space.advise(begin, end, advice, out);
                }
            }
            Message::Protect(span, protection) => {
                let (begin, end) = pages(span);
                space.protect(begin, end, rights_of(protection), shared, out)?;
            }
            Message::Forking(name) => {
                let child = Process(self.next);
                self.next += 1;
                self.seen.processes += 1;
                let copy = space.fork(child, shared, out)?;
                self.pending_forks.insert(name, copy);
            }
            _ => {}
        }
        let process = space.process;
        self.as_process(process);
        for event in std::mem::take(&mut self.events) {
            self.event(event);
        }
        Ok(self.flush_if_long())
    }

    fn accesses(&mut self, pid: u32, words: Words<'_>) -> Result<Result<(), RecordError>, Full> {
        let Some(mut space) = self.living.remove(&pid) else { return Ok(Ok(())) };
        self.as_process(space.process);
        let mut done = Ok(());
        for word in words.iter() {
            self.seen.records += 1;
            self.seen.accesses += u64::from(word.count);
            let mut count = word.count;
            if self.skip > 0 {
                let skipped = self.skip.min(count.into()) as u32;
                self.skip -= u64::from(skipped);
                self.seen.skipped += u64::from(skipped);
                count -= skipped;
            }
            count = self.most.min(count.into()) as u32;
            if count == 0 {
                if self.most == 0 {
                    self.full = true;
                    break;
                }
                continue;
            }
            self.most -= u64::from(count);
            let page = match space.touch(word.page, &mut self.shared, &mut self.events) {
                Ok(page) => page,
                Err(Full) => {
                    (self.full, self.out_of_numbers) = (true, true);
                    break;
                }
            };
            if !self.events.is_empty() {
                for event in std::mem::take(&mut self.events) {
                    self.event(event);
                }
            }
            let access =
                if word.writes { trace::Access::write(page) } else { trace::Access::read(page) };
            self.data.block.accesses.push(access);
            self.data.block.counts.push(count);
            if self.data.block.accesses.len() >= BLOCK {
                done = self.data.flush();
                if done.is_err() {
                    break;
                }
            }
        }
        self.full |= self.most == 0;
        self.living.insert(pid, space);
        Ok(done)
    }

    fn fetches(&mut self, pid: u32, words: Words<'_>) -> Result<Result<(), RecordError>, Full> {
        let Some(mut space) = self.living.remove(&pid) else { return Ok(Ok(())) };
        self.as_process(space.process);
        let (skipping, mut done) = (self.skip, Ok(()));
        // While data accesses are skipped, fetches are skipped too.
        for word in words.iter().take_while(|_| skipping == 0) {
            self.seen.fetches += u64::from(word.count);
            let Ok(page) = space.touch(word.page, &mut self.shared, &mut self.events) else {
                (self.full, self.out_of_numbers) = (true, true);
                break;
            };
            for event in std::mem::take(&mut self.events) {
                self.event(event);
            }
            let Some(code) = &mut self.code else { break };
            code.block.accesses.push(trace::Access::read(page));
            code.block.counts.push(word.count);
            if code.block.accesses.len() >= BLOCK {
                done = code.flush();
                if done.is_err() {
                    break;
                }
            }
        }
        self.living.insert(pid, space);
        Ok(done)
    }

    fn number(&mut self) -> Process {
        let process = Process(self.next);
        self.next += 1;
        self.seen.processes += 1;
        process
    }

    fn end(&mut self, pid: u32) {
        if let Some(space) = self.living.remove(&pid) {
            self.exit(space);
        }
    }

    fn exit(&mut self, space: Space) {
        self.as_process(space.process);
        self.event(Event::Exit(space.process));
        self.running = None;
        space.end(&mut self.shared);
    }

    fn as_process(&mut self, process: Process) {
        if self.running != Some(process) {
            self.running = Some(process);
            self.event(Event::Run(process));
        }
    }

    fn event(&mut self, event: Event) {
        self.seen.mappings += u64::from(matches!(event, Event::Map { .. }));
        if let Some(code) = &mut self.code {
            code.block.event(event.clone());
        }
        self.data.block.event(event);
    }

    fn flush_if_long(&mut self) -> Result<(), RecordError> {
        for sink in std::iter::once(&mut self.data).chain(&mut self.code) {
            if sink.block.events.len() >= BLOCK {
                sink.flush()?;
            }
        }
        Ok(())
    }
}

/// Returns the pages that a byte range overlaps: the first page, and the page after the last.
fn pages(span: Span) -> (u64, u64) {
    (span.begin >> PAGE, (span.begin + span.length).div_ceil(1 << PAGE))
}

fn rights_of(protection: u64) -> Rights {
    // PROT_WRITE is 2, PROT_READ 1, PROT_EXEC 4 (asm-generic/mman-common.h).
    match protection & 7 {
        0 => Rights::None,
        bits if bits & 2 != 0 => Rights::Write,
        _ => Rights::Read,
    }
}

fn kind_of(mapped: &Mapped, shared: &mut SharedState) -> (Kind, Rights) {
    let rights = rights_of(mapped.protection);
    let kind = match (mapped.shared, mapped.file) {
        // A read-only shared file mapping uses the page cache, like a private mapping.
        (true, file) if file != 0 && rights == Rights::Read => Kind::File(file),
        (true, 0) => Kind::Shared(shared.anonymous_id(), 0),
        (true, file) => Kind::Shared(file, mapped.offset >> PAGE),
        (false, 0) => Kind::Anonymous,
        (false, file) => Kind::File(file),
    };
    (kind, rights)
}

fn advice_of(number: u64) -> Option<Advice> {
    // asm-generic/mman-common.h.
    match number {
        4 => Some(Advice::DontNeed),
        8 => Some(Advice::Free),
        14 => Some(Advice::Huge),
        15 => Some(Advice::NoHuge),
        23 => Some(Advice::Populate),
        25 => Some(Advice::Collapse),
        _ => None,
    }
}
