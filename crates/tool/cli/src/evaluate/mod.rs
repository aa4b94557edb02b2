//! `superpage evaluate`: compares every entry of suites as `compare --suite` does, and prints one table.

mod table;

use std::path::PathBuf;

use operations::cluster::{ClusterArgs, On};
use operations::compare::suite::Entry;
use operations::evaluate::{self, Plan, Request, read};
use operations::jobs::arms;

use crate::exit::{self, Done, Failure};
use crate::files;

/// Compare many applications on each kind of superpages.
///
/// A suite is a TOML file of applications: servers, commands, workloads, and what each needs. Installed applications
/// are compared one after the other, as `superpage compare` does; for the others, the missing programs are printed.
/// `--on slurm` and `--on ray` give each application a node of a cluster, rerun lost jobs, and merge the results.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suite: the name of a built-in suite, or a file (with a slash, or named *.toml); SUITE:NAME is one entry
    /// [default: all built-in suites except `gorman`].
    #[arg(value_name = "SUITE", conflicts_with = "from")]
    suites: Vec<String>,

    /// Time until the answer, with setup and warm-ups, shared among the entries: 10m, 1h. On a cluster each entry gets an
    /// equal part, and nodes work in parallel.
    #[arg(long, value_name = "TIME", default_value = "60m", value_parser = arms::seconds)]
    max_time: f64,

    /// Keep the results so far in FILE (JSON), written after each entry; entries that FILE already has are
    /// not run again.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    resume: Option<PathBuf>,

    /// Print what would be run, on a cluster also the job script; run nothing.
    #[arg(long, conflicts_with_all = ["from", "list", "csv", "html", "compare"])]
    dry_run: bool,

    /// Write the result to FILE (JSON), even if nothing could be run; used by the jobs of `--on`.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["from", "list", "resume", "dry_run"])]
    into: Option<PathBuf>,

    /// List the entries and what each lacks on this machine; run nothing.
    #[arg(long, conflicts_with_all = ["from", "resume", "json", "output", "html", "compare"])]
    list: bool,

    /// Print a saved evaluation (--json, --resume); run nothing.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Print which verdicts differ from OLD, an evaluation on an earlier kernel or another machine; exit with 1 if any
    /// does.
    #[arg(long, value_name = "OLD")]
    compare: Option<PathBuf>,

    /// Print JSON: every run of every application.
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Print CSV: a line for each arm but the first.
    #[arg(long, conflicts_with_all = ["json", "list"], help_heading = "Output")]
    csv: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Also write an HTML page: one self-contained file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,

    /// Overwrite existing files; with --on, also use results left by an evaluation whose FILE is gone.
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Do not print progress.
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The schema of `--dry-run --json`.
const PLAN_SCHEMA: &str = "superpage.evaluation-plan/1";

pub fn run(args: Args) -> Result<Done, Failure> {
    check(&args)?;
    if args.list {
        return list(&args);
    }
    if let Some(file) = &args.into {
        return evaluate::into(&args.request(), file).map(done_by);
    }
    let output = args.output.as_deref().filter(|path| !files::is_stdout(path));
    files::check_outputs(output, "--html", args.html.as_deref(), args.force)?;
    if args.dry_run {
        let plan = args.request().plan()?;
        let text = match files::is_json(args.json, args.output.as_deref()) {
            true => exit::json_text(PLAN_SCHEMA, serde_json::json!(plan))?,
            false => plan_in_words(&plan),
        };
        files::deliver(args.output.as_deref(), args.force, &text)?;
        return Ok(Done::Fine);
    }
    let old = args.compare.as_deref().map(read).transpose()?;
    let (mut evaluation, end) = match &args.from {
        Some(file) => (read(file)?, Ok(None)),
        None => args.request().run()?,
    };
    let others = old.as_ref().map_or(0, |old| evaluation.other_kinds(old).len());
    let changes = old.map(|old| evaluation.changes_since(&old));
    let of = changes.as_ref().map_or(0, |(_, of)| *of);
    evaluation.changed = changes.map(|(changes, _)| changes);
    let html = args
        .html
        .as_ref()
        .map_or(Ok(()), |path| files::write(path, args.force, evaluation.to_html()));
    let text = match (files::is_json(args.json, args.output.as_deref()), args.csv) {
        (_, true) => experiment::csv::rows(&evaluation.rows()),
        (true, _) => exit::to_json(&evaluation)?,
        (false, false) => table::text(&evaluation),
    };
    files::deliver(args.output.as_deref(), args.force, &text).and(html)?;
    if others > 0 {
        exit::say(&format!(
            "{others} of the applications were measured on another kind of machine than in --compare's file"
        ));
    }
    match (end.map(done_by)?, &evaluation.changed) {
        (Done::Fine, Some(_)) if of == 0 => {
            Err(Failure::usage("--compare: the two evaluations have no application in common"))
        }
        (Done::Fine, Some(changed)) if changed.is_empty() => {
            exit::say(&format!("no verdict changed, of {of}"));
            Ok(Done::Fine)
        }
        (Done::Fine, Some(_)) => Ok(Done::Negative),
        (done, _) => Ok(done),
    }
}

/// Rejects flags that `--on` does not support.
fn check(args: &Args) -> Result<(), Failure> {
    args.cluster.check()?;
    let on = args.cluster.on;
    let of_a_file = [("--from", args.from.is_some()), ("--list", args.list)];
    match of_a_file.into_iter().find(|(_, given)| on != On::Local && *given) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("{flag} runs nothing; leave --on {} away", on.name())))
        }
        None if on != On::Local && args.resume.is_none() => Err(Failure::usage(format!(
            "--on {}: name a file by --resume, in which results are kept",
            on.name()
        ))),
        None => Ok(()),
    }
}

fn list(args: &Args) -> Result<Done, Failure> {
    let entries = evaluate::entries(&args.suites)?;
    let row = |entry: &Entry| {
        let here =
            || entry.check().map_or("here".to_string(), |it| format!("here, if `{it}` succeeds"));
        let state = entry.missing_programs().unwrap_or_else(here);
        vec![entry.name.clone(), entry.path.display().to_string(), state]
    };
    let rows = entries.iter().map(row).collect();
    exit::print(&crate::pool::show::table(&["entry", "suite", "programs"], rows, &[0, 1, 2]))?;
    Ok(Done::Fine)
}

impl Args {
    fn request(&self) -> Request {
        Request {
            suites: self.suites.clone(),
            max_time: self.max_time,
            resume: self.resume.clone(),
            force: self.force,
            quiet: self.quiet,
            cluster: self.cluster.clone(),
        }
    }
}

fn done_by(signal: Option<i32>) -> Done {
    signal.map_or(Done::Fine, Done::Signal)
}

fn plan_in_words(plan: &Plan) -> String {
    let mut text = String::new();
    for entry in &plan.entries {
        let check = entry.check.as_ref().map(|check| format!(", if `{check}` succeeds"));
        let check = check.unwrap_or_default();
        text += &format!("{}: about {:.0} s{check}\n", entry.name, entry.seconds);
    }
    if text.is_empty() {
        text += "nothing is left to run\n";
    }
    for one in &plan.not_run {
        text += &format!("not run: {}\n", one.line(false));
    }
    match &plan.submission {
        Some(submitted) if !plan.entries.is_empty() => {
            format!("{text}\n{}", submitted.submission.text())
        }
        _ => text,
    }
}
