//! Runs a benchmark: every arm with every number of threads, interleaved, each in its own process. Settings are changed
//! for the runs of one row, and restored.

pub mod arms;
pub mod costs;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::workload::{Outcome, Settings, Workload};
use experiment::bench::{Cell, Document, Row, SCHEMA};
use experiment::document::{Arm as Planned, LeftOut};
use experiment::execute::{Executor, Interrupt, Launcher, Options, Run, RunError};
use experiment::library::PreloadReport;
use experiment::procedure::{self, Question, Settings as Schedule, Stopped};
use experiment::sample::{Purpose, Sample};
use experiment::stats::stopping::Rule;
use experiment::watch::Depth;
use host::journal::Knob;
use host::{Root, Snapshot, Thp};
use launch::{Facts, Recipe};
use units::PageSize;

use crate::Failure;
use crate::jobs::Bar;
use crate::jobs::WarmMemory;
use crate::jobs::arms::RequestedArms;
use crate::pool_guard::{self, OvercommitGuard, PoolPolicy};
use crate::reporter::say;
use crate::{design, facts, signals};

/// Outcome of a benchmark.
pub enum BenchOutcome {
    /// Measurements.
    Document(Box<Document>),
    /// The plans of a dry run.
    Plans(Box<BenchPlans>),
    /// The signal that interrupted the benchmark; the caller ends by that signal.
    Signal(i32),
}

/// The plans of a benchmark's rows.
#[derive(Debug)]
pub struct BenchPlans {
    /// Plan of each row.
    pub plans: Vec<launch::Plan>,
    /// Arms that would not run, with the reasons.
    pub left_out: Vec<LeftOut>,
    /// Each change to a hugetlb pool, as text.
    pub would_lend: Vec<String>,
}

/// A benchmark request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The arms; empty: the benchmark's default arms.
    pub arms: Vec<arms::Arm>,
    /// Numbers of threads; every arm has a row for each number. Empty: one thread, and as many
    /// threads as CPUs.
    pub threads: Vec<NonZeroUsize>,
    /// Number of measured runs of each row.
    pub runs: u32,
    /// Whether to enable an arm's mTHP size during its runs.
    pub allow: bool,
    /// What to do about a hugetlb pool with too few free pages.
    pub pool: PoolPolicy,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Whether to hide progress.
    pub quiet: bool,
}

