//! One recording: starts QEMU with the plugin, reads frames until the program ends, and finishes the trace.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use sys::guard::{self, Guarded};
use sys::prctl::ThpControl;
use sys::scratch::Scratch;
use sys::spawn::ChildSetup;
use trace::{Filter, Header, Mappings, MruSets, Totals, Writer};
use units::Pid;

use crate::plugin::Tools;
use crate::program::Program;
use crate::stream::{Counts, Stream};
use crate::{RecordError, wire};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Options of a recording.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The program's file.
    pub program: PathBuf,
    /// The program's name and its arguments.
    pub arguments: Vec<OsString>,
    /// Path of the trace.
    pub output: PathBuf,
    /// Whether to replace an existing trace.
    pub replace: bool,
    /// Which accesses to omit.
    pub filter: Filter,
    /// Path of a second trace, of instruction fetches.
    pub instructions: Option<PathBuf>,
    /// Whether to record programs that the program executes.
    pub follow: bool,
    /// Where the recording starts and ends.
    pub limits: Limits,
    /// The program's standard streams.
    pub streams: Streams,
}

/// The program's standard streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Inherited.
    Inherit,
    /// Inherited, with standard output redirected to standard error, because superpage itself prints a document to
    /// standard output.
    OutputToErrors,
    /// No input, output discarded, standard error inherited.
    Errors,
}

/// Where a recording starts and ends. The program is terminated at a limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Number of accesses to skip at the beginning.
    pub skip: u64,
    /// Number of accesses to record; `None`: unlimited.
    pub accesses: Option<u64>,
    /// Time to record for; `None`: unlimited.
    pub time: Option<Duration>,
}

impl Recording {
    /// Sets the defaults: same-page filter (exact for every TLB), and recording until the program
    /// ends.
    pub fn new(program: &Path, arguments: Vec<OsString>, output: &Path) -> Self {
        Self {
            program: program.to_path_buf(),
            arguments,
            output: output.to_path_buf(),
            replace: false,
            filter: Filter::SamePage,
            instructions: None,
            follow: true,
            limits: Limits::default(),
            streams: Streams::Inherit,
        }
    }
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The program ended.
    Program,
    /// The requested number of accesses has been recorded.
    Accesses,
    /// The time limit was reached.
    Time,
    /// The `watch` callback stopped the recording.
    Stopped,
    /// The program maps more regions than can be numbered.
    Crowded,
}

/// Progress of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of accesses recorded so far.
    pub accesses: u64,
    /// Number of records written so far.
    pub records: u64,
}

/// A finished recording.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Path of the trace.
    pub path: PathBuf,
    /// Totals of the trace.
    pub totals: Totals,
    /// Path and totals of the trace of instruction fetches.
    pub fetches: Option<(PathBuf, Totals)>,
    /// Counts, including accesses that are not in the trace.
    pub seen: Counts,
    /// Time from the program's start to its end.
    pub wall: Duration,
    /// CPU time of the program and of the children it waited for. Excludes the recorder's own CPU
    /// time.
    pub cpu: Duration,
    /// The program's exit status.
    pub status: ExitStatus,
    /// Why the recording ended.
    pub ended: Ended,
}

/// A running recording: [`Session::start`], then [`Session::finish`]. A session that is dropped before `finish` leaves
/// no trace file.
pub struct Session {
    child: Child,
    began: Instant,
    socket: UnixDatagram,
    _scratch: Scratch,
    stream: Stream,
    recording: Recording,
    tools: Tools,
}

