//! Runs a program on superpages: plans the run, observes it, and then takes back lent memory.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use experiment::counters::CounterFile;
use experiment::execute;
use experiment::process_tree::ProcessTree;
use experiment::supply::{Supplied, Supply};
use experiment::watch::{Depth, Observed, Watch};
use host::{CounterDeltas, Counters, Root};
use launch::{Fallback, LaunchError, Note, Pages, Plan, Recipe, Start, Word};
use live::{Live, Report, Rule};
use policy::Policy;
use sys::wait::Usage;
use units::{ByteSize, Pid};

use crate::pool_guard::{self, OvercommitGuard};
use crate::reporter::say;
use crate::{Failure, design, facts, signals};

/// A program to run.
#[derive(Clone, Debug)]
pub struct Request {
    /// Pages to use.
    pub recipe: Recipe,
    /// Program and arguments.
    pub command: Vec<Word>,
    /// Notes on design rules that are applied differently.
    pub notes: Vec<String>,
    /// Whether a hugetlb pool may be raised or grown for the run.
    pub lends: bool,
    /// Bytes by which the pool is grown before the run.
    pub grow: Option<ByteSize>,
    /// Whether to read the kernel's counters around the run.
    pub counts: bool,
    /// Whether to hide notes.
    pub quiet: bool,
}

/// The plan of a run.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Each change to a hugetlb pool, as text.
    pub would_lend: Vec<String>,
}

/// Outcome of a run.
#[derive(Debug)]
pub enum Ran {
    /// A signal arrived before the program was started.
    Signal(i32),
    /// The program ran to its end.
    Ended(Box<Ended>),
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The plan it was started with.
    pub plan: Plan,
    /// Counters of the preloaded library.
    pub counters: Option<CounterFile>,
    /// Exit status.
    pub status: ExitStatus,
    /// Duration in seconds.
    pub seconds: f64,
    /// CPU time and faults, as the kernel counted them.
    pub usage: Usage,
    /// What was observed of the program's memory.
    pub seen: Observed,
    /// The main process.
    pub pid: Pid,
    /// The rules of an applied design and how they were carried out, and the superpages made.
    pub in_force: Option<(Vec<Rule>, Report)>,
    /// Superpages that were freed for the program.
    pub supplied: Option<Supplied>,
    /// By how much this machine's kernel counters increased.
    pub machine: Option<CounterDeltas>,
}