/// Runs `workload`, or plans its runs. `ours` returns the default arms.
///
/// # Errors
/// The benchmark cannot be run.
pub fn run(
    request: &Request,
    workload: Workload,
    settings: &Settings,
    is_dry_run: bool,
    ours: impl FnOnce(&Facts) -> Vec<arms::Arm>,
) -> Result<BenchOutcome, Failure> {
    crate::workloads::check(workload, settings)?;
    let command = crate::workloads::command(workload, settings)?;
    for threads in &request.threads {
        crate::workloads::check(workload, &Settings { threads: *threads, ..settings.clone() })?;
    }
    // Catch signals before any setting is changed, so that every changed setting is restored.
    let interrupt = Arc::new(Interrupt::default());
    let interrupting = signals::interrupt_experiment(Arc::clone(&interrupt))?;
    let mut facts = facts::read();
    let named = !request.arms.is_empty();
    let mut arms = if named { request.arms.clone() } else { ours(&facts) };
    if workload == Workload::Touch {
        arms.iter_mut().for_each(arms::have_fresh_memory);
    }
    let recipes: Vec<Recipe> = arms.iter().map(|arm| arm.recipe.clone()).collect();
    let asked = if named {
        RequestedArms::new(&recipes, false)
    } else {
        RequestedArms::by_default(&recipes)
    };
    let policy = if is_dry_run { PoolPolicy::Keep } else { request.pool };
    let machine = Snapshot::read(&Root::real());
    let goes_on = || !interrupt.is_asked();
    let (mut guard, mut not_raised) =
        pool_guard::raise_for_arms(policy, &asked.recipes(), &facts, &goes_on);
    facts = facts::read();
    if request.allow {
        arms::allowed(&mut facts, &arms);
    }
    let mut would_lend = Vec::new();
    if is_dry_run && request.pool == PoolPolicy::Lend {
        let (lent, mut refused) = pool_guard::preview(&asked.recipes(), None, &mut facts);
        (would_lend, not_raised) = (lent, refused.pop());
    }
    let populating: Vec<bool> = arms.iter().map(|arm| arm.populates).collect();
    let names: Vec<String> = asked.recipes().iter().map(|recipe| recipe.name.clone()).collect();
    let (planned, mut left_out) = asked.plan(&command, &facts, not_raised)?;
    let populates =
        |name: &String| names.iter().position(|one| one == name).is_some_and(|at| populating[at]);
    let mut cells = cells(&planned, &threads(request)?, populates);
    if is_dry_run {
        let plans = cells.into_iter().map(|cell| cell.plan).collect();
        return Ok(BenchOutcome::Plans(Box::new(BenchPlans { plans, left_out, would_lend })));
    }
    let sizes = if request.allow { sizes_to_switch(&cells) } else { Vec::new() };
    let superpage = facts::superpage(&machine).unwrap_or(machine.page_size);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let schedule = schedule(request);
    let before = host::Before::read(&Root::real());
    let (ran, seen) = loop {
        let plans: Vec<launch::Plan> = cells.iter().map(|cell| cell.plan.clone()).collect();
        let policies = cells.iter().map(|cell| design::recipe::in_force(&cell.recipe));
        let policies = policies.collect::<Result<_, Failure>>()?;
        let options = Options {
            metrics: Vec::new(),
            ignore_failure: false,
            superpage,
            warms_memory: WarmMemory::Auto.applies(&machine),
            journal: pool_guard::journal_dir(),
        };
        let launcher = Launcher::new(&plans, options, &interrupt)?
            .watching(Depth::TicksOnly)
            .in_force(policies);
        let shown: Vec<String> =
            cells.iter().map(|cell| format!("{} x{}", cell.arm, cell.threads)).collect();
        let mut bar = Bar::new(&shown, &schedule, request.quiet).warns_of_load(&before);
        let mut bench =
            Bench { launcher, cells: &cells, sizes: &sizes, guard: &mut guard, seen: Vec::new() };
        let count = cells.len() as u32;
        let question = Question::default();
        let ran = procedure::run(&mut bench, count, &schedule, &question, &mut |event| {
            bar.show(&event);
        });
        bar.clear();
        let seen = bench.seen;
        match ran {
            // If a default arm fails, keep the results of the other arms.
            Err(RunError::Failed { arm, how, said }) if !named && arm != cells[0].arm => {
                cells.retain(|cell| cell.arm != arm);
                left_out.push(LeftOut { name: arm, why: format!("the program {how}{said}") });
            }
            ran => break (ran, seen),
        }
    };
    let lent = guard.raised.clone();
    for line in guard.restore() {
        say(&line);
    }
    let neighbours = before.until_now(&Root::real());
    let changed_meanwhile = facts::thp_changes(&machine, &Snapshot::read(&Root::real()));
    let ran = match ran {
        Err(RunError::Interrupted) => return Ok(BenchOutcome::Signal(interrupting.signal())),
        Ok(ran) if ran.stopped == Stopped::Interrupted => {
            return Ok(BenchOutcome::Signal(interrupting.signal()));
        }
        ran => ran?,
    };
    let outcomes = |index: u32| {
        let these = seen.iter().filter(move |(arm, _)| *arm == index);
        these.map(|(_, outcome)| outcome.clone()).collect()
    };
    let rows = cells.into_iter().zip(0..).map(|(cell, index)| Row::new(cell, outcomes(index)));
    Ok(BenchOutcome::Document(Box::new(Document {
        schema: SCHEMA,
        bench: workload.name(),
        superpage_version: env!("CARGO_PKG_VERSION"),
        began_unix_seconds: began,
        command: std::iter::once("superpage".into()).chain(command[1..].to_vec()).collect(),
        seed: request.seed,
        runs: request.runs.next_multiple_of(2),
        machine,
        lent,
        changed_meanwhile,
        left_out,
        elapsed_seconds: ran.elapsed.as_secs_f64(),
        neighbours,
        rows: rows.collect(),
    })))
}

