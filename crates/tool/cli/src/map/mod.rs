//! `superpage map`: the memory of running processes, where it is on superpages, and why the rest is not.

mod launched;
mod picture;
mod table;
mod words;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::advise::Remedy;
use host::{Root, Unknown};
use launch::Word;
use operations::jobs::arms::time;
use operations::reporter::Progress;
use serde::Serialize;
use services::map::{CgroupMemory, ExplainedExtent, Options, ProcessMap};
use services::why::{Machine, Reason};
use services::{Process, Selected, SpaceError, Target};

use crate::exit::{self, Done, Failure};
use crate::files;
use crate::targets::{self, ProcessArgs};

/// Show which memory of running processes is on superpages, and why the rest is not.
///
/// Nothing is written to the processes. A system call reads the page tables of at most 64 MiB of pages; between two calls
/// the process can map and unmap memory.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    #[command(flatten)]
    processes: ProcessArgs,

    /// Start a program, and map it and the processes that it started: after --after, or when it stops itself (SIGSTOP).
    #[arg(last = true, value_name = "PROGRAM", help_heading = "Program")]
    command: Vec<Word>,

    /// With a program: time from its start to the map.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time, help_heading = "Program")]
    after: Duration,

    /// Read smaps too: the advice of each mapping, mlock and userfaultfd. The kernel holds the process's mmap lock while
    /// it walks a mapping.
    #[arg(long, help_heading = "Reading")]
    smaps: bool,

    /// Longest time that --smaps may hold the lock. If the estimate is longer, smaps is not read.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = time, help_heading = "Reading")]
    budget: Duration,

    /// Estimate the zero-filled memory of superpages: read 512 base pages of the process's memory (about 1 ms).
    #[arg(long, help_heading = "Reading")]
    waste: bool,

    /// Estimate the sizes of folios below a superpage (mTHP): look up 512 pages in /proc/kpageflags (root; up to 60
    /// ms).
    #[arg(long, help_heading = "Reading")]
    folios: bool,

    /// Seed of the samples of --waste and --folios.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Reading")]
    seed: u64,

    /// Show every mapping, and every process.
    #[arg(long, help_heading = "Output")]
    all: bool,

    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Write a page with a heat map of one process to FILE.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Write the heat map of one process to FILE.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long, help_heading = "Output")]
    force: bool,
}

const AFTER: &str = "\
With a program, the table goes to standard error, because standard output belongs to the program. A program that \
stopped itself is continued after the map.

Exit codes: 0 success; 1 --smaps would hold the lock longer than --budget, or did; 2 wrong usage, or the process ended; 3 no permission to \
read the process, or not possible on this machine. With a program: its own code, or 125, 126, 127 if it cannot be started.";

const OWNER_ONLY: &str = "page tables may be read by the owner and root (CAP_SYS_PTRACE) only";

/// Rows of the table without --all.
const ROWS: usize = 12;

pub fn run(args: Args) -> Result<Done, Failure> {
    let targets = args.processes.targets();
    args.check_outputs()?;
    match (targets.is_empty(), args.command.as_slice()) {
        (true, []) => Err(Failure::usage(
            "no process named; give PID, --cgroup, --unit, --match, or -- PROGRAM",
        )),
        (true, command) => launched::run(command, &args),
        (false, []) => {
            let found = Found::read(&Root::real(), &targets, &args)?;
            found.deliver(&args, false)?;
            // --smaps was given, and reading would exceed the budget, or exceeded it.
            Ok(match table::over_budget(&found.maps) {
                Some(line) => {
                    exit::say(&line);
                    Done::Negative
                }
                None => Done::Fine,
            })
        }
        (false, _) => Err(Failure::usage("give processes or -- PROGRAM, not both")),
    }
}

impl Args {
    /// Fails before anything is read if two outputs would be one.
    fn check_outputs(&self) -> Result<(), Failure> {
        // With a program the table goes to standard error.
        let printed = self.output.is_none() && (self.command.is_empty() || self.json);
        let table = printed.then_some(("the table", Path::new("-")));
        let result = self.output.as_deref().map(|path| ("--output", path)).or(table);
        let html = self.html.as_deref().map(|path| ("--html", path));
        let svg = self.svg.as_deref().map(|path| ("--svg", path));
        let outputs: Vec<(&str, &Path)> = [result, html, svg].into_iter().flatten().collect();
        files::check_distinct(&outputs, self.force)
    }

