//! `superpage lab faults`: simulates how page faults scale with CPUs, in the columns of Lameter's tables of 2005
//! (docs/sources/policies.md 3.8).

mod published;
mod words;

use std::path::PathBuf;

use design::designs;
use fault_scaling::{
    self as faults, Experiment, Kernel, Machine, Patches, Row, ScrubSettings, Touches, Zeroing,
};
use lab::plot;
use serde::Serialize;
use units::ByteSize;

use super::what;
use cli::exit::{Done, Failure};
use cli::files;
use operations::json::to_json as json;
use operations::reporter::Progress;

/// Heading of the zeroing daemon's options.
const ZEROING: &str = "Zeroing ahead";

/// Schema of the document.
const SCHEMA: &str = "superpage.faults/1";

/// See how fast many CPUs get new memory in one address space, under changes of the kernel.
///
/// Each thread touches its own slice of one mapping, page by page (pft, Lameter 2004). Every lock, cache line and
/// node's memory is simulated, event by event. Patches named together are applied together; each --patches or --design
/// is a separate table and curve. Without either: the baseline, each published patch, and all of them together.
///
/// With --table, exits with 1 if the rows with several threads are off by more than 15 % in the geometric mean, or if a
/// peak is at another number of CPUs.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The machine: altix-128, altix-512, altix-8, i386-up, modern, or a file.
    #[arg(long, short, value_name = "MACHINE", default_value = "altix-128")]
    machine: String,

    /// Changes of the machine's kernel, by comma: atomic-pte, split-ptl, per-vma, rss-atomic, rss-split, rss-on-demand,
    /// prefault[=ORDER], prezero, superpage[=SIZE], ticket-lock, queued-lock, numa-lock; or baseline. Repeatable.
    #[arg(long, short, value_name = "PATCHES")]
    patches: Vec<Patches>,

    /// The faults of a design instead of the machine's kernel: a name (see `superpage design list`) or a
    /// file. Repeatable.
    #[arg(long = "design", short, value_name = "DESIGN")]
    designs: Vec<String>,

    /// Numbers of threads, by comma. Default: 1, 2, 4 and so on, up to the machine's maximum.
    #[arg(long, short, value_name = "N,...", value_delimiter = ',')]
    threads: Vec<u32>,

    /// Memory that is touched, by all threads together.
    #[arg(long, short, value_name = "SIZE", default_value = "1G")]
    size: ByteSize,

    /// Times that the memory is mapped, touched and unmapped.
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: u32,

    /// Cache lines of each page that are written.
    #[arg(long, value_name = "N", default_value_t = 1)]
    cache_lines: u32,

    /// Pages that are touched in order before a gap. Pages that prefault maps beyond them are wasted.
    #[arg(long, value_name = "PAGES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    run: u32,

    /// Pages that nobody touches, after each --run.
    #[arg(long, value_name = "PAGES", default_value_t = 0)]
    gap: u32,

    /// What zeroes memory ahead, with prezero: an idle CPU of the node (cpu), or the machine's block transfer engine,
    /// which needs no CPU (bte; the Altix have one).
    #[arg(long, value_name = "WHAT", help_heading = ZEROING)]
    zeroing: Option<Zeroing>,

    /// Zeroing starts once a block of 2^ORDER pages is free and not zeroed. Default: the machine's; 0 to 10. With this
    /// or --scrub-stop, only the orders decide, not the share of memory that is zeroed.
    #[arg(long, value_name = "ORDER", help_heading = ZEROING)]
    scrub_start: Option<u8>,

    /// Zeroing goes on down to blocks of 2^ORDER pages; smaller ones are zeroed in the fault.
    #[arg(long, value_name = "ORDER", help_heading = ZEROING)]
    scrub_stop: Option<u8>,

    /// Zeroing rests while N or more threads run: 1 zeroes only before the run, 0 never rests.
    #[arg(long, value_name = "N", help_heading = ZEROING)]
    scrub_load: Option<u32>,

    /// Compare the machine with its published rows instead, cell by cell.
    #[arg(long, conflicts_with_all = ["patches", "designs", "threads", "size", "repeat", "cache_lines", "run", "gap", "zeroing", "scrub_start", "scrub_stop", "scrub_load"])]
    table: bool,

    /// With --table: fit the constants of contention again, to all rows and without each size and each set of patches,
    /// and say how far the rows that a fit leaves out are off. Takes about a minute.
    #[arg(long, requires = "table")]
    refit: bool,

    /// Draw pages per second against CPUs into a file, by wall-clock and by CPU time; with --table also the published
    /// rows as points.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print JSON (superpage.faults/1; with --table superpage.faults.table/1).
    #[arg(long)]
    json: bool,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Write the output to a file instead of standard output (-).
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Do not print progress.
    #[arg(long, short)]
    quiet: bool,
}

const HELP: &str = "\
Examples:
  superpage lab faults --machine altix-128 --patches atomic-pte,prefault,prezero
  superpage lab faults -p baseline -p numa-lock --threads 1,8,64,512 --svg faults.svg
  superpage lab faults -m altix-8 -p prezero -t 8 --zeroing bte --scrub-start 4 --scrub-stop 2
  superpage lab faults --machine altix-8 --table
  superpage lab faults --machine altix-128 --table --refit";

