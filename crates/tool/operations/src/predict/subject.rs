//! `Subject`: a program or workload to predict, and the source of its accesses.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use ::workload::{Settings, Workload};
use launch::Word;
use prediction::{Demand, demand_of};
use record::{Recording, Session, Streams, Tools};
use sys::scratch::Scratch;
use workload_streams::Setup;

use super::whole;
use crate::Failure;
use crate::reporter::{Progress, say};
use crate::{facts, signals};

/// A program or workload to predict.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A built-in workload. Its own code generates the stream of accesses.
    Workload(Workload, Settings),
    /// A program whose accesses are recorded.
    Program(Vec<Word>),
}

/// The memory demand of a subject.
pub struct SubjectDemand {
    /// Number of accesses, by distance.
    pub demand: Demand,
    /// Number of instructions, if counted.
    pub instructions: Option<f64>,
    /// Source of the accesses, as text.
    pub source: String,
    /// Limitations of the recording.
    pub notes: Vec<String>,
}

impl Subject {
    /// Returns the name of the subject.
    pub fn name(&self) -> String {
        match self {
            Self::Workload(workload, _) => workload.to_string(),
            Self::Program(command) => {
                let file = Path::new(&command[0]).file_name();
                file.unwrap_or(command[0].as_ref()).display().to_string()
            }
        }
    }

    /// Returns the command that starts the subject.
    pub fn command(&self) -> Result<Vec<Word>, Failure> {
        match self {
            Self::Workload(workload, settings) => crate::workloads::command(*workload, settings),
            Self::Program(command) => Ok(command.clone()),
        }
    }

    /// Records or generates the accesses; for a workload, only those of its timed phase.
    pub fn demand(&self, quiet: bool) -> Result<SubjectDemand, Failure> {
        match self {
            Self::Workload(workload, settings) => of_workload(*workload, settings, quiet),
            Self::Program(command) => {
                let followed = record(command, Streams::Errors, false, quiet)?;
                if !followed.status.success() {
                    let status = followed.status;
                    let what = format!("{}: failed while it was recorded: {status}", self.name());
                    return Err(Failure::usage(what));
                }
                Ok(followed.asked)
            }
        }
    }
}

fn of_workload(
    workload: Workload,
    settings: &Settings,
    quiet: bool,
) -> Result<SubjectDemand, Failure> {
    let mut setup: Setup = workload.to_string().parse().map_err(Failure::usage)?;
    setup.size = Some(settings.size);
    setup.seed = settings.seed;
    setup.threads = Some(settings.threads.get().min(usize::from(u16::MAX)) as u16);
    setup.operations = settings.options.operations;
    setup.lines = settings.options.lines;
    setup.graph = settings.options.graph;
    setup.iterations = settings.options.iterations.or(settings.options.repeat);
    if workload == Workload::Gups {
        setup.operations = Some(::workload::gups::Plan::new(settings).updates);
        setup.weight = Some(1);
    }
    // All iterations make the same accesses: generate few, and multiply.
    let mut times = 1.0;
    if matches!(workload, Workload::Pagerank | Workload::Stream) {
        let of = match workload {
            Workload::Pagerank => ::workload::pagerank::Plan::new(settings).iterations,
            _ => ::workload::stream::Plan::new(settings).iterations,
        };
        setup.iterations = Some(of.min(2));
        times = f64::from(of) / f64::from(of.min(2));
    }
    let (_, mut stream) = setup.build().map_err(Failure::usage)?;
    let mut progress = Progress::of_pass(quiet, "following the workload's accesses");
    let Ok(phases) = demand_of(stream.as_mut());
    progress.clear();
    let timed = if workload == Workload::Touch { "touch" } else { "run" };
    let mut demand = match phases.iter().find(|(name, _)| name == timed) {
        Some((_, demand)) => demand.clone(),
        None => whole(phases),
    };
    demand.scale(times);
    if workload == Workload::Btree {
        demand.lines_per_use = ::workload::btree::LINES_PER_BLOCK;
    }
    let source = "the workload's own stream of accesses".to_string();
    // Vectorised STREAM executes a load or a store, and at most one operation, for every two elements (SSE2, the
    // minimum of x86-64 and AArch64).
    let instructions = (workload == Workload::Stream).then_some(demand.accesses * 0.75);
    Ok(SubjectDemand { demand, instructions, source, notes: Vec::new() })
}

