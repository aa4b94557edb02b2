//! A program on superpages: its plan, and one run of it, watched, with what was lent to it given back.

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

/// A program to be run.
#[derive(Clone, Debug)]
pub struct Request {
    /// On what pages.
    pub recipe: Recipe,
    /// Program and arguments.
    pub command: Vec<Word>,
    /// What of its design is done otherwise, in words.
    pub notes: Vec<String>,
    /// Whether a hugetlb pool may be raised or grown for the run.
    pub lends: bool,
    /// By how much the pool is grown before the run.
    pub grow: Option<ByteSize>,
    /// Whether the kernel's counters are read around the run.
    pub counts: bool,
    /// No notes.
    pub quiet: bool,
}

/// What a run would do.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Each change to a hugetlb pool, in words.
    pub would_lend: Vec<String>,
}

/// How a run went.
#[derive(Debug)]
pub enum Ran {
    /// A signal came before the program was started.
    Signal(i32),
    /// The program was run to its end.
    Ended(Box<Ended>),
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What was done to start it.
    pub plan: Plan,
    /// The counters of its library.
    pub ledger: Option<CounterFile>,
    /// How it ended.
    pub status: ExitStatus,
    /// How long it ran.
    pub seconds: f64,
    /// CPU time and faults, as the kernel counted them.
    pub usage: Usage,
    /// What was seen of its memory.
    pub seen: Observed,
    /// The program's own process.
    pub pid: Pid,
    /// What was done about the rules of a design in force, and what was made.
    pub in_force: Option<(Vec<Rule>, Report)>,
    /// Superpages that were made free for it.
    pub supplied: Option<Supplied>,
    /// What the kernel counted on this machine meanwhile.
    pub machine: Option<CounterDeltas>,
}

/// Calls `work` on a thread of its own, so that what it leaves free in malloc can be given back: the main thread's would stay
/// in its caches. A launcher waits for long. Without a thread it is called here.
pub fn in_passing<T: Send>(work: impl FnOnce() -> T + Send) -> T {
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
    /// What a run would do; changes nothing.
    ///
    /// # Errors
    /// The program cannot be started so.
    pub fn plan(&self) -> Result<Planned, Failure> {
        let mut facts = facts::read();
        let (would_lend, not_raised) = match self.lends {
            true => pool_guard::preview(&[&self.recipe], self.grow, &mut facts),
            false => (Vec::new(), Vec::new()),
        };
        let (plan, _) = self.resolved(&facts, not_raised)?;
        Ok(Planned { plan, would_lend })
    }

    /// The plan, and its notes beside those of `launch`.
    fn resolved(
        &self,
        facts: &launch::Facts,
        mut not_raised: Vec<Failure>,
    ) -> Result<(Plan, Vec<String>), Failure> {
        let search = facts::search_path();
        let planned = in_passing(|| launch::resolve(&self.recipe, &self.command, &search, facts));
        let is_needed = self.recipe.fallback == Fallback::Error
            || matches!(planned, Err(LaunchError::PoolEmpty { .. }));
        if let Some(why) = not_raised.pop_if(|_| is_needed) {
            // Where a larger pool would have helped, the reason is why it was not raised.
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

    /// Runs the program. Signals are passed on to it; `relay` has caught them since before anything was changed.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn run(&self, relay: signals::Relay) -> Result<Ran, Failure> {
        let heeding = relay.heeding();
        let mut facts = in_passing(facts::read);
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
        let unreached = plan.unreached_notes().map(Note::to_string);
        unreached.chain(notes).for_each(|line| self.tell(&line));
        let ledger = match plan.uses_library().then(CounterFile::create).transpose() {
            Ok(ledger) => ledger,
            Err(why) => {
                self.tell(&format!("the library's counters are not available: {why}"));
                None
            }
        };
        let policy = design::recipe::in_force(&self.recipe).map_err(Failure::in_launcher)?;
        let counters = || self.counts.then(|| Counters::read(&Root::real()).ok()).flatten();
        let before = counters();
        if let Some(signal) = relay.asked() {
            // Nobody wants the program any more. The guard puts back what was raised.
            return Ok(Ran::Signal(signal));
        }
        let ended = self.supervise(plan, relay, ledger, policy);
        let machine = before.zip(counters()).map(|(before, after)| after.since(&before));
        for line in guard.restore() {
            say(&line);
        }
        drop(heeding);
        Ok(Ran::Ended(Box::new(Ended { machine, ..ended? })))
    }

    /// Starts the program and stays with it: to pass signals on, to see what it got, to give back what it was lent.
    fn supervise(
        &self,
        plan: Plan,
        relay: signals::Relay,
        ledger: Option<CounterFile>,
        policy: Option<Policy>,
    ) -> Result<Ended, Failure> {
        let supply = self.supply_for(&plan, ledger.as_ref());
        let began = Instant::now();
        let environment = ledger.as_ref().map(CounterFile::variable).into_iter().collect();
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
        let watch = Watch::start(Root::real(), family, began, depth, 0, ledger.as_ref());
        let ours = |error: sys::SysError| Failure::cannot(error).in_launcher();
        // From here on this process only waits, and looks now and then, less and less often.
        sys::mem::give_back_unused();
        let mut pause = MIN_PAUSE;
        // The first process of a container is the parent of all that lose theirs.
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
        Ok(Ended { plan, ledger, status, seconds, usage, seen, pid, in_force, supplied, machine })
    }

    /// Superpages for a program whose library may ask for them.
    fn supply_for(&self, plan: &Plan, ledger: Option<&CounterFile>) -> Option<Supply> {
        let supply = Supply::for_plan(plan, ledger, &Root::real(), &pool_guard::journal_dir());
        supply.unwrap_or_else(|why| {
            self.tell(&format!("superpages are not made free on request: {why}"));
            None
        })
    }
}

/// How long a launcher waits before it gives back again what its looks at the program left; doubled each time.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
