//! Recording of first touches at native speed: the program runs natively on base pages, and the kernel reports every
//! user-mode page fault (tracepoint exceptions:page_fault_user, x86) and every mmap, fork and exec
//! (perf_event_open(2)). The kernel does not report munmap, nor first touches by kernel code on behalf of the program
//! (such as read(2) into fresh memory). See docs/decisions/record.md#3.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sys::perf::{Event, Ring, Target};
use sys::prctl::ThpControl;
use trace::{Filter, Header, Mappings, Writer};
use units::Pid;

use crate::RecordError;
use crate::kernel;
use crate::session::{Child, Ended, Progress, Recorded, Recording, streams};
use crate::stream::Stream;

/// Poll interval for idle rings. A ring of 4 MiB per CPU cannot fill in this time (about 10^6 faults per second, 72
/// bytes each).
const PAUSE: Duration = Duration::from_millis(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Ring sizes in pages, tried in this order.
const PAGES: [usize; 3] = [1024, 128, 16];

/// A running recording of faults: [`FaultSession::start`], then [`FaultSession::finish`].
pub struct FaultSession {
    child: Child,
    began: Instant,
    rings: Vec<Ring>,
    stream: Stream,
    output: PathBuf,
    limit: Option<Duration>,
}

impl FaultSession {
    /// Starts the program. `tracing` lists directories on which tracefs may be mounted.
    pub fn start(recording: &Recording, tracing: &[&Path]) -> Result<Self, RecordError> {
        let event = Event::Tracepoint(tracepoint(tracing)?);
        let words: Vec<_> = recording.arguments.iter().map(|word| word.to_string_lossy()).collect();
        let header = Header {
            filter: Filter::None,
            mappings: Mappings::Recorded,
            creator: format!(
                "superpage {} record --faults (first touches only)",
                env!("CARGO_PKG_VERSION")
            ),
            ..Header::new(&words.join(" "))
        };
        let writer = Writer::create(&recording.output, &header, recording.replace)?;
        let most = recording.limits.accesses.unwrap_or(u64::MAX);
        let stream = Stream::new(writer, None, recording.limits.skip, most);

        // Open the events on this thread. Its children inherit them, and counting starts at the
        // program's exec.
        let mut rings = Vec::new();
        let cpus = sys::affinity::online().map_err(|error| RecordError::NoFaults {
            what: error.to_string(),
            remedy: "record without --faults",
        });
        for cpu in cpus? {
            rings.push(ring(event, cpu)?);
        }
        let mut command = Command::new(&recording.program);
        command.args(recording.arguments.iter().skip(1));
        streams(&mut command, recording.streams);
        let thp = Some(ThpControl::Disabled);
        let began = Instant::now();
        let child = Child::start(&mut command, thp, &recording.program, None)?;
        let (output, limit) = (recording.output.clone(), recording.limits.time);
        Ok(Self { child, began, rings, stream, output, limit })
    }

    /// The program's pid, for sending signals.
    pub fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Records until the program or the recording ends.
    pub fn finish(
        mut self,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Recorded, RecordError> {
        let ended = self.follow(watch)?;
        if ended != Ended::Program {
            self.child.end();
        }
        let (status, instant, cpu) = self.child.reap();
        let wall = instant.duration_since(self.began);
        let (seen, totals, _) = self.stream.finish(wall)?;
        Ok(Recorded { path: self.output, totals, fetches: None, seen, wall, cpu, status, ended })
    }

    fn follow(
        &mut self,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Ended, RecordError> {
        let mut order = kernel::Order::default();
        let mut looked = Instant::now();
        loop {
            // Check this before draining, so that after the program's end the rings are drained once more.
            let over = self.child.has_ended();
            let mut most = 0;
            for ring in &mut self.rings {
                let bytes = ring.drain(|record| order.add(&record));
                most = most.max(bytes * 100 / ring.size());
            }
            for record in order.due(over) {
                kernel::frames(&record, &mut |frame| self.stream.frame(&frame))?;
            }
            if self.stream.is_full() {
                return Ok(if self.stream.is_out_of_numbers() {
                    Ended::Crowded
                } else {
                    Ended::Accesses
                });
            }
            if over {
                return Ok(Ended::Program);
            }
            if looked.elapsed() >= POLL_INTERVAL {
                looked = Instant::now();
                if self.limit.is_some_and(|limit| self.began.elapsed() >= limit) {
                    return Ok(Ended::Time);
                }
                let seen = self.stream.seen();
                let progress = Progress { accesses: seen.accesses, records: seen.records };
                if watch(progress).is_break() {
                    return Ok(Ended::Stopped);
                }
            }
            if most < 10 {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn ring(event: Event, cpu: u32) -> Result<Ring, RecordError> {
    let mut refused = None;
    for pages in PAGES {
        match Ring::open(event, Target::Children, cpu, pages) {
            Ok(ring) => return Ok(ring),
            Err(error) => refused = Some(error),
        }
    }
    let what = refused.map_or(String::new(), |error| error.to_string());
    let remedy = "run as root, or with CAP_PERFMON, or set kernel.perf_event_paranoid to -1";
    Err(RecordError::NoFaults { what, remedy })
}

/// Whether tracefs is mounted on one of these directories.
fn is_mounted(tracing: &[&Path]) -> bool {
    tracing.iter().any(|root| root.join("events").exists())
}

/// The id of the tracepoint of user-mode page faults.
fn tracepoint(tracing: &[&Path]) -> Result<u64, RecordError> {
    let mut denied = None;
    for root in tracing {
        let directory = root.join("events/exceptions/page_fault_user");
        let read = |name| std::fs::read_to_string(directory.join(name));
        match read("id").and_then(|id| Ok((id, read("format")?))) {
            Ok((id, format)) => {
                let known = format.contains("address;\toffset:8;")
                    && format.contains("error_code;\toffset:24;");
                let number = id.trim().parse().ok().filter(|_| known);
                return number.ok_or_else(|| RecordError::NoFaults {
                    what: format!("{} has another form than is known", directory.display()),
                    remedy: "record without --faults",
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                denied = Some(format!("{}: {error}", directory.display()));
            }
            Err(_) => {}
        }
    }
    Err(match denied {
        Some(what) => RecordError::NoFaults { what, remedy: "run as root" },
        None if !is_mounted(tracing) => RecordError::NoFaults {
            what: "no tracefs is mounted".to_string(),
            remedy: "as root: mount -t tracefs tracefs /sys/kernel/tracing",
        },
        None => RecordError::NoFaults {
            what: "this kernel has no tracepoint exceptions:page_fault_user (CONFIG_TRACEPOINTS)"
                .to_string(),
            remedy: "record without --faults",
        },
    })
}
