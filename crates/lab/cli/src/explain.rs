//! `superpage lab explain`: explains why one design was faster than another.

use std::path::Path;

use lab::Report;
use lab::analysis::{explain, incomparable};

use super::compare;
use super::outputs::Outputs;
use super::what::{self, ExperimentArgs};
use crate::simulate::Parts;
use cli::exit::{self, Done, Failure};
use operations::json::to_json as json;

/// Tell in words why one design was faster than another.
///
/// Two designs need a --workload, and are run; two results (FILE.json, written by `lab run --json`) are read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A design, or a result.
    a: String,

    /// Another.
    b: String,

    #[command(flatten)]
    experiment: Option<ExperimentArgs>,

    #[command(flatten)]
    outputs: Outputs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.outputs.check()?;
    let is_result = |word: &String| word.ends_with(".json");
    let reports = match (is_result(&args.a), is_result(&args.b)) {
        (true, true) if args.experiment.is_some() => {
            return Err(Failure::usage("results were run already; leave --workload away"));
        }
        (true, true) => vec![one(&args.a)?, one(&args.b)?],
        (false, false) => match simulate(&args)? {
            Some(reports) => reports,
            None => return Ok(Done::Fine),
        },
        _ => return Err(Failure::usage("give two designs, or two results, not one of each")),
    };
    if let Some(what) = incomparable(&reports[0].cell, &reports[1].cell) {
        return Err(Failure::usage(format!(
            "{} and {}: of different {what}s, so their times say nothing of the designs; run both on \
             one {what}",
            args.a, args.b
        )));
    }
    let explanation = explain(&reports[0], &reports[1]);
    let text = match args.outputs.is_json() {
        true => json(&explanation)?,
        false => explanation.sentences.join("\n") + "\n",
    };
    args.outputs.write(&text, &reports)?;
    Ok(Done::Fine)
}

/// Runs two designs; `None` for a dry run.
fn simulate(args: &Args) -> Result<Option<Vec<Report>>, Failure> {
    let words = [args.a.clone(), args.b.clone()];
    let designs = what::several(&words, "design", what::design)?;
    let Some(experiment) = &args.experiment else {
        return Err(Failure::usage("two designs are explained on a workload; name a --workload"));
    };
    let parts = Parts::read(experiment)?;
    let designs: Vec<_> = designs.iter().collect();
    if experiment.dry_run {
        exit::print(&parts.describe(&designs)?)?;
        return Ok(None);
    }
    parts.run_shown(&designs, args.outputs.quiet).map(Some)
}

/// Reads a file that holds a single report.
fn one(word: &str) -> Result<Report, Failure> {
    let mut reports = compare::read(Path::new(word))?;
    match reports.len() {
        1 => Ok(reports.remove(0)),
        count => Err(Failure::usage(format!(
            "{word}: holds {count} runs; explain them with `lab compare --from {word} --explain`"
        ))),
    }
}
