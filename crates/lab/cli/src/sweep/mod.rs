//! `superpage lab sweep`: many experiments, on one computer or many.

mod damage;
mod merge;
mod on;
mod plan;
mod run;
mod status;

use std::path::PathBuf;

use cli::exit::{Done, Failure};

/// Run designs x machines x workloads x fragmentations x seeds.
///
/// `plan` writes a directory, `run` fills it (or one shard of it: on any computer, in any order, as
/// often as needed; all of it on a cluster by `--on slurm` or `--on ray`), `status` tells what is there,
/// `merge` makes one Parquet and one JSON file, the same bytes however it was run. See docs/sweeps.md.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(plan::Args),
    Run(run::Args),
    Status(status::Args),
    Merge(merge::Args),
}

/// A sweep's directory.
#[derive(Debug, clap::Args)]
struct Directory {
    /// The sweep's directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args),
        Command::Merge(args) => merge::run(args),
    }
}
