//! `superpage pool`: subcommands for hugetlb pools, over `host::pool`.

mod boot;
mod demote;
mod ensure;
mod list;
mod mounts;
mod overcommit;
mod peak;
mod plan;
pub mod progress;
mod resize;
mod settings;
pub mod show;
mod users;

use std::path::Path;

use host::Root;
use host::journal::{Journal, Restoration};
use host::pool::{PoolError, PoolName, Status};

use crate::exit::{self, Done, Failure, print_json};
use operations::pool_guard;

/// Show and resize hugetlb pools.
///
/// Without a subcommand, lists the pools. A SPEC is SIZE:AMOUNT. SIZE is a page size (2M, 1G or
/// `default`), AMOUNT is pages (512), bytes with a unit (1G) or percent of the pool (25%); with a
/// sign (+512) the pool grows or shrinks by that amount. The old value of every setting is saved
/// before it is changed: if superpage is killed in between, `superpage restore` restores it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub struct Args {
    #[command(flatten)]
    list: list::ListArgs,

    #[command(subcommand)]
    command: Option<Command>,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 a pool did not get all that was asked for, or `ensure --check` found a \
difference; 2 wrong usage; 3 not possible on this machine.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::ListArgs),
    Set(resize::Args),
    /// Grow pools: 2M:512 by pages, 2M:1G by bytes.
    ///
    /// Compacts memory if needed and continues while it makes progress; the result is read back. A pool
    /// that got only part of the pages keeps them, and the exit code is 1.
    #[command(mut_arg("specs", |specs| specs.help(resize::GROW_SPEC)))]
    Grow(resize::Args),
    /// Shrink pools: 2M:512 by pages, 2M:1G by bytes.
    #[command(mut_arg("specs", |specs| specs.help(resize::SHRINK_SPEC)))]
    Shrink(resize::Args),
    Overcommit(overcommit::Args),
    Demote(demote::Args),
    Mounts(mounts::Args),
    Users(users::Args),
    Shm(settings::ShmArgs),
    MinFree(settings::MinFreeArgs),
    Boot(boot::Args),
    Ensure(ensure::Args),
    Plan(plan::Args),
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        None => list::run(args.list),
        Some(Command::List(args)) => list::run(args),
        Some(Command::Set(args)) => resize::run(args, resize::Verb::Set),
        Some(Command::Grow(args)) => resize::run(args, resize::Verb::Grow),
        Some(Command::Shrink(args)) => resize::run(args, resize::Verb::Shrink),
        Some(Command::Overcommit(args)) => overcommit::run(args),
        Some(Command::Demote(args)) => demote::run(args),
        Some(Command::Mounts(args)) => mounts::run(args),
        Some(Command::Users(args)) => users::run(args),
        Some(Command::Shm(args)) => settings::shm(args),
        Some(Command::MinFree(args)) => settings::min_free(args),
        Some(Command::Boot(args)) => boot::run(args),
        Some(Command::Ensure(args)) => ensure::run(args),
        Some(Command::Plan(args)) => plan::run(args),
    }
}

/// Flags of commands that change a setting.
#[derive(Debug, clap::Args)]
struct ChangeArgs {
    /// Print what would be done; change nothing.
    #[arg(long)]
    dry_run: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Formats this command line with `sudo` and without `--dry-run`.
fn as_root() -> String {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--dry-run").collect();
    format!(": sudo superpage {}", report::format::command(&words))
}

/// Prints after a dry run that the change needs root, unless this process has it.
fn say_if_root_is_needed() {
    if sys::param::effective_user() != 0 {
        exit::say(&format!("this needs root{}", as_root()));
    }
}

fn status() -> Result<Status, Failure> {
    Ok(Status::read(&Root::real())?)
}

/// Opens the journal, and prints what the journal restored after a killed superpage.
fn journal() -> Result<Journal, Failure> {
    let journal = Journal::open(&pool_guard::journal_dir(), &Root::real());
    let journal = journal.map_err(PoolError::from)?;
    complain(journal.inherited());
    Ok(journal)
}

fn complain(inherited: &[Restoration]) {
    for restoration in inherited {
        exit::say(&format!("left by a killed superpage: {restoration}"));
    }
}

/// Restores what killed commands left changed. Called before a change is planned.
fn restore_orphaned() {
    complain(&pool_guard::restore_orphaned(&Root::real()));
}

/// Runs one change under the journal: keeps it on success, undoes it on failure.
fn journalled<T>(change: impl FnOnce(&mut Journal) -> Result<T, PoolError>) -> Result<T, Failure> {
    let mut journal = journal()?;
    let done = change(&mut journal)?;
    journal.keep().map_err(PoolError::from)?;
    Ok(done)
}

fn journal_dir() -> impl AsRef<Path> {
    pool_guard::journal_dir()
}

fn pool_name(text: &str) -> Result<PoolName, host::pool::SpecError> {
    text.parse()
}