    fn options(&self) -> Options {
        Options {
            smaps: self.smaps.then_some(self.budget),
            waste: self.waste.then_some(host::waste::DEFAULT_SAMPLES),
            folios: self.folios.then_some(host::folios::DEFAULT_SAMPLES),
            seed: self.seed,
        }
    }
}

/// Everything that is shown.
struct Found {
    machine: Machine,
    cgroups: Vec<CgroupMemory>,
    maps: Vec<ProcessMap>,
    /// What would give each process superpages; empty if nothing of it could be on them.
    remedies: Vec<Vec<Remedy>>,
    /// Processes that ended before they were read.
    ended: usize,
    unknown: Vec<Unknown>,
}

impl Found {
    fn read(root: &Root, targets: &[Target], args: &Args) -> Result<Self, Failure> {
        let selected = targets::select(root, targets)?;
        let mut found = Self::of(root, &selected, args)?;
        for target in targets {
            let path = target.cgroup(&selected.processes);
            match path.map(|path| CgroupMemory::read(root, &path)) {
                None => {}
                Some(Ok(memory)) => found.cgroups.push(memory),
                Some(Err(error)) => found
                    .unknown
                    .push(Unknown { what: "memory.stat".to_string(), why: error.to_string() }),
            }
        }
        Ok(found)
    }

    fn of(root: &Root, selected: &Selected, args: &Args) -> Result<Self, Failure> {
        let (options, several) = (args.options(), selected.processes.len() > 1);
        if several && (args.html.is_some() || args.svg.is_some()) {
            return Err(Failure::usage(format!(
                "--html and --svg draw one process, and {} are selected; give one pid",
                selected.processes.len()
            )));
        }
        let superpage = host::Thp::pmd_size_of(root).map_err(Failure::from)?;
        let mut found = Self {
            machine: Machine::read(root, superpage),
            cgroups: Vec::new(),
            maps: Vec::new(),
            remedies: Vec::new(),
            ended: 0,
            unknown: selected.unknown.clone(),
        };
        let mut denied = 0;
        let mut progress = Progress::of_pass(false, "reading memory");
        let all = selected.processes.len() as u64;
        for (index, process) in selected.processes.iter().enumerate() {
            progress.tell(index as u64, Some(all), || format!("pid {}", process.pid));
            match ProcessMap::read(root, process, &options) {
                Ok(mut map) => {
                    found.remedies.push(remedies(root, &map));
                    // Mappings of the only process that could be read are shown; of several, with --all.
                    if !args.all
                        && let Some(first) = found.maps.first_mut()
                    {
                        first.extents = Vec::new();
                        map.extents = Vec::new();
                    }
                    if args.html.is_none() && args.svg.is_none() {
                        map.extents.iter_mut().for_each(|extent| extent.blocks = Vec::new());
                    }
                    found.maps.push(map);
                }
                Err(error) if !several => return Err(unread(root, process, error)),
                Err(SpaceError::NoScan) => return Err(Failure::cannot(SpaceError::NoScan)),
                Err(SpaceError::Ended) => found.ended += 1,
                Err(SpaceError::Denied(_)) => denied += 1,
                Err(error) => {
                    let what = format!("pid {}", process.pid);
                    found.unknown.push(Unknown { what, why: error.to_string() });
                }
            }
        }
        progress.clear();
        if denied > 0 {
            let (what, why) = (processes(denied), OWNER_ONLY.to_string());
            found.unknown.push(Unknown { what, why });
        }
        if found.maps.is_empty() {
            return Err(match found.unknown.first() {
                Some(unknown) => {
                    Failure::cannot(format!("none of {all} processes could be read; {unknown}"))
                }
                None => Failure::usage(format!("all {all} processes ended before they were read")),
            });
        }
        Ok(found)
    }

    /// Writes what was asked for. `aside`: a table goes to standard error.
    fn deliver(&self, args: &Args, aside: bool) -> Result<(), Failure> {
        if let [map] = self.maps.as_slice() {
            if let Some(path) = &args.html {
                files::write(path, args.force, picture::page(map, &self.machine))?;
            }
            if let Some(path) = &args.svg {
                files::write(path, args.force, picture::svg(map))?;
            }
        }
        let text = match files::is_json(args.json, args.output.as_deref()) {
            true => self.json(args)?,
            false => self.text(args),
        };
        match &args.output {
            None if aside && !args.json => exit::print_aside(&text),
            None => exit::print(&text)?,
            Some(path) => files::write(path, args.force, text)?,
        }
        Ok(())
    }

