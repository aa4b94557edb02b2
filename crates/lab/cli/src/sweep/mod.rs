//! `superpage lab sweep`: many experiments, on one computer or many.

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

pub(crate) fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args),
        Command::Merge(args) => merge::run(args),
    }
}

/// A sweep that was run.
#[derive(Debug)]
pub struct Swept {
    /// What `sweep run` did.
    pub ran: Ran,
    /// What `sweep merge --partial` makes of it.
    pub merged: Merged,
}

/// A sweep's directory that is written to; for root only one that no other user can change.
fn writable(directory: &Path) -> Result<Store, Failure> {
    sys::trust::check_as_root(directory)
        .map_err(|error| Failure::usage(format!("{error}; choose another directory")))?;
    Ok(Store::at(directory))
}

/// `superpage lab sweep`: `plan` with these words, unless there are none; what is missing is run, on `jobs` threads (one
/// per CPU without), none begun after `max_time`; all that there is, merged. `step` gets how far it is.
///
/// # Errors
/// What the command would say, or that `going` broke. What was run before that is in the directory.
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
