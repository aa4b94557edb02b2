//! `superpage advise`: the gain of superpages for running processes, estimated without changing them.

mod merge;
pub mod words;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ::advise::{Advice, AdviceError, Costs, Failed, Group, Node};
use experiment::prices::{PricesError, Samples, one_stream};
use host::{Root, Snapshot};
use prediction::{Near, Prices, Sequential};
use serde::{Deserialize, Serialize};
use services::{Process, Target};
use units::ByteSize;

use crate::exit::{self, Done, Failure};
use crate::files;
use crate::progress::Progress;
use crate::targets::{self, ProcessArgs};
use operations::facts;

/// Estimate the gain of superpages for running processes, where it is, and how to get it.
///
/// Samples the memory accesses of each process (--for), and computes from the samples and from this machine's prices of
/// accesses how much faster the process would be on superpages. Nothing is written to the process or to the machine.
/// Sample the processes under their usual load.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    processes: ProcessArgs,

    /// Seconds of sampling, 1 to 40.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=40))]
    seconds: u64,

    /// Prices of accesses on this machine. FILE is read if it exists; else prices are measured (5 to 20 s) and written to
    /// FILE.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Rows of each table.
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = "Output")]
    top: usize,

    /// Print each process, instead of one summary and one table per service [default for PIDs].
    #[arg(long, help_heading = "Output")]
    each: bool,

    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Merge(merge::Args),
}

const AFTER: &str = "\
Samples need perf events: for your own processes kernel.perf_event_paranoid of 2 or less, otherwise CAP_PERFMON and \
CAP_SYS_PTRACE. No performance counters are needed.

Exit codes: 0 advice about at least one service, also without a gain; 1 unknown for all, with the reasons; 2 wrong \
usage; 3 no process could be sampled on this machine.";

const PRICES: &str = "superpage.prices/1";
/// Largest footprint whose prices are measured.
const MOST: ByteSize = ByteSize::mib(512);
/// Smallest footprint whose prices are useful.
const LEAST: ByteSize = ByteSize::mib(256);
/// Most processes sampled together.
const MAX_PROCESSES: usize = 16;
/// Largest file of prices.
const LARGEST: u64 = 1 << 20;

/// Prices of accesses on a machine, as a file.
#[derive(Debug, Serialize, Deserialize)]
struct PriceFile {
    schema: String,
    /// The processor's name; prices of another are refused.
    processor: Option<String>,
    prices: Prices,
    /// Nanoseconds of a base page read in one stream.
    one_stream: Sequential,
    /// Prices on base pages with neighbouring frames; null: not known apart.
    near: Option<Near>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    machine: Node,
    /// Seconds since 1970.
    taken: u64,
    services: &'a [Group],
    processes: &'a [Advice],
    failed: &'a [Failed],
    /// Processes that were not sampled, because others have more memory.
    left_out: usize,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    if let Some(Command::Merge(args)) = args.command {
        return merge::run(&args);
    }
    let targets = args.processes.targets();
    if targets.is_empty() {
        return Err(Failure::usage("no process named: give a PID, --cgroup, --unit or --match"));
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Failure::cannot(
            "samples are decoded on x86-64 only; not on this architecture yet",
        ));
    }
    let root = Root::real();
    let selected = targets::select(&root, &targets)?;
    let (processes, left_out) = ::advise::largest(&root, selected.processes, MAX_PROCESSES);
    check(&root, &processes)?;
    let prices = prices(args.prices.as_deref())?;
    let pids: Vec<_> = processes.iter().map(|process| process.pid).collect();
    let before = host::Before::read_for(&root, &pids);
    let looks = look(&root, &processes, Duration::from_secs(args.seconds), &prices);
    let load = before.until_now(&root);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (process, look) in processes.iter().zip(looks) {
        match look {
            Ok(advice) => found.push(advice),
            Err(error) => failed.push((process, error)),
        }
    }
    if found.is_empty()
        && let Some((process, error)) = failed.first()
    {
        return Err(Failure::cannot(format!("pid {}: {error}", process.pid)));
    }
    let failed: Vec<Failed> = failed
        .into_iter()
        .map(|(process, error)| Failed { process: process.clone(), why: error.to_string() })
        .collect();
    let services = ::advise::by_service(&found, host::Thp::pmd_size_of(&root).ok());
    // One rule for one process and for many: of one process, the service's gain is unknown if the process's is.
    let unknown = services.iter().all(|service| service.gain.is_none());
    if args.json {
        let document = Document {
            machine: node(&root),
            taken: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            services: &services,
            processes: &found,
            failed: &failed,
            left_out,
        };
        let body = serde_json::to_value(&document);
        let body = body.map_err(|error| Failure::usage(format!("JSON: {error}")))?;
        exit::print_json(::advise::SCHEMA, body)?;
    } else {
        let only_pids = targets.iter().all(|target| matches!(target, Target::Pid(_)));
        match args.each || only_pids {
            true => found.iter().try_for_each(|one| exit::print(&words::process(one, args.top)))?,
            false => exit::print(&words::services(&services, &found, args.top))?,
        }
        for Failed { process, why } in &failed {
            exit::say(&format!("pid {}: {why}", process.pid));
        }
        if left_out > 0 {
            exit::say(&format!("{left_out} more processes, with less memory, were not sampled"));
        }
        if let Some(others) = words::others(&load) {
            exit::say(&others);
        }
    }
    Ok(if unknown { Done::Negative } else { Done::Fine })
}

