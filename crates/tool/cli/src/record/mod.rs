//! `superpage record`: records a program's page accesses as a trace, without a PMU.

mod summary;

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use launch::{Program, Word};
use record::{Ended, FaultSession, Limits, Progress, Recorded, Recording, Session, Streams, Tools};
use sys::spawn::ChildSetup;
use trace::{Filter, TraceError};

use crate::exit::{self, Done, Failure};
use crate::pool::progress::Watcher;
use operations::{facts, signals};

/// Record a program's page accesses as a trace (.spt).
///
/// The unmodified program runs under qemu-user, with a plugin that is built at first use (Debian: apt-get install
/// qemu-user gcc libc6-dev), and takes 20 to 130 times its CPU time. Child processes are recorded too. Its exit code
/// and signals are passed through, unless a limit ended it. The trace is for `superpage lab` and `superpage trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// Trace to write [default: PROGRAM.spt].
    #[arg(long, short, value_name = "FILE.spt")]
    output: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Accesses to leave out: none, same-page, or set-mru[:BASE,SUPER], which is exact for LRU TLBs
    /// whose number of sets is a multiple of BASE (base pages) and SUPER (superpages) [set-mru: 16,8].
    #[arg(long, value_name = "LEVEL", default_value = "same-page", value_parser = crate::trace::filter)]
    filter: Filter,

    /// Also record instruction fetches, as reads in a second trace, FILE.itlb.spt.
    #[arg(long)]
    instructions: bool,

    /// Record only first touches, at native speed and on base pages, from the kernel's page-fault events
    /// (needs root or CAP_PERFMON, and tracefs). munmap is not recorded: the kernel does not report it.
    #[arg(long, conflicts_with_all = ["filter", "instructions", "no_follow"])]
    faults: bool,

    /// Record the program and its forked children, but no other programs that they execute.
    #[arg(long)]
    no_follow: bool,

    /// Accesses to skip at the beginning.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Limits")]
    skip: u64,

    /// Record this many accesses, then end the program.
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(1..))]
    max_accesses: Option<u64>,

    /// Record for this long (90s, 5m), then end the program.
    #[arg(long, value_name = "TIME", help_heading = "Limits", value_parser = operations::jobs::arms::seconds)]
    max_time: Option<f64>,

    /// First run the program unrecorded, to report the slowdown of recording.
    #[arg(long)]
    native: bool,

    /// Print what would be done; do nothing.
    #[arg(long)]
    dry_run: bool,

    /// Print JSON at the end; the program's output goes to standard error.
    #[arg(long)]
    json: bool,

    /// Do not print progress or a summary.
    #[arg(long, short)]
    quiet: bool,

    /// Program and arguments: everything from the first word that is not an option, or after `--`.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<Word>,
}

const EXIT_CODES: &str = "\
Exit codes: the program's own; 0 if a limit ended it; 2 wrong usage, or a trace that cannot be \
written; 3 not possible on this machine; 126 and 127 if the program cannot be executed or found.";

pub fn run(args: Args) -> Result<Done, Failure> {
    let search = facts::search_path();
    let name = args.command.first().map_or(OsStr::new(""), AsRef::as_ref);
    let program = Program::find(name, &search).map_err(|error| Failure::of_launcher(&error))?;
    let recording = args.recording(&program);
    if args.faults {
        return faults(&args, &recording);
    }
    let cache = operations::predict::cache()?;
    if args.dry_run {
        let tools = Tools::find(&search, &cache)?;
        return summary::plan(&tools, &recording, args.json);
    }
    let tools = Tools::prepare(&search, &cache)?;
    let native = natively(&args, &recording)?;
    let relay = signals::Relay::new()?;
    let session = Session::start(&tools, &recording)?;
    let relaying = relay.to(session.pid());
    let recorded = session.finish(&mut watch(args.quiet));
    relaying.stop();
    report(&args, &recorded?, native)
}