/// Calls `work` on a separate thread, so that memory it frees returns to the kernel. On the main thread, freed malloc
/// memory would stay in caches while the launcher waits. If no thread can be started, `work` runs on this one.
pub fn on_scratch_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let begun = &mut work;
    let done = std::thread::scope(|scope| {
        let run = move || begun.take().map(|work| work());
        let thread = std::thread::Builder::new().spawn_scoped(scope, run);
        match thread.ok()?.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    done.unwrap_or_else(|| work.take().expect("no thread began it")())
}

impl Request {
    /// Plans the run; changes nothing.
    ///
    /// # Errors
    /// The program cannot be started with these pages.
    pub fn plan(&self) -> Result<Planned, Failure> {
        let mut facts = facts::read();
        let (would_lend, not_raised) = match self.lends {
            true => pool_guard::preview(&[&self.recipe], self.grow, &mut facts),
            false => (Vec::new(), Vec::new()),
        };
        let (plan, _) = self.resolved(&facts, not_raised)?;
        Ok(Planned { plan, would_lend })
    }

    /// Returns the plan, and notes in addition to those of `launch`.
    fn resolved(
        &self,
        facts: &launch::Facts,
        mut not_raised: Vec<Failure>,
    ) -> Result<(Plan, Vec<String>), Failure> {
        let search = facts::search_path();
        let planned =
            on_scratch_thread(|| launch::resolve(&self.recipe, &self.command, &search, facts));
        let is_needed = self.recipe.fallback == Fallback::Error
            || matches!(planned, Err(LaunchError::PoolEmpty { .. }));
        if let Some(why) = not_raised.pop_if(|_| is_needed) {
            // If a larger pool was needed, report why it was not raised.
            return Err(why.in_launcher());
        }
        let mut plan = planned.map_err(|error| Failure::of_launcher(&error))?;
        let not_raised = not_raised.iter().map(|why| format!("the pool is not changed: {why}"));
        let notes: Vec<String> = not_raised.chain(self.notes.iter().cloned()).collect();
        plan.notes.extend(notes.iter().cloned());
        Ok((plan, notes))
    }

    fn tell(&self, line: &str) {
        if !self.quiet {
            say(line);
        }
    }

    /// Runs the program and forwards signals to it. `relay` catches signals since before any setting was changed.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn run(&self, relay: signals::Relay) -> Result<Ran, Failure> {
        let signal_guard = relay.signal_guard();
        let mut facts = on_scratch_thread(facts::read);
        let mut guard = OvercommitGuard::default();
        let mut not_raised = Vec::new();
        if self.lends {
            guard =
                pool_guard::raise(&[&self.recipe], self.grow, &facts, &|| relay.asked().is_none());
            if let Some(signal) = relay.asked() {
                return Ok(Ran::Signal(signal));
            }
            not_raised = std::mem::take(&mut guard.refused);
            facts = facts::read();
        }
        let (plan, notes) = self.resolved(&facts, not_raised)?;
        let warnings = plan.warnings().map(Note::to_string);
        warnings.chain(notes).for_each(|line| self.tell(&line));
        let counters = match plan.uses_library().then(CounterFile::create).transpose() {
            Ok(counters) => counters,
            Err(why) => {
                self.tell(&format!("the library's counters are not available: {why}"));
                None
            }
        };
        let policy = design::recipe::in_force(&self.recipe).map_err(Failure::in_launcher)?;
        let kernel_counters = || self.counts.then(|| Counters::read(&Root::real()).ok()).flatten();
        let before = kernel_counters();
        if let Some(signal) = relay.asked() {
            // A signal came before the start. The guard restores what was raised.
            return Ok(Ran::Signal(signal));
        }
        let ended = self.supervise(plan, relay, counters, policy);
        let machine = before.zip(kernel_counters()).map(|(before, after)| after.since(&before));
        for line in guard.restore() {
            say(&line);
        }
        drop(signal_guard);
        Ok(Ran::Ended(Box::new(Ended { machine, ..ended? })))
    }

    /// Starts the program and waits for it. Forwards signals, observes the program's memory, takes lent memory back.
    fn supervise(
        &self,
        plan: Plan,
        relay: signals::Relay,
        counters: Option<CounterFile>,
        policy: Option<Policy>,
    ) -> Result<Ended, Failure> {
        let supply = self.supply_for(&plan, counters.as_ref());
        let began = Instant::now();
        let environment = counters.as_ref().map(CounterFile::variable).into_iter().collect();
        let start = Start { environment, ..Start::default() };
        let pid = launch::start(&plan, start)
            .map_err(|error: LaunchError| Failure::of_launcher(&error))?;
        let relaying = relay.to(pid);
        let family = ProcessTree::from_child(Root::real(), pid);
        let in_force = policy.map(|policy| {
            let family = family.clone();
            let fresh = execute::fresh_of(&plan);
            let rules = live::rules(&policy, fresh);
            (rules, Live::start(policy, fresh, Root::real(), move || family.members()))
        });
        let depth = Depth::WithinBudget;
        let watch = Watch::start(Root::real(), family, began, depth, 0, counters.as_ref());
        let ours = |error: sys::SysError| Failure::cannot(error).in_launcher();
        // This process now only waits and takes samples, at growing intervals.
        sys::mem::give_back_unused();
        let mut pause = MIN_PAUSE;
        // PID 1 of a container must reap orphaned processes.
        let is_first = sys::param::own_pid().0 == 1;
        while sys::wait::has_ended_within(pid, pause) == Some(false) {
            sys::mem::give_back_unused();
            if is_first {
                sys::wait::reap_others(pid);
            } else {
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
        let ended = sys::wait::until_exit(pid);
        let seconds = began.elapsed().as_secs_f64();
        let mut seen = watch.stop();
        let in_force = in_force.map(|(rules, live)| (rules, live.stop()));
        relaying.stop();
        let supplied = supply.map(Supply::stop);
        ended.map_err(ours)?;
        let (status, usage) = sys::wait::reap(pid).map_err(ours)?;
        let uses_pool = matches!(plan.pages, Pages::Hugetlb(_));
        seen.conclude(&Root::real(), usage.max_rss, uses_pool);
        let machine = None;
        Ok(Ended { plan, counters, status, seconds, usage, seen, pid, in_force, supplied, machine })
    }

    /// Creates the supply of free superpages for a program whose library may request them.
    fn supply_for(&self, plan: &Plan, counters: Option<&CounterFile>) -> Option<Supply> {
        let supply = Supply::for_plan(plan, counters, &Root::real(), &pool_guard::journal_dir());
        supply.unwrap_or_else(|why| {
            self.tell(&format!("superpages are not made free on request: {why}"));
            None
        })
    }
}

/// Minimum pause between returning unused memory to the kernel; doubled each time.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