/// Fails if none of the processes can be looked at, before prices take time.
fn check(root: &Root, processes: &[Process]) -> Result<(), Failure> {
    let mut first = None;
    for process in processes {
        match ::advise::check(root, process) {
            Ok(()) => return Ok(()),
            Err(error) => first = first.or(Some((process.pid, error))),
        }
    }
    first.map_or(Ok(()), |(pid, error)| Err(Failure::cannot(format!("pid {pid}: {error}"))))
}

/// This machine, as `advise merge` tells machines apart.
fn node(root: &Root) -> Node {
    let machine = Snapshot::read(root);
    Node {
        name: host::host_name(root),
        processor: machine.cpu.and_then(|cpu| cpu.model),
        kernel: machine.kernel,
    }
}

/// Looks at all processes at the same time.
fn look(
    root: &Root,
    processes: &[Process],
    time: Duration,
    prices: &Costs,
) -> Vec<Result<Advice, AdviceError>> {
    let mut progress = Progress::new(false, "sampling");
    std::thread::scope(|scope| {
        let looks: Vec<_> = processes
            .iter()
            .map(|process| {
                scope.spawn(move || ::advise::advise(root, process, time, prices, |_| true))
            })
            .collect();
        let total = time.as_millis() as u64;
        let mut passed = 0;
        while passed < total && !looks.iter().all(|look| look.is_finished()) {
            let step = 200.min(total - passed);
            std::thread::sleep(Duration::from_millis(step));
            passed += step;
            progress.tell(passed / 1000, Some(total / 1000), || "seconds of sampling".to_string());
        }
        progress.clear();
        let join = |look: std::thread::ScopedJoinHandle<'_, _>| {
            look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        looks.into_iter().map(join).collect()
    })
}

/// Reads or measures this machine's prices.
fn prices(path: Option<&Path>) -> Result<Costs, Failure> {
    let machine = Snapshot::read(&Root::real());
    let processor = machine.cpu.as_ref().and_then(|cpu| cpu.model.clone());
    if let Some(path) = path.filter(|path| path.exists()) {
        return read(path, processor.as_deref());
    }
    if let Some(path) = path {
        files::check_new(path, false)?;
    }
    let mut most = facts::measurement_memory(MOST);
    let prices = loop {
        match measure(most, &machine) {
            // Without contiguous memory, prices of smaller footprints: those of larger ones are taken to be equal.
            Err(PricesError::NotGot { .. }) if most > LEAST => {
                most = ByteSize(most.bytes() / 2);
                exit::say(&format!(
                    "prices are measured up to {most} only: too little free memory is contiguous"
                ));
            }
            measured => break measured.map_err(unpriced)?,
        }
    };
    if let Some(path) = path {
        let file = PriceFile {
            schema: PRICES.to_string(),
            processor,
            prices: prices.accesses.clone(),
            one_stream: prices.one_stream,
            near: prices.near.clone(),
        };
        files::write(path, false, exit::to_json(&file)?)?;
    }
    Ok(prices)
}

fn measure(most: ByteSize, machine: &Snapshot) -> Result<Costs, PricesError> {
    let what = "measuring what accesses cost on this machine";
    let mut samples = Samples::new(most, facts::superpage(machine))?.with_near_frames();
    let mut progress = Progress::new(false, what);
    let measured = samples.visit(|done, of| {
        progress.tell(done as u64, Some(of as u64), || what.to_string());
        true
    });
    progress.clear();
    measured?;
    let one_stream = one_stream(LEAST, facts::superpage(machine))?;
    Ok(Costs { accesses: samples.prices(), one_stream, near: samples.near() })
}

fn read(path: &Path, processor: Option<&str>) -> Result<Costs, Failure> {
    let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = files::text(path, LARGEST, "a file of prices")?;
    let file: PriceFile = serde_json::from_str(&text)
        .map_err(|error| bad(format!("not a file of prices: {error}")))?;
    if file.schema != PRICES {
        return Err(bad(format!("its schema is {:?}, not {PRICES}", file.schema)));
    }
    if let (Some(of), Some(here)) = (&file.processor, processor)
        && of != here
    {
        return Err(bad(format!("measured on {of}, and this is {here}; give another file")));
    }
    file.prices.check().map_err(|error| bad(error.to_string()))?;
    if let Some(near) = &file.near {
        near.check(&file.prices).map_err(|error| bad(error.to_string()))?;
    }
    Ok(Costs { accesses: file.prices, one_stream: file.one_stream, near: file.near })
}

fn unpriced(error: PricesError) -> Failure {
    match error {
        PricesError::NoSuperpages | PricesError::NotGot { .. } => Failure::cannot(error),
        PricesError::Sys(_) | PricesError::Interrupted => Failure::usage(error),
    }
}
