//! `superpage manage`: superpages for running processes, and base pages again.

mod once;
mod words;

use crate::exit::{Done, Failure};
use crate::targets::TargetArgs;

/// Put running processes on superpages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Put the processes' memory on superpages now, and end
    #[arg(long, required_unless_present = "undo", conflicts_with = "undo")]
    once: bool,

    /// Split the superpages that were made again; without processes, those of all
    #[arg(long)]
    undo: bool,

    #[command(flatten)]
    targets: TargetArgs,

    #[command(flatten)]
    limits: once::OnceArgs,

    /// Say what would be done; change nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let Args { undo, dry_run, json, .. } = args;
    once::run(&args.targets, &args.limits, once::Mode { undo, dry_run, json })
}
