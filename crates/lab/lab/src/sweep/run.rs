//! Runs a shard: distributes its groups over threads, and writes each group when it completes. Threads share only the
//! directory, so their number does not change the result.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use mm_sim::Layout;
use rayon::prelude::*;
use serde::Serialize;

use super::{Contents, Damage, Group, Hash, Plan, Shard, Store, SweepError};
use crate::{ENGINE, Report};

/// Result of running a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// Cells of the shard.
    pub cells: usize,
    /// Cells that already had a report.
    pub present: usize,
    /// Cells that this run completed.
    pub done: usize,
    /// Files with damaged lines; this run repeated their cells.
    pub damaged: Vec<super::Damage>,
    /// Failed groups: description and reason.
    pub failed: Vec<(String, String)>,
    /// Whether `step` stopped the run.
    pub stopped: bool,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Cells completed in this run.
    pub done: usize,
    /// Cells to run.
    pub wanted: usize,
}

/// Result of a pass over a group: the reports of its members in order, or the error.
pub type Ended = Result<Vec<Report>, String>;

/// Runs the missing cells of `shard` on `jobs` threads (0: one per CPU).
///
/// `pass` runs a group. `step` is called after each group and may break; passes in progress then complete and are kept.
/// A pass that fails or panics does not affect the others; `Ran::failed` lists it.
///
/// # Errors
/// [`SweepError`]: another process runs the shard, its directory cannot be read, or threads cannot be started.
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
    // A thread without a pass only costs memory.
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
    // There are few groups, so each is a separate task.
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

/// Checks that the reports belong to the requested designs. A mix-up would otherwise go unnoticed.
fn check(group: &Group, reports: Vec<Report>) -> Ended {
    let names: Vec<&str> = reports.iter().map(|report| report.cell.design.as_str()).collect();
    let wanted: Vec<&str> = group.members.iter().map(|one| one.design.name.as_str()).collect();
    if names == wanted {
        return Ok(reports);
    }
    Err(format!("asked for {}, got {}", wanted.join(", "), names.join(", ")))
}

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

// Merging of shards. Rows are sorted by hash, so the bytes do not depend on how the shards ran.

/// The version of the merged JSON's layout.
pub const MERGE_SCHEMA: &str = "superpage.lab.sweep/1";

/// A merged sweep.
#[derive(Debug)]
pub struct Merged {
    /// Every report, as JSON.
    pub json: String,
    /// One row per report, as Parquet; `None` without the feature `parquet`.
    pub parquet: Option<Vec<u8>>,
    /// Number of rows.
    pub rows: usize,
    /// Cells of the plan.
    pub planned: usize,
    /// Files with damaged lines.
    pub damaged: Vec<Damage>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    engine: &'a str,
    planned: usize,
    cells: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    hash: Hash,
    report: &'a Report,
}

/// Merges the results of directories that have the same plan. Reports of cells outside the plan are omitted. Without
/// `partial`, every cell must have a report.
///
/// # Errors
/// [`SweepError`]: a directory without the plan, two different reports of a cell, or, without `partial`, a cell without
/// a report.
pub fn merge(stores: &[Store], partial: bool) -> Result<Merged, SweepError> {
    let (plan, reports, damaged) = read(stores)?;
    let cells: Vec<Hash> =
        plan.groups().iter().flat_map(|g| g.members.iter().map(|one| one.cell)).collect();
    let mut rows: Vec<(Hash, &Report)> =
        cells.iter().filter_map(|cell| Some((*cell, reports.get(cell)?))).collect();
    rows.sort_by_key(|(cell, _)| *cell);
    let (planned, found) = (cells.len(), rows.len());
    if found < planned && !partial {
        return Err(SweepError::Incomplete { missing: planned - found, planned });
    }
    #[cfg(feature = "parquet")]
    let parquet = Some(super::parquet::bytes(&super::columns::columns(&rows))?);
    #[cfg(not(feature = "parquet"))]
    let parquet = None;
    let cells = rows.iter().map(|(hash, report)| Row { hash: *hash, report }).collect();
    let document = Document { schema: MERGE_SCHEMA, engine: ENGINE, planned, cells };
    let mut json = serde_json::to_string(&document).expect("reports are plain data");
    json.push('\n');
    Ok(Merged { json, parquet, rows: found, planned, damaged })
}

type All = (Plan, BTreeMap<Hash, Report>, Vec<Damage>);

fn read(stores: &[Store]) -> Result<All, SweepError> {
    let mut all: Option<All> = None;
    for store in stores {
        let (plan, contents) = (store.plan()?, store.read()?);
        let Some((first, reports, damaged)) = &mut all else {
            all = Some((plan, contents.reports, contents.damaged));
            continue;
        };
        if plan != *first {
            return Err(SweepError::PlansDiffer {
                first: stores[0].directory().to_path_buf(),
                second: store.directory().to_path_buf(),
            });
        }
        damaged.extend(contents.damaged);
        for (cell, report) in contents.reports {
            if reports.get(&cell).is_some_and(|old| *old != report) {
                return Err(SweepError::Conflict { cell, path: store.directory().to_path_buf() });
            }
            reports.insert(cell, report);
        }
    }
    all.ok_or_else(|| SweepError::NoPlan("no directory".into()))
}

/// Progress of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The shard.
    pub shard: Shard,
    /// Number of cells.
    pub cells: usize,
    /// Number of cells with a report.
    pub done: usize,
    /// Number of passes with missing cells.
    pub passes_left: usize,
}

impl State {
    /// Computes the progress of `shard` with these groups.
    pub fn new(shard: Shard, groups: &[Group], contents: &Contents) -> Self {
        let mut state = Self { shard, cells: 0, done: 0, passes_left: 0 };
        for group in groups {
            let is_done = |member: &&super::Member| contents.reports.contains_key(&member.cell);
            let (cells, done) = (group.members.len(), group.members.iter().filter(is_done).count());
            state.cells += cells;
            state.done += done;
            state.passes_left += usize::from(done < cells);
        }
        state
    }

    /// Computes the progress of the whole sweep.
    pub fn of_whole(plan: &Plan, contents: &Contents) -> Self {
        Self::new(Shard::WHOLE, &plan.groups(), contents)
    }
}

/// Returns the progress of each of `of` shards of all groups, by index.
pub fn states(groups: &[Group], contents: &Contents, of: u32) -> Vec<State> {
    let shards = (0..of).filter_map(|index| Shard::new(index, of));
    shards.map(|shard| State::new(shard, &shard.select(groups), contents)).collect()
}
