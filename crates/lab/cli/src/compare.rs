//! `superpage lab compare`: compares several designs on one access stream.

use std::path::{Path, PathBuf};

use lab::Report;
use lab::analysis::{Figures, figures};
use report::document;
use serde::{Deserialize, Serialize};

use super::outputs::Outputs;
use super::what::{self, ExperimentArgs};
use super::words;
use crate::documents::{Going, Printed};
use crate::simulate::Parts;
use cli::exit::{self, Done, Failure};
use operations::json::to_json as json;

/// Schema of the document.
pub const SCHEMA: &str = "superpage.lab.compare/1";

/// Run a workload under several designs, in one pass, and compare them.
///
/// The other designs are compared with the first.
#[derive(Debug, clap::Args)]
#[command(after_long_help = words::COLUMNS, after_help = words::COLUMNS)]
pub struct Args {
    /// A design: a name (see `superpage design list`) or a file; repeatable.
    #[arg(long = "design", short, value_name = "DESIGN", required_unless_present = "from")]
    designs: Vec<String>,

    /// Say in words why the fastest design was faster than the first, and what held the others back. An unreachable
    /// bound (`ideal`) is left out while there are two others.
    #[arg(long)]
    explain: bool,

    /// Redraw a comparison from a file that --json wrote; nothing is run.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["designs", "ExperimentArgs"])]
    from: Option<PathBuf>,

    #[command(flatten)]
    experiment: Option<ExperimentArgs>,

    #[command(flatten)]
    outputs: Outputs,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'a str,
    reports: &'a [Report],
    figures: Vec<Figures>,
}

#[derive(Deserialize)]
struct Facts {
    reports: Vec<Report>,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.outputs.check()?;
    let reports = match (&args.from, &args.experiment) {
        (Some(path), _) => read(path)?,
        (None, Some(experiment)) => {
            let designs = what::several(&args.designs, "design", what::design)?;
            let parts = Parts::read(experiment)?;
            let designs: Vec<_> = designs.iter().collect();
            if experiment.dry_run {
                exit::print(&parts.describe(&designs)?)?;
                return Ok(Done::Fine);
            }
            parts.run_shown(&designs, args.outputs.quiet)?
        }
        (None, None) => return Err(nothing_to_run()),
    };
    let document = Document::new(&reports);
    let text =
        if args.outputs.is_json() { json(&document)? } else { table(&reports, args.explain) };
    args.outputs.write(&text, &reports)?;
    Ok(Done::Fine)
}

impl<'a> Document<'a> {
    fn new(reports: &'a [Report]) -> Self {
        let base = reports.first();
        let figures = reports.iter().map(|report| figures(report, base)).collect();
        Self { schema: SCHEMA, reports, figures }
    }
}

/// Runs the comparison. Writes nothing.
pub fn printed(args: &Args, going: Going) -> Result<Printed, Failure> {
    let Some(experiment) = &args.experiment else { return Err(nothing_to_run()) };
    let designs = what::several(&args.designs, "design", what::design)?;
    let designs: Vec<_> = designs.iter().collect();
    let reports = Parts::read(experiment)?.run(&designs, |_| going())?;
    let document = Document::new(&reports);
    let text = table(&reports, args.explain);
    Ok(Printed { json: json(&document)?, text, figures: document.figures })
}

fn table(reports: &[Report], explain: bool) -> String {
    let why = if explain { format!("\n{}", words::why(reports)) } else { String::new() };
    words::compare(reports) + &why
}

pub fn nothing_to_run() -> Failure {
    Failure::usage("nothing to run; name a --workload (superpage lab workloads lists them)")
}

/// Reads the reports in a file that `run --json` or `compare --json` wrote.
pub fn read(path: &Path) -> Result<Vec<Report>, Failure> {
    let text = what::text(path, WANTED)?;
    let bad = |why: String| Failure::usage(format!("{}: {why}; give {WANTED}", path.display()));
    reports(&text).map_err(bad)
}

const WANTED: &str = "a file that `lab run --json` or `lab compare --json` wrote";

/// Parses the reports in the text of such a file.
///
/// # Errors
/// The invalid field and the reason, in one line.
pub fn reports(text: &str) -> Result<Vec<Report>, String> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let Head { schema } = document::read(text)?;
    match schema.as_str() {
        lab::SCHEMA => Ok(vec![document::read(text)?]),
        SCHEMA => {
            let facts: Facts = document::read(text)?;
            let strange = |report: &&Report| report.schema != lab::SCHEMA;
            match facts.reports.iter().find(strange) {
                Some(report) => Err(foreign(&report.schema)),
                None => Ok(facts.reports),
            }
        }
        schema => Err(foreign(schema)),
    }
}

fn foreign(schema: &str) -> String {
    format!("`{schema}` is neither {} nor {SCHEMA}, which this superpage reads", lab::SCHEMA)
}