impl Session {
    /// Starts the program.
    pub fn start(tools: &Tools, recording: &Recording) -> Result<Self, RecordError> {
        let program = Program::from_path(&recording.program, recording.arguments.clone())?;
        let data =
            Writer::create(&recording.output, &header(tools, recording, false), recording.replace)?;
        let code = recording
            .instructions
            .as_ref()
            .map(|path| Writer::create(path, &header(tools, recording, true), recording.replace));
        let most = recording.limits.accesses.unwrap_or(u64::MAX);
        let stream = Stream::new(data, code.transpose()?, recording.limits.skip, most);

        let scratch = Scratch::new(None).map_err(|error| {
            RecordError::io(&std::env::temp_dir(), "cannot create a directory there", error)
        })?;
        let path = scratch.path().join("frames");
        let socket = UnixDatagram::bind(&path);
        let socket =
            socket.map_err(|error| RecordError::io(&path, "cannot create a socket", error))?;

        let mut command = Command::new(&tools.qemu);
        command.arg("-plugin").arg(options(tools, recording, &path));
        let [name, arguments @ ..] = program.arguments.as_slice() else {
            let what = std::io::Error::from(ErrorKind::InvalidInput);
            return Err(RecordError::io(&recording.program, "has no name to be called by", what));
        };
        command.arg("-0").arg(name).arg(&program.file).args(arguments);
        streams(&mut command, recording.streams);
        let began = Instant::now();
        let child = Child::start(&mut command, None, &tools.qemu, Some(path))?;
        let (recording, tools) = (recording.clone(), tools.clone());
        Ok(Self { child, began, socket, _scratch: scratch, stream, recording, tools })
    }