/// A launcher that changes settings before each run and reads the workload's output after it.
struct Bench<'a> {
    launcher: Launcher<'a>,
    cells: &'a [Cell],
    /// THP sizes whose setting a run may change, and their original settings.
    sizes: &'a [(PageSize, String)],
    guard: &'a mut OvercommitGuard,
    /// Measured runs: index of the cell, the workload's outcome, and the library's report.
    seen: Vec<(u32, (Outcome, PreloadReport))>,
}

impl Executor for Bench<'_> {
    fn execute(&mut self, run: Run) -> Result<Sample, RunError> {
        let cell = &self.cells[run.at.arm as usize];
        for (size, found) in self.sizes {
            let value = match cell.folio {
                None => found,
                Some(folio) if folio == *size => "madvise",
                Some(_) => "never",
            };
            self.guard.set(&Knob::thp_size_enabled(*size), value)?;
        }
        let mut sample = self.launcher.execute(run)?;
        let printed = self.launcher.printed().trim();
        let outcome: Outcome = serde_json::from_str(printed).map_err(|error| RunError::Failed {
            arm: cell.arm.clone(),
            how: "printed no result".to_string(),
            said: format!(" ({error})"),
        })?;
        sample.metric = Some(outcome.figure.value);
        if run.purpose == Purpose::Measured {
            self.seen.push((run.at.arm, (outcome, PreloadReport::from_sample(&sample))));
        }
        Ok(sample)
    }
}

/// Returns every arm with every number of threads: the arm's plan with other workload arguments.
fn cells(
    planned: &[Planned],
    threads: &[NonZeroUsize],
    populates: impl Fn(&String) -> bool,
) -> Vec<Cell> {
    let cell = |arm: &Planned, threads: usize| {
        let mut plan = arm.plan.clone();
        if let Some(place) = plan.arguments.iter().position(|word| word == "--threads") {
            plan.arguments[place + 1] = threads.to_string().into();
        }
        let populates = populates(&arm.name);
        if populates {
            plan.arguments.push("--populate".into());
        }
        let (arm, recipe) = (arm.name.clone(), arm.recipe.clone());
        Cell { arm, folio: arms::folio(&recipe), recipe, plan, threads, populates }
    };
    let with =
        |threads: &NonZeroUsize| planned.iter().map(|arm| cell(arm, threads.get())).collect();
    threads.iter().map(with).collect::<Vec<Vec<Cell>>>().concat()
}

/// Returns the requested numbers of threads, or 1 and the number of CPUs.
fn threads(request: &Request) -> Result<Vec<NonZeroUsize>, Failure> {
    let mut threads = request.threads.clone();
    if threads.is_empty() {
        let cpus = sys::affinity::allowed().map_err(Failure::cannot)?.len();
        threads = vec![NonZeroUsize::MIN];
        threads.extend(NonZeroUsize::new(cpus));
    }
    threads.dedup();
    Ok(threads)
}

/// Returns all anonymous THP sizes and their settings; empty if no arm needs one changed.
fn sizes_to_switch(cells: &[Cell]) -> Vec<(PageSize, String)> {
    if cells.iter().all(|cell| cell.folio.is_none()) {
        return Vec::new();
    }
    let sizes = Thp::from_root(&Root::real()).map(|thp| thp.sizes).unwrap_or_default();
    let set = sizes.into_iter().filter_map(|(size, set)| Some((size, set.enabled?.selected)));
    set.collect()
}

fn schedule(request: &Request) -> Schedule {
    let runs = request.runs.next_multiple_of(2);
    Schedule {
        seed: request.seed,
        warm_ups: 1,
        rule: Rule { min_runs: runs, max_runs: runs, ..Rule::default() },
        max_seconds: None,
        patience_seconds: None,
    }
}
