//! `superpage-lab`, the program behind `superpage lab`: superpage designs on a simulated machine. Its subcommands use
//! the crate `lab`.
//!
//! A library, because the Python module makes the same runs ([`documents`]) and tests read results back.
#![forbid(unsafe_code)]

mod compare;
pub mod documents;
mod explain;
mod faults;
mod lists;
mod names;
mod outputs;
mod profile;
mod run;
mod simulate;
pub mod sweep;
mod table;
mod validate;
mod what;
mod words;

pub use compare::reports;
pub use validate::validation;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use cli::docs;
use cli::exit::{self, Done, Failure};

#[derive(Debug, Parser)]
#[command(name = "lab", bin_name = "superpage lab", max_term_width = 100)]
#[command(about = cli::lab::ABOUT, long_about = cli::lab::LONG_ABOUT, after_help = HELP)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Examples:
  superpage lab compare -d linux-4.3 -d sync-64 --workload gups:size=8G --fragmentation frag-50
  superpage lab explain linux-4.3 sync-64 --workload gups:size=8G
  superpage lab profile --workload gups:size=8G -o gups.toml
  superpage lab run -d cbmm --workload gups:size=8G --profile gups.toml
  superpage lab validate -d linux-6 -d freebsd -w gups:size=1G         # root
  superpage lab sweep plan -o results --design base --design linux-4.3 --workload gups --seeds 1-10";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(run::Args),
    Compare(compare::Args),
    Explain(explain::Args),
    Faults(faults::Args),
    Profile(profile::Args),
    Table(table::Args),
    Validate(Box<validate::Args>),
    Sweep(sweep::Args),
    Machines(lists::MachinesArgs),
    Workloads(lists::WorkloadsArgs),
    /// Completions of the whole command; called by `superpage completions`.
    #[command(hide = true)]
    Completions(docs::CompletionsArgs),
    /// Man pages of the whole command; called by `superpage man`.
    #[command(hide = true)]
    Man(docs::ManArgs),
}

/// The main function.
pub fn main() -> ExitCode {
    operations::reporter::report_to(cli::progress::Terminal);
    cli::on_enough_stack(|| {
        lab::side_by_side::start_threads();
        match Args::try_parse() {
            Ok(args) => exit::finish(run(args.command)),
            Err(error) => exit::of_clap(&error, &[]),
        }
    })
}

fn run(command: Command) -> Result<Done, Failure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Faults(args) => faults::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Table(args) => table::run(args),
        Command::Validate(args) => validate::run(*args),
        Command::Sweep(args) => sweep::run(args),
        Command::Machines(args) => lists::machines(args),
        Command::Workloads(args) => lists::workloads(args),
        Command::Completions(args) => names::completions(&args, whole()),
        Command::Man(args) => docs::man(&args, whole()),
    }
}

/// Returns the whole command: `superpage` with this program as its `lab`.
fn whole() -> clap::Command {
    let names: Vec<String> =
        cli::command().get_subcommands().map(|one| one.get_name().to_string()).collect();
    // `mut_subcommand` moves a subcommand to the end, so change all of them, which keeps their order.
    names.iter().fold(cli::command(), |whole, name| {
        whole.mut_subcommand(name, |own| if name == "lab" { Args::command() } else { own })
    })
}
