//! `superpage evaluate`: the entries of suites, each compared as `compare --suite` does it, in one table.

mod find;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use experiment::document::{LeftOut, machine_line};
use experiment::evaluation::{Application, Evaluation};
use host::{Root, Snapshot};

use crate::compare::entry::Entry;
use crate::exit::{self, Done, Failure};
use crate::files;
use crate::runs::{JobOutcome, arms};

/// Compare many applications on each kind of superpages.
///
/// A suite is a file of applications (TOML): servers, commands, workloads, and what each needs. Those whose programs are
/// here are compared one after the other, as `superpage compare` does it; what the others need is said.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suite: a file, or the name of one that comes with superpage; SUITE:NAME is one of its entries [default: all that
    /// come with superpage, but `gorman`].
    #[arg(value_name = "SUITE", conflicts_with = "from")]
    suites: Vec<String>,

    /// Maximum time, shared among the entries: 10m, 1h.
    #[arg(long, value_name = "TIME", default_value = "60m", value_parser = arms::seconds)]
    max_time: f64,

    /// Keep what is done in FILE (JSON) after each entry; entries that it has are not run again.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    resume: Option<PathBuf>,

    /// List the entries and what each lacks here; run nothing.
    #[arg(long, conflicts_with_all = ["from", "resume", "json", "output", "html", "compare"])]
    list: bool,

    /// Print a saved evaluation (--json, --resume); run nothing.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Say which verdicts are others than in OLD, an evaluation of an earlier kernel or another machine; exit with 1 if any is.
    #[arg(long, value_name = "OLD")]
    compare: Option<PathBuf>,

    /// Print JSON: every run of every application.
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Print CSV: a line for each arm but the first.
    #[arg(long, conflicts_with_all = ["json", "list"], help_heading = "Output")]
    csv: bool,

    /// Write the result to FILE; - is standard output.
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Also write an HTML page: one self-contained file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Do not print progress.
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    if args.list {
        return list(&args);
    }
    let output = args.output.as_deref().filter(|path| !files::is_stdout(path));
    files::check_outputs(output, "--html", args.html.as_deref(), args.force)?;
    let old = args.compare.as_deref().map(read).transpose()?;
    let (mut evaluation, end) = match &args.from {
        Some(file) => (read(file)?, Ok(Done::Fine)),
        None => evaluate(&args)?,
    };
    evaluation.changed = old.map(|old| evaluation.changes_since(&old));
    let html = args.html.as_ref().map_or(Ok(()), |path| files::write(path, evaluation.to_html()));
    let text = match (args.json, args.csv) {
        (true, _) => exit::to_json(&evaluation)?,
        (_, true) => experiment::csv::rows(&evaluation.rows()),
        (false, false) => table::text(&evaluation),
    };
    files::deliver(args.output.as_deref(), &text).and(html)?;
    match (end?, &evaluation.changed) {
        (Done::Fine, Some(changed)) if changed.is_empty() => {
            exit::say("no verdict changed");
            Ok(Done::Fine)
        }
        (Done::Fine, Some(_)) => Ok(Done::Negative),
        (done, _) => Ok(done),
    }
}

fn list(args: &Args) -> Result<Done, Failure> {
    let entries = find::entries(&args.suites)?;
    let row = |entry: &Entry| {
        let state = entry.missing().unwrap_or("here".to_string());
        vec![entry.name.clone(), entry.path.display().to_string(), state]
    };
    let rows = entries.iter().map(row).collect();
    exit::print(&crate::pool::show::table(&["entry", "suite", "programs"], rows, &[0, 1, 2]))?;
    Ok(Done::Fine)
}

fn read(path: &Path) -> Result<Evaluation, Failure> {
    const MAX_BYTES: u64 = 1 << 30;
    let text = files::text(path, MAX_BYTES, "a file that `evaluate --json` wrote")?;
    Evaluation::parse(&text, &path.display().to_string()).map_err(Failure::usage)
}

/// What `--resume` names, if it is there and of this machine.
fn resumed(path: &Path) -> Result<Evaluation, Failure> {
    if !path.exists() {
        files::check_new(path, true)?;
        return Ok(Evaluation::new());
    }
    let made = Evaluation { not_run: Vec::new(), ..read(path)? };
    let here = machine_line(&Snapshot::read(&Root::real()));
    match made.machine().filter(|there| *there != here) {
        None => Ok(made),
        Some(there) => Err(Failure::usage(format!(
            "{}: its runs are of {there}, and this is {here}; name another file, and compare them by --compare",
            path.display()
        ))),
    }
}

/// Runs what is not done yet. The end says what a signal or a failure made of it; what was made is there all the same.
fn evaluate(args: &Args) -> Result<(Evaluation, Result<Done, Failure>), Failure> {
    let began = Instant::now();
    let mut evaluation = args.resume.as_deref().map_or(Ok(Evaluation::new()), resumed)?;
    let not_run = |name: &str, why: &str| LeftOut { name: name.to_string(), why: why.to_string() };
    let mut pending = Vec::new();
    for entry in find::entries(&args.suites)? {
        match entry.missing() {
            _ if evaluation.has(&entry.name) => {}
            Some(why) => evaluation.not_run.push(not_run(&entry.name, &why)),
            None => pending.push(entry),
        }
    }
    if pending.is_empty() && evaluation.applications.is_empty() {
        let lacking = evaluation.not_run.iter().map(|one| format!("{} {}", one.name, one.why));
        let lacking = lacking.collect::<Vec<_>>().join("; ");
        return Err(Failure::cannot(format!("no application of the suites is here: {lacking}")));
    }
    let (count, mut signal, mut failed) = (pending.len(), None, Vec::new());
    for (index, entry) in pending.into_iter().enumerate() {
        let name = entry.name.clone();
        let left = args.max_time - began.elapsed().as_secs_f64();
        let over = match signal {
            Some(_) => Some("interrupted"),
            _ if left <= 0.0 => Some("--max-time was over"),
            _ => None,
        };
        if let Some(over) = over {
            let why = format!("{over}; continue with --resume FILE, or with a larger --max-time");
            evaluation.not_run.push(not_run(&name, &why));
            continue;
        }
        let part = left / (count - index) as f64;
        if !args.quiet {
            exit::say(&format!("{} of {count}: {name}, about {part:.0} s", index + 1));
        }
        match entry.compare(MEASURED * part, args.quiet) {
            Ok(JobOutcome::Document(comparison)) => {
                evaluation.applications.push(Application { name, comparison: *comparison });
                save(args, &evaluation)?;
            }
            Ok(JobOutcome::Signal(by, _)) => {
                signal = Some(by);
                evaluation.not_run.push(not_run(&name, "interrupted; continue with --resume FILE"));
            }
            Err(failure) => {
                evaluation.not_run.push(not_run(&name, &failure.to_string()));
                exit::say(&failure.on(&name).to_string());
                failed.push(name);
            }
        }
    }
    save(args, &evaluation)?;
    let end = match (signal, failed.is_empty()) {
        (Some(signal), _) => Ok(Done::Signal(signal)),
        (None, true) => Ok(Done::Fine),
        (None, false) => {
            Err(Failure::usage(format!("failed: {}; see `not run`", failed.join(", "))))
        }
    };
    Ok((evaluation, end))
}

/// How much of an entry's time its measured runs may take: the rest is for warm-ups, and for starting and filling servers.
const MEASURED: f64 = 0.7;

fn save(args: &Args, evaluation: &Evaluation) -> Result<(), Failure> {
    let Some(path) = &args.resume else { return Ok(()) };
    files::write(path, exit::to_json(evaluation)?)
}
