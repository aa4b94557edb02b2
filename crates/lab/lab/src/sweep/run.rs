//! Running a shard: its groups over threads, each written as it ends. The only file of the laboratory
//! that knows threads; they share nothing but the directory, so their number changes no byte.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use mm_sim::Layout;
use rayon::prelude::*;

use super::{Group, Hash, Plan, Shard, Store, SweepError};
use crate::Report;

/// What a run of a shard did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// Cells of the shard.
    pub cells: usize,
    /// Cells that were there before.
    pub present: usize,
    /// Cells that were run now.
    pub done: usize,
    /// Files with lines that could not be used; their cells were run again.
    pub damaged: Vec<super::Damage>,
    /// Groups that could not be run, by what they are, and why.
    pub failed: Vec<(String, String)>,
    /// Whether `step` stopped it.
    pub stopped: bool,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Cells done now.
    pub done: usize,
    /// Cells to do now.
    pub wanted: usize,
}

/// How a pass over a group ends: the reports of its members in order, or why there are none.
pub type Ended = Result<Vec<Report>, String>;

/// Runs what is missing of `shard`, on `jobs` threads (0: one per CPU).
///
/// `pass` runs a group. `step` is called after each and may break; passes under way are finished and
/// kept. A pass that fails, or panics, is reported at the end and costs the others nothing.
///
/// # Errors
/// [`SweepError`]: the shard is run by somebody else, its directory cannot be read, or there are no threads.
pub fn run(
    store: &Store,
    plan: &Plan,
    shard: Shard,
    jobs: usize,
    pass: impl Fn(&Group) -> Ended + Sync,
    step: impl FnMut(Progress) -> ControlFlow<()> + Send,
) -> Result<Ran, SweepError> {
    let held = store.hold(shard)?;
    let groups = shard.select(&plan.groups());
    let contents = store.read_groups(&groups)?;
    let present: BTreeSet<Hash> = contents.reports.keys().copied().collect();
    let cells = groups.iter().map(|group| group.members.len()).sum();
    let missing = missing(groups, &present);
    let wanted: usize = missing.iter().map(|group| group.members.len()).sum();
    let mut ran =
        Ran { cells, present: cells - wanted, damaged: contents.damaged, ..Ran::default() };

    let stop = AtomicBool::new(false);
    let shared = Mutex::new((step, 0, Vec::new()));
    // No more threads than passes: one without a pass only takes memory.
    let jobs = jobs.min(missing.len().max(1));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build()?;
    let damaged = &ran.damaged;
    let one = |group: &Group| -> Result<(), SweepError> {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let ended = catch_unwind(AssertUnwindSafe(|| pass(group)))
            .unwrap_or_else(|_| Err("the simulation failed an assertion".to_string()));
        let ended = ended.and_then(|reports| check(group, reports));
        let written = match &ended {
            Ok(reports) => store.add(&held, group, reports, damaged),
            Err(_) => Ok(()),
        };
        let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (step, done, failed) = &mut *shared;
        match ended {
            Ok(_) if written.is_ok() => *done += group.members.len(),
            Ok(_) => {}
            Err(why) => failed.push((name(group), why)),
        }
        if step(Progress { done: *done, wanted }).is_break() {
            stop.store(true, Ordering::Relaxed);
        }
        written
    };
    // The largest step is a group, and they are few: each is a task of its own.
    pool.install(|| missing.par_iter().with_max_len(1).try_for_each(one))?;
    let (_, done, failed) = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ran.done = done;
    ran.failed = failed;
    ran.failed.sort();
    ran.stopped = stop.load(Ordering::Relaxed) && ran.present + ran.done < ran.cells;
    Ok(ran)
}

fn missing<'a>(groups: Vec<Group<'a>>, present: &BTreeSet<Hash>) -> Vec<Group<'a>> {
    let rest = |mut group: Group<'a>| {
        group.members.retain(|member| !present.contains(&member.cell));
        (!group.members.is_empty()).then_some(group)
    };
    groups.into_iter().filter_map(rest).collect()
}

/// A pass that mixed its reports up would be found years later.
fn check(group: &Group, reports: Vec<Report>) -> Ended {
    let names: Vec<&str> = reports.iter().map(|report| report.cell.design.as_str()).collect();
    let wanted: Vec<&str> = group.members.iter().map(|one| one.design.name.as_str()).collect();
    if names == wanted {
        return Ok(reports);
    }
    Err(format!("asked for {}, got {}", wanted.join(", "), names.join(", ")))
}

/// What a group is, in words.
fn name(group: &Group) -> String {
    let Layout { nodes, movable } = &group.layout;
    let divided = match group.layout == Layout::default() {
        true => String::new(),
        false => format!(" (nodes {nodes}, movable {movable})"),
    };
    format!(
        "{} on {}, {}, {}{divided}, seed {}",
        group.workload.name, group.machine.name, group.fragmentation.name, group.memory, group.seed
    )
}