fn faults(args: &Args, recording: &Recording) -> Result<Done, Failure> {
    if args.dry_run {
        return summary::plan_of_faults(recording, args.json);
    }
    let tracing = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(Path::new);
    let native = natively(args, recording)?;
    let relay = signals::Relay::new()?;
    let session = FaultSession::start(recording, &tracing)?;
    let relaying = relay.to(session.pid());
    let recorded = session.finish(&mut watch(args.quiet));
    relaying.stop();
    report(args, &recorded?, native)
}

fn report(args: &Args, recorded: &Recorded, native: Option<Native>) -> Result<Done, Failure> {
    if !args.quiet {
        exit::say(&summary::text(recorded, native));
    }
    if args.json {
        exit::print_json("superpage.record/1", summary::document(recorded, native))?;
    }
    Ok(end(recorded))
}

/// Returns the exit code or signal of the program; success if a limit ended the recording.
fn end(recorded: &Recorded) -> Done {
    match recorded.ended {
        Ended::Accesses | Ended::Time | Ended::Stopped | Ended::Crowded => Done::Fine,
        Ended::Program => recorded.status.into(),
    }
}

fn watch(quiet: bool) -> impl FnMut(Progress) -> ControlFlow<()> {
    let mut watcher = Watcher::of_progress(quiet);
    move |progress| {
        watcher.tick(|| {
            let kept = report::format::percent(progress.records as f64 / progress.accesses as f64);
            format!("recording: {} accesses, {kept} kept", progress.accesses)
        })
    }
}

/// Times of the program in an unrecorded run.
#[derive(Debug, Clone, Copy)]
pub struct Native {
    /// Wall-clock time in seconds.
    pub seconds: f64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
}

/// With --native, times an unrecorded run of the program. Fails first if a trace exists and may not be overwritten.
fn natively(args: &Args, recording: &Recording) -> Result<Option<Native>, Failure> {
    for path in [Some(&recording.output), recording.instructions.as_ref()].into_iter().flatten() {
        if !args.force && path.is_file() {
            return Err(TraceError::Exists { path: path.clone() }.into());
        }
    }
    if !args.native {
        return Ok(None);
    }
    let mut command = Command::new(&recording.program);
    command.args(&args.command[1..]);
    if args.json {
        command.stdout(std::io::stderr());
    }
    // A signal then ends both processes, which loses nothing: no recording has started yet.
    sys::spawn::prepare(
        &mut command,
        ChildSetup { die_with_parent: true, ..ChildSetup::default() },
    );
    let began = Instant::now();
    let failed = |error| Failure::usage(format!("{}: {error}", recording.program.display()));
    let child = command.spawn().map_err(failed)?;
    let (status, usage) =
        sys::wait::reap(units::Pid(child.id() as i32)).map_err(Failure::cannot)?;
    if let Some(signal) = status.signal() {
        exit::say(&format!(
            "without recording, the program was killed by signal {signal}: its native time is unknown"
        ));
        return Ok(None);
    }
    let cpu_seconds = (usage.user + usage.system).as_secs_f64();
    Ok(Some(Native { seconds: began.elapsed().as_secs_f64(), cpu_seconds }))
}

impl Args {
    fn recording(&self, program: &Program) -> Recording {
        let mut name = program.path.file_name().unwrap_or_default().to_os_string();
        name.push(".spt");
        let output = self.output.clone().unwrap_or_else(|| PathBuf::from(name));
        let words = self.command.iter().map(OsString::from).collect();
        let streams = if self.json { Streams::OutputToErrors } else { Streams::Inherit };
        let limits = Limits {
            skip: self.skip,
            accesses: self.max_accesses,
            time: self.max_time.map(Duration::from_secs_f64),
        };
        Recording {
            replace: self.force,
            filter: self.filter,
            instructions: self.instructions.then(|| output.with_extension("itlb.spt")),
            follow: !self.no_follow,
            limits,
            streams,
            ..Recording::new(&program.path, words, &output)
        }
    }
}
