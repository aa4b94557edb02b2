//! `superpage lab sweep`: many experiments, on one or many computers.

mod damage;
mod merge;
mod on;
mod plan;
mod run;
mod status;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use lab::sweep::Progress;
use lab::sweep::{Merged, Ran, Shard, Store};

use crate::documents::{Going, parse};
use cli::exit::{Done, Failure};

/// Run designs x machines x workloads x fragmentations x seeds.
///
/// `plan` writes a directory, `run` fills it (or one shard of it: on any computer, in any order, as often as needed;
/// all of it on a cluster by `--on slurm` or `--on ray`), `status` prints what is done, `merge` makes one Parquet and
/// one JSON file, the same bytes however the sweep was run. See docs/sweeps.md.
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

/// The directory argument of the subcommands.
#[derive(Debug, clap::Args)]
struct Directory {
    /// The sweep's directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args),
        Command::Merge(args) => merge::run(args),
    }
}

/// A completed sweep.
#[derive(Debug)]
pub struct Swept {
    /// The outcome of `sweep run`.
    pub ran: Ran,
    /// The result of `sweep merge --partial`.
    pub merged: Merged,
}

/// Opens a sweep's directory for writing. For root, fails if other users can change the directory.
fn writable(directory: &Path) -> Result<Store, Failure> {
    sys::trust::check_as_root(directory)
        .map_err(|error| Failure::usage(format!("{error}; choose another directory")))?;
    Ok(Store::at(directory))
}

/// Runs `superpage lab sweep`. Plans with the arguments `plan` (keeps the existing plan if empty). Runs the missing
/// cells on `jobs` threads (default: one per CPU), starting none after `max_time`. Merges the results. `step` gets the
/// progress.
///
/// # Errors
/// The error of the command, or that `going` cancelled it. Earlier results stay in the directory.
pub fn whole(
    directory: &Path,
    plan: &[String],
    jobs: Option<NonZeroUsize>,
    max_time: Option<Duration>,
    going: Going,
    mut step: impl FnMut(Progress) + Send,
) -> Result<Swept, Failure> {
    let store = writable(directory)?;
    if !plan.is_empty() {
        self::plan::write(&parse(plan)?)?;
    }
    let plan = store.plan().map_err(Failure::usage)?;
    let began = Instant::now();
    let step = |now: Progress| {
        step(now);
        match max_time {
            Some(most) if began.elapsed() > most => ControlFlow::Break(()),
            _ => going(),
        }
    };
    let jobs = jobs.map_or(0, NonZeroUsize::get);
    let ran = self::run::shard(&store, &plan, Shard::WHOLE, jobs, going, step)?;
    if going().is_break() {
        return Err(Failure::usage("stopped"));
    }
    let merged = lab::sweep::merge(&[store], true).map_err(Failure::usage)?;
    Ok(Swept { ran, merged })
}
