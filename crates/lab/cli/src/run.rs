//! `superpage lab run`: runs one design.

use design::Design;
use lab::Report;
use lab::analysis::figures;
use lab::sweep::NamedInput;

use super::outputs::Outputs;
use super::what::{self, ExperimentArgs};
use super::words;
use crate::documents::{Going, Printed};
use crate::simulate::Parts;
use cli::exit::{self, Done, Failure};
use operations::json::to_json as json;

/// Note at the end of a report on a design with a `[fault]` table.
const NO_FAULT_TABLE: &str = "\n* the design's [fault] table has no effect here; superpage lab faults -d DESIGN simulates it\n";

/// Run a workload under one design and say where its time went.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The design: a name (see `superpage design list`) or a file.
    #[arg(long, short, value_name = "DESIGN")]
    design: String,

    #[command(flatten)]
    experiment: ExperimentArgs,

    #[command(flatten)]
    outputs: Outputs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let design = what::design(&args.design)?;
    let parts = Parts::read(&args.experiment)?;
    args.outputs.check()?;
    if args.experiment.dry_run {
        exit::print(&parts.describe(&[&design])?)?;
        return Ok(Done::Fine);
    }
    let reports = parts.run_shown(&[&design], args.outputs.quiet)?;
    let text =
        if args.outputs.is_json() { json(&reports[0])? } else { table(&design, &reports[0])? };
    args.outputs.write(&text, &reports)?;
    Ok(Done::Fine)
}

fn table(design: &NamedInput, report: &Report) -> Result<String, Failure> {
    let has_fault_table = lab::has_fault_table(&Design::from_toml(&design.name, &design.content)?);
    Ok(words::run(report) + if has_fault_table { NO_FAULT_TABLE } else { "" })
}

/// Runs the design. Writes nothing.
pub fn printed(args: &Args, going: Going) -> Result<Printed, Failure> {
    let design = what::design(&args.design)?;
    let report = Parts::read(&args.experiment)?.run(&[&design], |_| going())?.remove(0);
    let figures = vec![figures(&report, None)];
    Ok(Printed { json: json(&report)?, text: table(&design, &report)?, figures })
}