    fn text(&self, args: &Args) -> String {
        let most = (!args.all).then_some(ROWS);
        let mut text: String = self.cgroups.iter().map(table::cgroup).collect();
        match self.maps.as_slice() {
            [map] => {
                text += &table::process(map, &self.machine, most);
                text += &self.remedies.first().map_or(String::new(), |all| table::remedies(all));
            }
            maps => {
                text += &table::processes(maps, most);
                let each = maps.iter().filter(|_| args.all);
                for map in each {
                    text += &format!("\n{}", table::process(map, &self.machine, None));
                }
            }
        }
        if self.machine.tells_zero_page == Some(false) {
            text += "this kernel reports the huge zero page as a superpage: superpages are an upper bound\n";
        }
        if self.ended > 0 {
            text += &format!("{} ended before being read\n", processes(self.ended));
        }
        for unknown in self.unknown.iter().take(ROWS) {
            let why = report::format::name(&unknown.why, 160);
            text += &format!("unknown: {}: {why}\n", unknown.what);
        }
        if self.unknown.len() > ROWS {
            text += &format!("unknown: {} more\n", self.unknown.len() - ROWS);
        }
        text
    }

    fn json(&self, args: &Args) -> Result<String, Failure> {
        // Mappings of several processes were not kept.
        let has_extents = self.maps.len() <= 1 || args.all;
        let each = |(map, remedies)| One {
            map,
            remedies,
            coverage: ProcessMap::coverage(map),
            extents: has_extents.then_some(map.extents.as_slice()),
        };
        exit::to_json(&Document {
            schema: "superpage.map/1",
            machine: &self.machine,
            cgroups: &self.cgroups,
            processes: self
                .maps
                .iter()
                .zip(self.remedies.iter().map(Vec::as_slice))
                .map(each)
                .collect(),
            ended: self.ended,
            unknown: &self.unknown,
        })
    }
}

/// The JSON document. A value of `serde_json` would take 0.8 GB for 100,000 mappings.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    machine: &'a Machine,
    cgroups: &'a [CgroupMemory],
    processes: Vec<One<'a>>,
    ended: usize,
    unknown: &'a [Unknown],
}

/// A process in the document.
#[derive(Serialize)]
struct One<'a> {
    #[serde(flatten)]
    map: &'a ProcessMap,
    remedies: &'a [Remedy],
    coverage: Option<f64>,
    extents: Option<&'a [ExplainedExtent]>,
}

/// What gives this program superpages for good, if advice or a setting of the program is what its memory lacks.
fn remedies(root: &Root, map: &ProcessMap) -> Vec<Remedy> {
    let helps = |reason| {
        matches!(
            reason,
            Reason::NotAdvised
                | Reason::AdviceUnknown
                | Reason::OffForProcess
                | Reason::SharedOff { .. }
                | Reason::SharedNotAdvised { .. }
                | Reason::SharedAdviceUnknown { .. }
        )
    };
    match map.largest_gap() {
        Some(gap) if helps(gap.reason) => {
            let names = map.extents.iter().map(|extent| extent.mapping.name.as_str());
            ::advise::remedies_of(root, &map.process, names)
        }
        _ => Vec::new(),
    }
}

fn unread(root: &Root, process: &Process, error: SpaceError) -> Failure {
    let what = format!("pid {} ({})", process.pid, report::format::name(&process.name, 20));
    match error {
        SpaceError::Ended | SpaceError::Executes => Failure::usage(format!("{what}: {error}")),
        SpaceError::Denied(_) => {
            // Every user may read the resident size.
            let counted = host::process::status(root, process.pid).ok();
            let total = counted.and_then(|counted| counted.total());
            let resident = report::format::known(total, |bytes| bytes.to_string());
            Failure::cannot(format!("{what}: {resident} resident; {OWNER_ONLY}"))
        }
        error => Failure::cannot(format!("{what}: {error}")),
    }
}

fn processes(count: usize) -> String {
    report::format::counted(count, "process", "processes")
}
