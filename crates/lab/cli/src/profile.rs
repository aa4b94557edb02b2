//! `superpage lab profile`: records where a program misses the TLB, for designs that use TLB misses.

use std::path::PathBuf;

use lab::{End, PROFILE_SECONDS, Profile, Report};
use serde_json::json;

use super::what::{self, ExperimentArgs};
use super::words;
use crate::simulate::Parts;
use cli::exit::{self, Done, Failure};
use cli::files;

/// Run a workload with base pages and write where it misses the TLB.
///
/// The output is a profile, for --profile of `lab run`, `compare` and `explain`: spans of the program's memory with the
/// page-table walks to each 2M of them in 10 s, rounded down to two digits (docs/facts.md). The walks are counted, not
/// sampled.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    experiment: ExperimentArgs,

    /// Print JSON, with the experiment. --profile does not read it.
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Write the output to a file instead of standard output (-).
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Overwrite an existing file.
    #[arg(long, help_heading = "Output")]
    force: bool,

    /// Do not print progress.
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
}

const BASE: &str = "base";

pub fn run(args: Args) -> Result<Done, Failure> {
    let Args { mut experiment, json, output, force, quiet } = args;
    if experiment.profile.is_some() {
        return Err(Failure::usage(
            "--profile: a profile is made by a run on base pages, which needs none; leave it out, or give -o FILE to write one",
        ));
    }
    // This command does not need the touched pages.
    experiment.no_utilisation = true;
    let parts = Parts::read(&experiment)?;
    let base = what::design(BASE)?;
    files::check_outputs(output.as_deref(), "--output", None, force)?;
    if experiment.dry_run {
        let to = output.filter(|path| !files::is_stdout(path));
        let to = to.map_or("standard output".to_string(), |path| path.display().to_string());
        exit::print(&format!("{}  writes   {to}\n", parts.describe(&[&base])?))?;
        return Ok(Done::Fine);
    }
    let (report, profile) = counted(&parts, &base, quiet)?;
    if report.end != End::Done {
        let end = words::end_of(&report).unwrap_or_default();
        return Err(Failure::usage(format!("no profile: {end}; give it more --memory or --swap")));
    }
    let text = if json {
        exit::json_text("superpage.lab.profile/1", document(&report, &profile))?
    } else {
        text(&report, &profile)
    };
    files::deliver(output.as_deref(), force, &text)?;
    Ok(Done::Fine)
}

fn counted(
    parts: &Parts,
    base: &lab::sweep::NamedInput,
    quiet: bool,
) -> Result<(Report, Profile), Failure> {
    let doing = format!("{} with base pages", parts.workload.name);
    crate::simulate::shown(&doing, quiet, |watch| parts.profile(base, watch))
}

/// Formats the profile as `--profile` reads it.
fn text(report: &Report, profile: &Profile) -> String {
    let cell = &report.cell;
    let memory = units::ByteSize(cell.memory_bytes);
    let mut text = format!(
        "# Walks to base pages of each 2M in {PROFILE_SECONDS} s, from the beginning of the program's memory:\n\
         # {}, {}, {memory}, {}, seed {} (superpage lab profile).\nspans = [\n",
        cell.workload, cell.machine, cell.fragmentation, cell.seed
    );
    let mib = |size: units::ByteSize| size.bytes() >> 20;
    for span in &profile.spans {
        text += &format!("    \"{}M {}M {}\",\n", mib(span.from), mib(span.to), span.misses);
    }
    text + "]\n"
}

fn document(report: &Report, profile: &Profile) -> serde_json::Value {
    let cell = &report.cell;
    let spans = profile.spans.iter().map(|span| {
        json!({
            "from_bytes": span.from.bytes(),
            "to_bytes": span.to.bytes(),
            "walks_per_superpage": span.misses,
        })
    });
    let mut document = json!({
        "workload": cell.workload,
        "machine": cell.machine,
        "fragmentation": cell.fragmentation,
        "memory_bytes": cell.memory_bytes,
        "swap_bytes": cell.swap_bytes,
        "seed": cell.seed,
        "seconds": report.wall_cycles as f64 / (f64::from(report.mhz) * 1e6),
        "unit_seconds": PROFILE_SECONDS,
        "walks": profile.walks,
        "spans": spans.collect::<Vec<_>>(),
    });
    if !report.memory_parts.is_empty() {
        document["nodes_bytes"] = json!(cell.nodes_bytes);
        document["movable_bytes"] = json!(cell.movable_bytes);
    }
    document
}