/// Records a program and analyses the recording; `streams` are the program's standard streams. With `fetches`,
/// instruction fetches are analysed as a separate stream.
pub fn record(
    command: &[Word],
    streams: Streams,
    fetches: bool,
    quiet: bool,
) -> Result<Followed, Failure> {
    let directory = Scratch::new(None)
        .map_err(|error| Failure::usage(format!("a directory for the recording: {error}")))?;
    let path = directory.path().join("program.spt");
    let search = facts::search_path();
    let program = launch::Program::find(&command[0], &search)
        .map_err(|error| Failure::of_launcher(&error))?;
    let words = command.iter().map(OsString::from).collect();
    let recording = Recording {
        streams,
        instructions: fetches.then(|| directory.path().join("program.itlb.spt")),
        ..Recording::new(&program.path, words, &path)
    };
    let tools = Tools::prepare(&search, &cache()?)?;
    if !quiet {
        say("recording the program under QEMU, which takes 20 to 130 times its CPU time");
    }
    let relay = signals::Relay::new()?;
    let session = Session::start(&tools, &recording)?;
    let relaying = relay.to(session.pid());
    let mut progress = Progress::new(quiet, "recording the program's accesses");
    let recorded = session.finish(&mut |so_far| {
        let what = || format!("recording the program: {} M accesses", so_far.accesses / 1_000_000);
        progress.tell(so_far.accesses, None, what);
        ControlFlow::Continue(())
    });
    progress.clear();
    let asked_to_end = relaying.stop();
    // Whatever the program did of the signal, the recording may be incomplete, and analysing it takes long.
    if let Some(signal) = asked_to_end {
        return Err(Failure::interrupted(signal, "the recording"));
    }
    let recorded = recorded?;
    let instructions = recorded.seen.instructions.map(|count| count as f64);
    let mut asked = of_trace(&path, instructions, quiet)?;
    if recorded.seen.foreign_count > 0 {
        let programs = recorded.seen.foreign_count;
        asked.notes.push(format!("{programs} programs that it executed were not recorded"));
    }
    let fetches = match &recorded.fetches {
        Some((path, _)) => Some(of_trace(path, None, quiet)?.demand),
        None => None,
    };
    Ok(Followed { asked, fetches, status: recorded.status })
}

/// A recorded and analysed program.
pub struct Followed {
    /// Loads and stores.
    pub asked: SubjectDemand,
    /// Instruction fetches.
    pub fetches: Option<Demand>,
    /// Exit status.
    pub status: ExitStatus,
}

fn of_trace(path: &Path, instructions: Option<f64>, quiet: bool) -> Result<SubjectDemand, Failure> {
    let mut reader = crate::traces::open(path).map_err(Failure::usage)?;
    let mut progress = Progress::of_pass(quiet, "following the recorded accesses");
    let phases = demand_of(&mut reader);
    progress.clear();
    let demand = whole(phases.map_err(Failure::usage)?);
    let source = "a recording of its accesses".to_string();
    Ok(SubjectDemand { demand, instructions, source, notes: Vec::new() })
}

/// Root's cache directory, if HOME is another user's (sudo may keep HOME).
const ROOT_CACHE: &str = "/var/cache";

/// Returns the directory of the plugin: $XDG_CACHE_HOME/superpage, or ~/.cache/superpage (XDG Base Directory
/// Specification: relative paths are ignored).
pub fn cache() -> Result<PathBuf, Failure> {
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let is_root = sys::param::effective_user() == 0;
    let base = base.map(|base| match is_root && sys::trust::check(&base).is_err() {
        true => PathBuf::from(ROOT_CACHE),
        false => base,
    });
    base.map(|base| base.join("superpage")).ok_or_else(|| {
        Failure::cannot(
            "no cache directory for the recorder's plugin: set XDG_CACHE_HOME or HOME to a directory",
        )
    })
}
