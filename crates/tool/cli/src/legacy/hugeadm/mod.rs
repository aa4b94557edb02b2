//! `hugeadm`: the pools, what belongs to them, and transparent superpages, under the old options.
//!
//! Everything that is asked for is checked before the first of it is done. What is done is done one
//! after the other in libhugetlbfs' order; a failure is said and the rest is done all the same, and
//! the exit code is 1.

mod explain;
mod lists;
mod mounting;
mod options;
mod pools;
mod settings;
mod swap;

pub use options::HELP;

use std::ffi::OsString;

use host::Root;
use host::journal::Restoration;
use host::pool::{PoolError, Status, mounts};

use super::stop::Stop;
use super::voice::Voice;
use crate::exit::{self, Failure};
use operations::pool_guard;

/// What every part needs to know.
#[derive(Debug)]
pub struct Context<'a> {
    pub root: &'a Root,
    pub voice: &'a Voice,
    pub dry_run: bool,
}

/// How far something got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    Full,
    Part,
}

pub fn run(root: &Root, voice: &mut Voice, words: Vec<OsString>) -> Result<(), Stop> {
    let request = options::read(voice, words)?;
    let context = Context { root, voice, dry_run: request.dry_run };
    if !request.dry_run && request.goes_by_pools() {
        context.complain(&pool_guard::give_back_of_the_dead(root));
    }
    let status = Status::read(root).map_err(refused)?;
    let changes = settings::changes(&context, &request)?;
    let steps = pools::plan(&context, &status, &request)?;
    let plans = mounting::plan(&context, &status, &request)?;
    let swap = swap::plan(&context, &request, &steps)?;
    if request.dry_run {
        exit::print(&verbosity(voice.level()))?;
    }

    let mut ending = Ending { voice, failed: false };
    if request.list_mounts {
        ending.take(list_mounts(&context));
    }
    if request.pool_list {
        ending.take(print(&lists::pools(root)));
    }
    if let Some(able) = request.zone_movable {
        ending.take(settings::zone_movable(&context, able));
    }
    for change in &changes {
        ending.take(change.grant(&context));
    }
    if !steps.is_empty() {
        ending.take(pools::carry_out(&context, &request, &steps, swap));
    }
    for plan in &plans {
        ending.take(mounting::mount(&context, plan));
    }
    if request.page_sizes {
        let mounts = mounts::mounts(root).map_err(|error| refused(error.into()))?;
        ending.take(print(&lists::usable_sizes(root, &mounts)));
    }
    if request.page_sizes_all {
        ending.take(print(&lists::all_sizes(root)));
    }
    if request.explain {
        ending.take(explain::explain(&context));
    }
    if ending.failed { Err(Stop::Said) } else { Ok(()) }
}

/// Whether all of it was done so far.
struct Ending<'a> {
    voice: &'a Voice,
    failed: bool,
}

impl Ending<'_> {
    fn take(&mut self, done: Result<Completion, Failure>) {
        if let Err(failure) = &done {
            self.voice.error(failure.to_string().replace('\n', " "));
        }
        self.failed |= !matches!(done, Ok(Completion::Full));
    }
}

fn print(text: &str) -> Result<Completion, Failure> {
    exit::print(text).map(|()| Completion::Full)
}

fn list_mounts(context: &Context) -> Result<Completion, Failure> {
    let mounts = mounts::mounts(context.root).map_err(|error| refused(error.into()))?;
    match lists::mounts(&mounts) {
        Some(table) => print(&table),
        // Said as an error, but none: that there is no mount is an answer.
        None => {
            context.voice.error("No hugetlbfs mount points found");
            Ok(Completion::Full)
        }
    }
}

/// The variables by which the old tools told each other how much to say; scripts that evaluate a dry
/// run expect them.
fn verbosity(level: u8) -> String {
    let debug = if level == super::voice::HIGHEST { "HUGETLB_DEBUG='yes'\n" } else { "" };
    format!("{debug}HUGETLB_VERBOSE='{level}'\n")
}

impl Context<'_> {
    /// Says what a killed superpage had left and what was put back.
    fn complain(&self, inherited: &[Restoration]) {
        for restoration in inherited {
            self.voice.warn(format!("left by a killed superpage: {restoration}"));
        }
    }
}

/// A pool's error as this command's: its remedies are those of `superpage pool`, where they differ.
fn refused(error: PoolError) -> Failure {
    let line = match &error {
        PoolError::NoSuchPool { .. } => format!("unknown page size: {error}"),
        PoolError::NoHeadroom { .. } => error.to_string().replace(" (--force tries anyway)", ""),
        PoolError::GiganticOvercommit { size } => format!(
            "pages of {size} cannot be made on demand: the kernel makes pages this large only for \
             the pool itself; use --pool-pages-min"
        ),
        _ => error.to_string(),
    };
    if error.is_usage() { Failure::usage(line) } else { Failure::cannot(line) }
}
