//! The executor's thread: looks at processes, asks the policy, makes superpages, and rests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::PipeReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::process::{KeptLoad, MemoryMounts};
use host::{ReadError, Root};
use policy::Policy;
use sys::param::thread_cpu_time;
use units::Pid;

use crate::account::Cause;
use crate::ahead::Front;
use crate::ask::{self, Wanted};
use crate::backoff::Backoff;
use crate::budget::Budget;
use crate::daemons::Daemons;
use crate::extent::PAGES;
use crate::faults::Faults;
use crate::filled::Filled;
use crate::limits::{self, Fresh};
use crate::pace::{self, Pace, Rest};
use crate::process::{Growth, Process};
use crate::report::{Report, Tally};
use crate::supervisor::Supervisor;

/// Interval from a check that found something to the next check. It grows while checks find nothing.
const MIN_IDLE: Duration = Duration::from_millis(10);
/// Maximum interval between two checks.
const MAX_IDLE: Duration = Duration::from_millis(50);
/// Interval of checks under a supervisor.
const SUPERVISED_IDLE: Duration = Duration::from_secs(1);
/// Pause after a look at whole processes, in multiples of its CPU time: the thread uses 1 % of a CPU.
const PAUSE_FOR_LOOKS: u32 = 99;
/// Pause after such a look if no CPU is idle: the thread uses a quarter of 1 % of a CPU.
const BUSY_PAUSE_FOR_LOOKS: u32 = 399;
/// Pause after a search for processes, in multiples of its CPU time: the thread uses 10 % of a CPU in a storm of forks.
const PAUSE_FOR_FINDING: u32 = 9;
/// Pause after such a search if no CPU is idle: the thread uses 0.5 % of a CPU in a storm of forks.
const BUSY_PAUSE_FOR_FINDING: u32 = 199;
/// A look on an idle CPU costs the programs 1/SIBLING of its time: the CPU may be the other thread of the program's core,
/// and faults wait for the page tables that are read.
const SIBLING: u32 = 3;
/// Nice value. An extent is full a millisecond after its first fault, so the thread must run before the program.
const NICE: i32 = -10;

pub(crate) struct Executor {
    pub policy: Policy,
    pub root: Root,
    mounts: MemoryMounts,
    members: Box<dyn Fn() -> Vec<Pid> + Send>,
    load: Option<KeptLoad>,
    newest: Option<Pid>,
    pub processes: BTreeMap<Pid, Process>,
    /// Processes counted as served. A process that could not be looked at is opened again, because it may execute
    /// another program by then.
    counted: BTreeSet<Pid>,
    pub daemons: Daemons,
    /// Wanted extents; the one that qualified last is at the end.
    pub pending: Vec<(Pid, u64)>,
    /// Wanted extents that are full; they wait while a program grows.
    pub full: Vec<(Pid, u64)>,
    /// Whether superpages were made since the last look at samples, or are to be retried at once.
    pub has_made: bool,
    /// When the first failed extent may be retried, in ticks.
    pub retry_at: Option<u64>,
    /// When the next full extent may be made while a program grows, in ticks.
    pub full_at: u64,
    /// Number of superpages per call while a program grows.
    pub most: usize,
    pub backoff: Backoff,
    pub filled: Filled,
    pub budget: Budget,
    pub tally: Tally,
    pub clock: Clock,
    stop: Arc<AtomicBool>,
    /// When the next check is due, in ticks.
    check_at: u64,
    /// When the next look at whole processes is allowed, in ticks.
    look_at: u64,
    idle: Duration,
    /// Closed when `stop` is set.
    closed: Option<PipeReader>,
    /// Opened when a program has an extent, so that short programs cost nothing.
    faults: Option<Faults>,
    /// Minimum population at which the policy wants an extent.
    pub least: u16,
    pub pace: Pace,
    pub fresh: Fresh,
    /// Whether superpages are made before their first touch.
    pub goes_ahead: bool,
    /// Where superpages are made before their first touch.
    pub fronts: Vec<Front>,
    /// Whether the first check is done.
    has_checked: bool,
    /// Whether the last look found growth.
    grew: bool,
    /// Number of CPUs of the machine.
    cpus: u64,
    /// Whether threads waited for a CPU at the last check.
    has_waiters: bool,
    /// Whether threads waited for a CPU at both of the last two checks.
    is_busy: bool,
    pub supervisor: Option<Box<dyn Supervisor>>,
}

