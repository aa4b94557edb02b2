//! `superpage trace`: subcommands for recorded access streams, over the crate `trace`.

mod cat;
mod import;
mod info;
mod stdin;
mod verify;
pub mod words;

pub use import::filter;
pub use info::json as info;
pub use operations::traces::open;

use crate::exit::{Done, Failure};

/// Inspect, import and verify traces (.spt).
///
/// A trace holds a program's page accesses and memory-related system calls; `superpage lab` runs it
/// under any design on any simulated machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 `verify` found the trace damaged; 2 wrong usage, or a file that cannot be read.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Info(info::Args),
    Import(import::Args),
    Verify(verify::Args),
    Cat(cat::Args),
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        Command::Info(args) => info::run(args),
        Command::Import(args) => import::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Cat(args) => cat::run(args),
    }
}