#[derive(Debug, Serialize)]
struct Set {
    /// Name of the patches or design.
    name: String,
    kernel: Kernel,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    machine: &'a str,
    machine_cpus: u32,
    base_page_bytes: u64,
    sets: &'a [Set],
}

pub fn run(args: Args) -> Result<Done, Failure> {
    files::check_outputs(args.output.as_deref(), "--svg", args.svg.as_deref(), args.force)?;
    let machine = what::faults_machine(&args.machine)?;
    if args.table {
        return published::run(&machine, &args);
    }
    let sets = simulate(&machine, &args)?;
    let text = match args.json {
        true => json(&Document {
            schema: SCHEMA,
            machine: &machine.name,
            machine_cpus: machine.cpus,
            base_page_bytes: machine.base_page.0,
            sets: &sets,
        })?,
        false => words::tables(&machine, &sets),
    };
    if let Some(path) = &args.svg {
        let title = format!("{}, {} x {}", machine.summary, args.size, args.repeat);
        let curve = |set: Set| plot::Curve {
            name: set.name,
            simulated: set.rows.iter().map(plot::Point::from).collect(),
            published: Vec::new(),
        };
        let curves: Vec<_> = sets.into_iter().map(curve).collect();
        files::write(path, args.force, plot::faults(&title, machine.cpus, &curves))?;
    }
    files::deliver(args.output.as_deref(), args.force, &text)?;
    Ok(Done::Fine)
}

fn simulate(machine: &Machine, args: &Args) -> Result<Vec<Set>, Failure> {
    let threads = match args.threads.is_empty() {
        true => doubling(machine.most_threads()),
        false => args.threads.clone(),
    };
    let mut progress = Progress::of_pass(args.quiet, "page faults");
    let mut sets = Vec::new();
    let mut kernels = kernels(machine, args)?;
    set_daemon(&mut kernels, machine, args)?;
    let of = kernels.len() as u64;
    for (name, kernel) in kernels {
        progress.tell(sets.len() as u64, Some(of), || format!("{name} on {}", machine.name));
        let experiment = Experiment {
            machine: machine.clone(),
            kernel,
            threads: 1,
            size: args.size,
            repetitions: args.repeat,
            cache_lines: args.cache_lines,
            touches: Touches { run: args.run, gap: args.gap },
        };
        let rows = faults::rows(&experiment, &threads).map_err(Failure::usage)?;
        sets.push(Set { rows, name, kernel });
    }
    progress.clear();
    Ok(sets)
}

fn set_daemon(
    kernels: &mut [(String, Kernel)],
    machine: &Machine,
    args: &Args,
) -> Result<(), Failure> {
    let (start, stop, load) = (args.scrub_start, args.scrub_stop, args.scrub_load);
    let given = [
        ("--zeroing", args.zeroing.is_some()),
        ("--scrub-start", start.is_some()),
        ("--scrub-stop", stop.is_some()),
        ("--scrub-load", load.is_some()),
    ];
    let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) else {
        return Ok(());
    };
    if kernels.iter().all(|(_, kernel)| kernel.prezero.is_none()) {
        let said =
            format!("{option} has no effect: nothing zeroes ahead; add prezero to --patches");
        return Err(Failure::usage(said));
    }
    let settings = ScrubSettings { start, stop, load, by: args.zeroing.unwrap_or_default() };
    kernels
        .iter_mut()
        .try_for_each(|(_, kernel)| settings.apply(kernel, machine))
        .map_err(Failure::usage)
}

const WHEN: &str = "allocation.when";

fn kernels(machine: &Machine, args: &Args) -> Result<Vec<(String, Kernel)>, Failure> {
    let mut sets: Vec<Patches> = args.patches.clone();
    if sets.is_empty() && args.designs.is_empty() {
        sets = Patches::published();
    }
    let mut kernels: Vec<(String, Kernel)> =
        sets.iter().map(|set| (set.to_string(), set.kernel(machine))).collect();
    for word in &args.designs {
        let named = operations::design::load(word)?;
        if let Some(lab::NotSimulated { key, why }) = lab::not_simulated_of_faults(&named.design) {
            return Err(what::refused(&named, key, &why));
        }
        if named.design.keys().iter().any(|(key, _)| key == WHEN) {
            const WHY: &str = "the model of concurrent faults evaluates no condition: all its first faults are alike";
            return Err(what::refused(&named, WHEN, WHY));
        }
        let taken = designs::preset(&named.design.name).is_ok();
        let name = what::called(&named.design.name, named.file.as_deref(), taken);
        kernels.push((name, lab::fault_kernel(&named.design, machine)));
    }
    for (index, (name, _)) in kernels.iter().enumerate() {
        if kernels[..index].iter().any(|(other, _)| other == name) {
            return Err(Failure::usage(format!("`{name}` is given twice; leave one of them away")));
        }
    }
    Ok(kernels)
}

/// Returns 1, 2, 4 and so on below `most`, and `most`.
fn doubling(most: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..32).map(|shift| 1 << shift).take_while(|one| *one < most).collect();
    all.push(most);
    all
}