impl Executor {
    pub(crate) fn new(
        policy: Policy,
        fresh: Fresh,
        root: Root,
        members: Box<dyn Fn() -> Vec<Pid> + Send>,
        stop: Arc<AtomicBool>,
        closed: Option<PipeReader>,
    ) -> Self {
        let least = ask::least_filled(&policy);
        let goes_ahead = fresh == Fresh::BasePages && limits::check_reserves(&policy).is_ok();
        Self {
            daemons: Daemons::new(&policy),
            // If the kernel's faults make superpages, there are no faults left to save.
            pace: Pace::new(least < PAGES && fresh != Fresh::Superpages),
            least,
            fresh,
            goes_ahead,
            fronts: Vec::new(),
            has_checked: false,
            grew: false,
            cpus: sys::affinity::online().map_or(1, |cpus| cpus.len() as u64),
            has_waiters: false,
            is_busy: false,
            policy,
            mounts: MemoryMounts::from_pid(&root, sys::param::own_pid()).unwrap_or_default(),
            load: KeptLoad::open(&root).ok(),
            root,
            members,
            newest: None,
            processes: BTreeMap::new(),
            counted: BTreeSet::new(),
            pending: Vec::new(),
            full: Vec::new(),
            has_made: false,
            retry_at: None,
            full_at: 0,
            most: 1,
            backoff: Backoff::default(),
            filled: Filled::default(),
            budget: Budget::new(goes_ahead),
            tally: Tally::default(),
            clock: Clock { began: Instant::now(), speed: 1 },
            stop,
            check_at: 0,
            look_at: 0,
            idle: MIN_IDLE,
            closed,
            faults: None,
            supervisor: None,
        }
    }

    pub(crate) fn supervised(self, supervisor: Box<dyn Supervisor>, speed: u32) -> Self {
        let budget = Budget::of_services();
        Self {
            supervisor: Some(supervisor),
            idle: SUPERVISED_IDLE,
            goes_ahead: false,
            budget,
            clock: Clock { speed: speed.max(1), ..self.clock },
            ..self
        }
    }

    /// Ticks for which the supervisor permits no superpage; `None`: it permits some.
    pub(crate) fn supervised_pause(&mut self) -> Option<u64> {
        let pause = self.supervisor.as_mut()?.pause();
        (!pause.is_zero()).then_some(pause.as_micros() as u64 * u64::from(self.clock.speed))
    }

    pub(crate) fn run(mut self) -> Report {
        // This thread does what a kernel would do inside a fault, and a fault does not wait for a CPU. CAP_SYS_NICE,
        // which collapsing needs, permits this too.
        let _ = sys::affinity::add_nice(NICE);
        while !self.is_stopped() {
            let is_first = !self.has_checked;
            let began = thread_cpu_time();
            if self.now() >= self.check_at {
                self.check();
            }
            // Without credit, growth that a look finds could not be used soon.
            if !self.budget.waits() {
                self.follow();
                self.pursue();
            }
            let looked = thread_cpu_time();
            let took = looked.saturating_sub(began);
            self.tally.report.looking_seconds += took.as_secs_f64();
            if !is_first {
                let share = if self.takes_program_time() { 1 } else { SIBLING };
                self.budget.looked(took / share);
            }
            let has_tried = self.make_pending();
            self.work();
            let made = thread_cpu_time().saturating_sub(looked);
            self.tally.report.making_seconds += made.as_secs_f64();
            if !has_tried {
                self.rest();
            }
        }
        let waits = self.waits_for_credit();
        for process in self.processes.values() {
            self.tally.leaves(process.left(), waits);
        }
        self.tally.end()
    }

