//! `superpage lab`: superpage designs on a simulated machine, as subcommands over the room `lab`.

mod compare;
mod explain;
mod faults;
mod lists;
pub mod outputs;
mod profile;
pub mod progress;
mod run;
mod simulate;
mod sweep;
mod table;
pub mod what;
mod words;

pub use progress::Progress;

use fault_scaling::FaultsError;
use lab::LabError;
use lab::sweep::SweepError;

use crate::exit::{Done, Failure};

/// Try superpage designs on a simulated machine.
///
/// The same experiment gives the same report, bit by bit, on any computer. A machine that is too
/// small for the workload is an outcome in the report, not an error.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  superpage lab compare -d linux-4.3 -d sync-64 --workload gups:size=8G --fragmentation frag-50
  superpage lab explain linux-4.3 sync-64 --workload gups:size=8G
  superpage lab profile --workload gups:size=8G -o gups.toml && superpage lab run -d cbmm -w gups:size=8G --profile gups.toml
  superpage lab sweep plan -o results --design base --design linux-4.3 --workload gups --seeds 1-10";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(run::Args),
    Compare(compare::Args),
    Explain(explain::Args),
    Faults(faults::Args),
    Profile(profile::Args),
    Table(table::Args),
    Sweep(sweep::Args),
    Machines(lists::MachinesArgs),
    Workloads(lists::WorkloadsArgs),
}

pub fn run(args: Args) -> Result<Done, Failure> {
    // Simulated page tables and frames are read at random.
    crate::HEAP.advise();
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Faults(args) => faults::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Table(args) => table::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Machines(args) => lists::machines(args),
        Command::Workloads(args) => lists::workloads(args),
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::usage(error)
    }
}

impl From<FaultsError> for Failure {
    fn from(error: FaultsError) -> Self {
        Self::usage(error)
    }
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Self {
        Self::usage(error)
    }
}