    /// The program's pid, for sending signals. [`Session::finish`] reaps it.
    pub fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Records until the program or the recording ends. Calls `watch` with the progress at intervals. If `watch` stops
    /// the recording, the trace is complete up to that point.
    pub fn finish(
        mut self,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Recorded, RecordError> {
        let ended = self.frames(watch);
        let program_ended = matches!(ended, Ok(Ended::Program));
        if !program_ended {
            // Close the socket, so that the plugin stops sending and does not block.
            let (gone, _) = UnixDatagram::pair().map_err(|error| {
                RecordError::io(&self.tools.qemu, "its socket cannot be closed", error)
            })?;
            drop(std::mem::replace(&mut self.socket, gone));
            self.child.end();
        }
        let (status, instant, cpu) = self.child.reap();
        let wall = instant.duration_since(self.began);
        let ended = ended?;
        if self.stream.seen().processes == 0 {
            let (path, status) = (self.recording.program.clone(), status.to_string());
            return Err(RecordError::Silent { path, status });
        }
        let (seen, totals, code) = self.stream.finish(wall)?;
        let fetches = self.recording.instructions.take().zip(code);
        let path = self.recording.output.clone();
        Ok(Recorded { path, totals, fetches, seen, wall, cpu, status, ended })
    }

    fn frames(
        &mut self,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Ended, RecordError> {
        let heard =
            |error| RecordError::io(Path::new("the recorder's socket"), "cannot be read", error);
        self.socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(heard)?;
        let mut frame = vec![0; wire::MAX_FRAME];
        let mut looked = Instant::now();
        loop {
            match self.socket.recv(&mut frame) {
                // An empty datagram means that the program has ended. Its last frames were queued
                // before.
                Ok(0) => break,
                Ok(length) => self.frame(&frame[..length])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(heard(error)),
            }
            if self.stream.is_full() {
                return Ok(if self.stream.is_out_of_numbers() {
                    Ended::Crowded
                } else {
                    Ended::Accesses
                });
            }
            if looked.elapsed() >= POLL_INTERVAL {
                looked = Instant::now();
                if self.recording.limits.time.is_some_and(|time| self.began.elapsed() >= time) {
                    return Ok(Ended::Time);
                }
                let Counts { accesses, records, .. } = *self.stream.seen();
                if watch(Progress { accesses, records }).is_break() {
                    return Ok(Ended::Stopped);
                }
            }
        }
        self.socket.set_nonblocking(true).map_err(heard)?;
        // Read for a limited time, because processes that outlive the program continue to send.
        while let Ok(length) = self.socket.recv(&mut frame)
            && length > 0
            && looked.elapsed() < GRACE
        {
            self.frame(&frame[..length])?;
        }
        Ok(Ended::Program)
    }

    fn frame(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let plugin = &self.tools.plugin;
        let garbled = |what| RecordError::Garbled { what, plugin: plugin.clone() };
        let frame = wire::read(bytes).map_err(garbled)?;
        self.stream.frame(&frame)
    }
}

/// The program's process under a guard: when we exit or are killed, the program and its descendants are killed too. If
/// dropped before `reap`, the program is killed.
pub(crate) struct Child {
    pub pid: Pid,
    guard: Pid,
    /// The thread that waits for the program's end, and returns the time of the end.
    waiter: Option<JoinHandle<Instant>>,
}

impl Child {
    /// Starts the program, and a thread that waits for the program's end and then sends an empty datagram to the socket
    /// `wake`.
    pub fn start(
        command: &mut Command,
        thp: Option<ThpControl>,
        program: &Path,
        wake: Option<PathBuf>,
    ) -> Result<Self, RecordError> {
        let setup = ChildSetup { thp, ..ChildSetup::default() };
        let started = guard::spawn(command, |command| sys::spawn::prepare(command, setup));
        let Guarded { guard, program: pid } =
            started.map_err(|error| RecordError::io(program, "cannot be started", error))?;
        let wait = move || {
            let _ = sys::wait::until_exit(guard);
            let ended = Instant::now();
            if let Some(path) = wake {
                // The socket may be closed already.
                let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(&[], path));
            }
            ended
        };
        let waiter = Builder::new().spawn(wait).map_err(|error| {
            let _ = sys::signal::send(guard, libc::SIGKILL);
            RecordError::io(program, "cannot be waited for by a thread", error)
        })?;
        Ok(Self { pid, guard, waiter: Some(waiter) })
    }

    /// Whether the program has ended.
    pub fn has_ended(&self) -> bool {
        self.waiter.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends SIGTERM; after a grace period, sends SIGKILL.
    pub fn end(&self) {
        let _ = sys::signal::send(self.pid, libc::SIGTERM);
        let asked = Instant::now();
        while !self.has_ended() && asked.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.has_ended() {
            let _ = sys::signal::send(self.pid, libc::SIGKILL);
        }
    }

    /// Waits for the program's end. Returns the exit status, the time of the end, and the CPU time.
    pub fn reap(&mut self) -> (ExitStatus, Instant, Duration) {
        let ended = self.waiter.take().and_then(|waiter| waiter.join().ok());
        let (status, cpu) = match sys::wait::reap(self.guard) {
            Ok((status, usage)) => (status, usage.user + usage.system),
            // Another part of this process has reaped the child.
            Err(_) => (ExitStatus::from_raw(0), Duration::ZERO),
        };
        (status, ended.unwrap_or_else(Instant::now), cpu)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.waiter.is_some() {
            let _ = sys::signal::send(self.pid, libc::SIGKILL);
            self.reap();
        }
    }
}

/// Records a program: [`Session::start`] and [`Session::finish`].
pub fn record(
    tools: &Tools,
    recording: &Recording,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Recorded, RecordError> {
    Session::start(tools, recording)?.finish(watch)
}

/// Sets the program's standard streams.
pub(crate) fn streams(command: &mut Command, streams: Streams) {
    match streams {
        Streams::Inherit => {}
        Streams::OutputToErrors => {
            command.stdout(std::io::stderr());
        }
        Streams::Errors => {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn header(tools: &Tools, recording: &Recording, fetches: bool) -> Header {
    let what = if fetches { " --instructions, the fetches" } else { "" };
    let words: Vec<_> = recording.arguments.iter().map(|word| word.to_string_lossy()).collect();
    Header {
        filter: if fetches { Filter::SamePage } else { recording.filter },
        mappings: Mappings::Recorded,
        creator: format!(
            "superpage {} record{what} (qemu-user {})",
            env!("CARGO_PKG_VERSION"),
            tools.number()
        ),
        ..Header::new(&words.join(" "))
    }
}

/// The plugin's path and options. QEMU separates options by commas; a double comma stands for one
/// comma.
fn options(tools: &Tools, recording: &Recording, socket: &Path) -> OsString {
    let MruSets { base, superpage } = match recording.filter {
        Filter::SetMru(sets) => sets,
        _ => MruSets { base: 0, superpage: 0 },
    };
    let escaped = |path: &Path| path.to_string_lossy().replace(',', ",,");
    let (fetches, follow) =
        (u8::from(recording.instructions.is_some()), u8::from(recording.follow));
    let every = u8::from(recording.filter == Filter::None);
    format!(
        "{},socket={},base={base},superpage={superpage},every={every},fetches={fetches},follow={follow}",
        escaped(&tools.plugin),
        escaped(socket)
    )
    .into()
}