    /// Finds processes, looks at those that took faults, and starts sampling once there is an extent.
    fn check(&mut self) {
        let began = thread_cpu_time();
        self.renew();
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.note_time(pid);
        }
        let found = thread_cpu_time().saturating_sub(began);
        let now = self.now();
        let is_first = !std::mem::replace(&mut self.has_checked, true);
        if self.budget.waits() {
            self.check_at = now + MAX_IDLE.max(found * BUSY_PAUSE_FOR_FINDING).as_micros() as u64;
            return;
        }
        let pauses = match self.is_busy {
            // Do not count the first check: it includes the executor's own first touches.
            _ if is_first => (0, 0),
            // A service did not ask for this thread: its share stays 1 % in a storm of forks too.
            false if self.supervisor.is_some() => (PAUSE_FOR_LOOKS, PAUSE_FOR_LOOKS),
            true => (BUSY_PAUSE_FOR_LOOKS, BUSY_PAUSE_FOR_FINDING),
            false => (PAUSE_FOR_LOOKS, PAUSE_FOR_FINDING),
        };
        if now >= self.look_at {
            let began = thread_cpu_time();
            let has_looked = self.look();
            let looked = thread_cpu_time().saturating_sub(began);
            self.idle = match has_looked {
                _ if self.supervisor.is_some() => SUPERVISED_IDLE,
                true => MIN_IDLE,
                false => (self.idle * 5 / 4).min(MAX_IDLE),
            };
            self.look_at = self.now() + (looked * pauses.0).as_micros() as u64;
        }
        let has_extents = |process: &Process| !process.extents.is_empty();
        let has_extents = self.processes.values().any(has_extents);
        // If no fault is saved there is no hurry, and a sample costs the program a microsecond.
        let is_followed = self.pace.saves_faults || self.goes_ahead;
        if let Some(closed) = self.closed.take_if(|_| has_extents && is_followed) {
            if let Some(cost) = cost_of_fault() {
                self.budget.learn_fault(cost);
            }
            match Faults::open(closed, self.least) {
                Ok(faults) => self.faults = Some(faults),
                Err(error) => self.tally.report.unsampled = Some(error.to_string()),
            }
        }
        self.check_at = now + self.idle.max(found * pauses.1).as_micros() as u64;
    }

    /// Looks where faults were sampled, and asks the policy. See docs/decisions/live.md#7.
    fn follow(&mut self) {
        let Some(faults) = &mut self.faults else { return };
        let began = thread_cpu_time();
        let now = self.clock.now();
        let mut last = None;
        let waiting = self.pending.len();
        let mut frontiers = Vec::new();
        let taken = faults.take();
        if !taken.is_empty() {
            self.pace.sampled(!taken.keys().any(|pid| self.processes.contains_key(pid)));
        }
        for (pid, (addresses, cpu)) in taken {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            self.tally.report.frontier_looks += 1;
            match process.look_at(&self.root, &self.mounts, &addresses, now) {
                Ok(looked) => {
                    // Faults in files and small mappings do not show growth.
                    last = if looked.is_in_span { Some(cpu) } else { last };
                    let grown: Vec<u64> = looked.grown.iter().map(|growth| growth.start).collect();
                    self.tell(pid, looked.grown);
                    frontiers.push((pid, grown));
                }
                Err(error) => self.cannot_see(pid, &error),
            }
        }
        let looked = thread_cpu_time().saturating_sub(began);
        // Extents that wait for memory or that have failed do not count.
        let is_wanted = self.pending.len() > waiting && !self.backoff.waits(now);
        let is_wanted = is_wanted && !self.waits_to_copy();
        // Without credit to copy, a look helps only to make superpages ahead, and a front needs no looks.
        let is_throttled = self.is_busy || self.waits_to_copy();
        let is_judged = self.pace.followed(last, self.has_made || is_wanted, looked, is_throttled);
        self.has_made &= !is_judged;
        for (pid, grown) in frontiers {
            self.go_ahead(pid, &grown);
        }
    }

    fn rest(&mut self) {
        self.pace.has_rested = true;
        let now = self.now();
        let daemons = self.daemons.next_due().filter(|_| !self.budget.waits());
        let due = [Some(self.check_at), daemons, self.retry_at, self.next_pursuit()];
        let due = due.into_iter().flatten().min().unwrap_or(now);
        let due = self.clock.duration(due.saturating_sub(now));
        if self.is_stopped() {
            return;
        }
        let Some(faults) = &self.faults else { return std::thread::park_timeout(due) };
        match self.pace.rest {
            _ if self.budget.waits() => pause_unsampled(faults, due, due),
            Rest::Faults => faults.wait(due.min(pace::MAX_PAUSE)),
            Rest::Pause(pause) => std::thread::park_timeout(pause.min(due)),
            Rest::Unsampled(pause) => {
                pause_unsampled(faults, pause, due);
                // A front is pursued without samples.
                if !self.is_stopped() && self.fronts.is_empty() {
                    faults.wait(pace::MAX_PAUSE);
                }
            }
            Rest::Idle => {
                let idle = self.pace.idle(self.is_busy);
                pause_unsampled(faults, idle, due);
                if !self.is_stopped() {
                    faults.wait(due.saturating_sub(idle));
                }
            }
        }
    }

    pub(crate) fn waits_to_copy(&self) -> bool {
        self.budget.waits_to_copy(self.is_growing())
    }

    /// Returns whether superpages wait for credit, or for the programs to rest.
    fn waits_for_credit(&self) -> bool {
        self.waits_to_copy() || self.is_growing() && !self.full.is_empty()
    }

    /// Returns whether the executor's CPU time is taken from a program, because no CPU is idle or the executor is
    /// pinned to the program's CPU.
    pub(crate) fn takes_program_time(&self) -> bool {
        self.is_busy || self.pace.follows_a_cpu()
    }

    /// Returns whether a program is growing, by samples, fronts or the last look. Under a supervisor no growth is followed,
    /// and full extents do not wait for its end.
    pub(crate) fn is_growing(&self) -> bool {
        if self.supervisor.is_some() {
            return false;
        }
        let has_grown = self.faults.is_none() && self.grew;
        self.pace.rest != Rest::Idle || !self.fronts.is_empty() || has_grown
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Searches for processes if any process on the machine was created since the last search.
    fn renew(&mut self) {
        let load = self.load.as_mut().and_then(|load| load.read().ok());
        // Require two checks in a row: one may be by chance, because this thread is running too.
        let has_waiters = load.is_some_and(|load| load.running > self.cpus);
        self.is_busy = has_waiters && self.has_waiters;
        self.has_waiters = has_waiters;
        let newest = load.map(|load| load.newest);
        // A supervisor may choose other processes at any time.
        if newest.is_some() && newest == self.newest && self.supervisor.is_none() {
            return;
        }
        self.newest = newest;
        let members: BTreeSet<Pid> = (self.members)().into_iter().collect();
        let ended = |pid: &&Pid| !members.contains(pid);
        for pid in self.processes.keys().filter(ended).copied().collect::<Vec<_>>() {
            self.ended(pid);
        }
        self.counted.retain(|pid| members.contains(pid));
        for pid in members {
            if self.processes.contains_key(&pid) {
                continue;
            }
            let superpages_of =
                |pid: Pid| self.processes.get(&pid).map(Process::superpages).unwrap_or_default();
            if let Some(process) = Process::open(&self.root, pid, superpages_of) {
                self.tally.report.processes += u64::from(self.counted.insert(pid));
                self.processes.insert(pid, process);
            }
        }
    }

    /// Looks at whole processes that took faults, and asks the policy. Returns whether a process was looked at.
    fn look(&mut self) -> bool {
        let now = self.now();
        let (mut has_looked, mut has_grown) = (false, false);
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            match process.look(&self.root, &self.mounts, now) {
                Ok(None) => {}
                Ok(Some(grown)) => {
                    has_looked = true;
                    has_grown |= !grown.is_empty();
                    self.tally.report.looks += 1;
                    self.tell(pid, grown);
                }
                Err(error) => self.cannot_see(pid, &error),
            }
        }
        self.grew = has_grown;
        has_looked
    }

    pub(crate) fn note_time(&mut self, pid: Pid) {
        if let Ok(used) = sys::param::process_cpu_time(pid) {
            self.budget.ran(pid, used, self.clock.began.elapsed());
        }
    }

    fn cannot_see(&mut self, pid: Pid, error: &ReadError) {
        if !error.is_gone() {
            self.tally.report.unseen = Some(error.to_string());
        }
        self.ended(pid);
    }

    fn ended(&mut self, pid: Pid) {
        let waits = self.waits_for_credit();
        if let Some(process) = self.processes.remove(&pid) {
            self.tally.leaves(process.left(), waits);
            self.budget.ended(pid);
        }
    }

    /// Asks the policy about growth, and queues the superpages that it wants.
    fn tell(&mut self, pid: Pid, grown: Vec<Growth>) {
        let is_shared = self.processes.len() > 1;
        let is_exhausted = self.filled.is_exhausted(self.now());
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for growth in grown {
            let Some(mut extent) = process.extents.get(&growth.start).copied() else { continue };
            let report = &mut self.tally.report;
            report.touched += u64::from(growth.before == 0);
            if extent.is_huge {
                let is_new = u64::from(!extent.is_ours && !extent.is_inherited);
                match self.fresh {
                    Fresh::Superpages => report.by_fault += is_new,
                    Fresh::BasePages | Fresh::Frames => report.by_others += is_new,
                }
                continue;
            }
            let shared = || is_shared && process.is_shared(growth.start);
            let was_reserved = extent.is_reserved;
            let wanted = ask::grew(&mut self.policy, &mut extent, growth.before, shared);
            self.tally.report.reserved += u64::from(extent.is_reserved && !was_reserved);
            match wanted {
                Wanted::Superpage if is_exhausted && extent.populated < PAGES => {
                    self.tally.wants(&mut extent, Cause::Mapping);
                    (extent.is_wanted, extent.is_held) = (false, true);
                }
                Wanted::Superpage if !extent.is_wanted => {
                    self.tally.wants(&mut extent, Cause::Mapping);
                    self.pending.push((pid, growth.start));
                }
                Wanted::Candidate => self.daemons.candidates.push_back((pid, growth.start)),
                Wanted::Superpage | Wanted::Nothing => {}
            }
            if !extent.is_wanted && !extent.is_held {
                let fullest = &mut self.tally.report.fullest;
                *fullest = (*fullest).max(extent.populated);
            }
            process.extents.insert(growth.start, extent);
        }
    }
}

