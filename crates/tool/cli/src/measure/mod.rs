//! `superpage measure`: the share of a program's time spent on address translation.

mod document;
mod given;
mod pmu;
mod table;
mod trace;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use launch::Word;
use units::Pid;
use walk_cost::from::{self, Format};
use walk_cost::{Attribution, Estimate, Given};

use crate::exit::{self, Done, Failure};
use crate::files;

/// Measure the time a program spends on address translation.
///
/// This bounds what superpages can save: page walks for data and for code, and the largest possible speedup. Measures a
/// program that it starts, running processes (--pid), or counts taken by perf (--from). The output names the method;
/// counts that are unavailable are unknown, never zero.
///
/// Without performance counters a program runs four times (--method): recorded once, under QEMU, which takes 20 to 130
/// times its CPU time, and timed three times on base pages.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Read counts from the output of perf stat (text, -x, -j; -I, -r, -A and so on), a perf.data,
    /// opreport, or lines of key=value (misses, cost, cycles); - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "command"])]
    from: Option<PathBuf>,

    /// Running process to measure, with its threads and children, until it ends or ^C; repeatable.
    #[arg(long, value_name = "PID", value_parser = crate::targets::pid, conflicts_with = "command")]
    pid: Vec<Pid>,

    /// With --pid: measure for at most this long.
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,

    /// How to measure.
    #[arg(long, value_enum, default_value = "auto", value_name = "METHOD")]
    method: Method,

    #[command(flatten)]
    given: given::Flags,

    /// Rows of each table of mappings and functions.
    #[arg(long, default_value_t = 10, value_name = "N", help_heading = "Output")]
    top: usize,

    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Program and arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<Word>,
}

const AFTER: &str = "\
With a program, the table goes to standard error: standard output is the program's. --json goes to \
standard output, or to --output.

Exit codes: the program's own, or 125, 126, 127 if it cannot be started; without a program: 0 success; \
1 unknown, with the reason; 2 wrong usage, or a file that cannot be read; 3 not possible on this machine.";

/// Source of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Method {
    /// Performance counters, else a recorded trace, which runs the program four times.
    Auto,
    /// Performance counters.
    Pmu,
    /// A recorded trace, with the costs of this machine; runs the program four times.
    Trace,
}

/// A measurement's result.
struct Measured {
    /// What was measured, as text.
    what: String,
    estimate: Estimate,
    attributions: Vec<Attribution>,
    /// Format of the input file, if any.
    format: Option<Format>,
    /// Duration of the measurement in seconds.
    seconds: Option<f64>,
    /// Exit status of the program.
    ended: Option<ExitStatus>,
}

impl Measured {
    fn new(what: impl Into<String>, estimate: Estimate) -> Self {
        let (attributions, what) = (Vec::new(), what.into());
        Self { what, estimate, attributions, format: None, seconds: None, ended: None }
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    if let Some(path) = &args.output {
        files::check_new(path, args.force)?;
    }
    // clap's `requires` would not work here: a program conflicts with --pid, which would lift the requirement.
    if args.duration.is_some() && args.pid.is_empty() {
        return Err(Failure::usage("--for needs --pid; a program is measured to its end"));
    }
    let given = args.given.numbers()?;
    let measured = match (&args.from, args.pid.as_slice(), args.command.as_slice()) {
        (Some(file), ..) => by_file(file, &args)?,
        (None, [], []) if !given.is_empty() => {
            args.given.without_hit_cost()?;
            Measured::new("numbers given", given.estimate())
        }
        (None, [], []) => {
            return Err(Failure::usage(
                "nothing to measure; give -- PROGRAM, --pid PID, --from FILE, or --misses, --cost \
                 and --cycles",
            ));
        }
        (None, [], command) => by_program(command, &args)?,
        (None, pids, _) => by_pids(pids, &args)?,
    };
    print(&measured, &args)?;
    Ok(match measured.ended {
        Some(status) => status.into(),
        _ if measured.estimate.share.is_none() => Done::Negative,
        _ => Done::Fine,
    })
}

fn by_file(path: &Path, args: &Args) -> Result<Measured, Failure> {
    if args.method == Method::Trace {
        return Err(Failure::usage("--from reads counts; --method trace needs -- PROGRAM"));
    }
    let place = if files::is_stdout(path) { Path::new("/dev/stdin") } else { path };
    let reading = from::read(place)?;
    let of_numbers = matches!(reading.format, Format::Keys | Format::Opreport);
    let (given, cost) = if of_numbers {
        args.given.without_hit_cost()?;
        (args.given.numbers()?, None)
    } else {
        args.given.only_cost()?;
        (Given::default(), args.given.cost()?)
    };
    let estimate = reading.estimate(given, cost.as_ref());
    let (attributions, format) = (reading.attributions, Some(reading.format));
    let what = path.display().to_string();
    Ok(Measured { attributions, format, ..Measured::new(what, estimate) })
}

fn by_program(command: &[Word], args: &Args) -> Result<Measured, Failure> {
    args.given.only_cost()?;
    let cost = args.given.cost_here()?;
    match args.method {
        Method::Trace => trace::by_trace(command, args.json && args.output.is_none()),
        Method::Pmu => {
            let or_trace = |why| pmu::or(why, "--method trace records the program instead");
            pmu::of_program(command, cost.as_ref(), &pmu::counters().map_err(or_trace)?)
        }
        Method::Auto => match pmu::counters() {
            Ok(counters) => pmu::of_program(command, cost.as_ref(), &counters),
            Err(why) => trace::by_trace(command, args.json && args.output.is_none())
                .map_err(|error| no_method(&why, error)),
        },
    }
}

fn by_pids(pids: &[Pid], args: &Args) -> Result<Measured, Failure> {
    args.given.only_cost()?;
    if args.method == Method::Trace {
        return Err(Failure::usage(
            "--method trace cannot record a running process; start the program: superpage measure -- \
             PROGRAM",
        ));
    }
    pmu::of_processes(pids, args.duration, args.given.cost_here()?.as_ref())
}

/// Reports both reasons if both methods failed.
fn no_method(counters: &Failure, trace: Failure) -> Failure {
    if trace.is_cannot() { Failure::cannot(format!("{counters}; and {trace}")) } else { trace }
}

fn print(measured: &Measured, args: &Args) -> Result<(), Failure> {
    let text = if files::is_json(args.json, args.output.as_deref()) {
        let text = serde_json::to_string_pretty(&document::from_measured(measured));
        text.map_err(|error| Failure::usage(format!("JSON: {error}")))? + "\n"
    } else {
        table::text(measured, args.top)
    };
    if args.output.is_none() && measured.ended.is_some() && !args.json {
        // The program wrote to standard output, so print the report on standard error.
        exit::print_aside(&text);
        return Ok(());
    }
    files::deliver(args.output.as_deref(), args.force, &text)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds < 1e7);
    seconds.ok_or_else(|| "expected seconds, more than 0".to_string())
}
