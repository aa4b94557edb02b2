//! `hugeadm`: configures pools, related settings and transparent superpages, with the options of libhugetlbfs.
//!
//! All options are checked before anything is changed. Changes are then made one after the other in libhugetlbfs'
//! order. If a change fails, an error is printed, the remaining changes are still made, and the exit code is 1.

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

/// What every part of `hugeadm` needs.
#[derive(Debug)]
pub struct Context<'a> {
    pub root: &'a Root,
    pub voice: &'a Voice,
    pub dry_run: bool,
}

/// Whether a change was made fully.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    Full,
    Part,
}

pub fn run(root: &Root, voice: &mut Voice, words: Vec<OsString>) -> Result<(), Stop> {
    let request = options::read(voice, words)?;
    let context = Context { root, voice, dry_run: request.dry_run };
    if !request.dry_run && request.depends_on_pools() {
        context.complain(&pool_guard::restore_orphaned(root));
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
        // Print this as an error but succeed: having no mount is a valid answer.
        None => {
            context.voice.error("No hugetlbfs mount points found");
            Ok(Completion::Full)
        }
    }
}

/// Formats the variables that pass the verbosity on to the old tools; scripts that evaluate the output of a dry run
/// expect them.
fn verbosity(level: u8) -> String {
    let debug = if level == super::voice::HIGHEST { "HUGETLB_DEBUG='yes'\n" } else { "" };
    format!("{debug}HUGETLB_VERBOSE='{level}'\n")
}

impl Context<'_> {
    /// Warns about settings that a killed superpage left and that were restored.
    fn complain(&self, inherited: &[Restoration]) {
        for restoration in inherited {
            self.voice.warn(format!("left by a killed superpage: {restoration}"));
        }
    }
}

/// Rewords a pool error for hugeadm: replaces remedies that name `superpage pool`.
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