/// Pauses without samples, until `due` at most. A long pause is without counting too.
fn pause_unsampled(faults: &Faults, pause: Duration, due: Duration) {
    if pause.min(due) <= pace::MAX_PAUSE {
        faults.set_sampling(false);
        std::thread::park_timeout(pause.min(due));
        faults.set_sampling(true);
    } else {
        let began = thread_cpu_time();
        faults.set_counting(false);
        let switched = thread_cpu_time().saturating_sub(began) * 2;
        std::thread::park_timeout(due.min(pause + switched * pace::LONG_PAUSE));
        faults.set_counting(true);
    }
}

/// Number of pages touched at a time to measure a fault.
const PAGES_TOUCHED: usize = 16;
/// Number of times that these pages are touched.
const TIMES_TOUCHED: usize = 8;

/// Measures the cost of the first touch of a page: the minimum of several measurements in own memory, because the host
/// may first have to back some of the memory.
fn cost_of_fault() -> Option<Duration> {
    let page = sys::param::page_size().bytes() as usize;
    let length = TIMES_TOUCHED * PAGES_TOUCHED * page;
    let mut memory = sys::mem::Mapping::anonymous(length, sys::mem::Backing::Pages).ok()?;
    let took = memory.bytes_mut().chunks_mut(PAGES_TOUCHED * page).map(|chunk| {
        let began = Instant::now();
        chunk.iter_mut().step_by(page).for_each(|byte| *byte = 1);
        began.elapsed()
    });
    took.into_iter().min().map(|least| least / PAGES_TOUCHED as u32)
}

/// The executor's time, in ticks of a microsecond since its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    pub began: Instant,
    /// Ticks in a microsecond; 1, unless a long time is tried in a short one.
    pub speed: u32,
}

impl Clock {
    pub(crate) fn now(self) -> u64 {
        self.began.elapsed().as_micros() as u64 * u64::from(self.speed)
    }

    fn duration(self, ticks: u64) -> Duration {
        Duration::from_micros(ticks) / self.speed
    }
}
