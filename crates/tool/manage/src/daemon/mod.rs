//! Designs kept in force on running processes, by the configuration.
//!
//! Each rule that has processes has a thread of `live`, which asks the design's policy and makes superpages; the
//! [`keeper`] limits it and records what it made. This thread finds processes ([`members`]), gives superpages back when
//! memory is short ([`give_back`]), and says what is in force ([`status`]). See docs/decisions/manage.md#8.

mod give_back;
mod history;
mod keeper;
mod members;
pub mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::{Root, Thp};
use live::Live;
use policy::Scale;
use units::{ByteSize, Pid};

use self::history::History;
pub use self::history::Point;
use self::keeper::{Keeper, Ledger};
use self::members::{Group, Members};
use self::status::Status;
use crate::config::{Config, ConfigError, Mode, Shortage};
use crate::memory::Coverage;

/// Age of the reading with which a shortage of memory is compared.
const EARLIER: Duration = Duration::from_secs(10);
/// Time between two readings of a process's coverage.
const SURVEY: Duration = Duration::from_secs(10);
/// Largest share of the time for reading coverage.
const SURVEY_SHARE: f64 = 0.002;

/// What the daemon asks of the program around it.
pub trait Control {
    /// Sleeps for this long, or until a signal.
    fn sleep(&mut self, time: Duration);
    /// Whether the daemon is to end.
    fn is_stopped(&mut self) -> bool;
    /// Whether the configuration is to be read again; once for each request.
    fn is_reload_asked(&mut self) -> bool;
    /// The configuration was read again, or has mistakes and the one before stays.
    fn reloaded(&mut self, result: Result<(), ConfigError>);
    /// Whether [`Self::status`] is wanted now.
    fn is_status_due(&mut self) -> bool;
    /// What is in force now.
    fn status(&mut self, status: &Status);
}

/// The manager of this machine's processes.
pub struct Daemon {
    root: Root,
    config: Config,
    members: Members,
    executors: BTreeMap<Group, Executor>,
    /// Outlives the executors: what was given back, and what was made by ended ones.
    ledger: Arc<Mutex<Ledger>>,
    shortages: VecDeque<(Instant, Shortage)>,
    status: Status,
    history: History,
    began: Instant,
    survey_at: Instant,
    /// Seconds that pass for the designs in one second.
    speed: u32,
}

/// A rule's thread.
struct Executor {
    live: Live,
    pids: Arc<Mutex<Vec<Pid>>>,
}

impl Daemon {
    /// A daemon that keeps records in `dir`.
    ///
    /// # Errors
    /// The kernel has no superpages, or its settings cannot be read.
    pub fn new(root: Root, dir: &Path, config: Config) -> Result<Self, host::ReadError> {
        let superpage = Thp::pmd_size_of(&root)?;
        let ledger = Ledger::new(root.clone(), dir.to_path_buf(), superpage);
        Ok(Self {
            config,
            members: Members::new(&root),
            executors: BTreeMap::new(),
            ledger: Arc::new(Mutex::new(ledger)),
            shortages: VecDeque::new(),
            status: Status::default(),
            history: History::new(SURVEY),
            began: Instant::now(),
            survey_at: Instant::now(),
            speed: 1,
            root,
        })
    }

    /// Lets time pass faster for the designs and for intervals of this daemon, to try a day in minutes. CPU time is not
    /// scaled.
    pub fn sped_up(self, speed: u32) -> Self {
        let speed = speed.max(1);
        Self { speed, history: History::new(SURVEY), ..self }
    }

    /// Keeps the designs in force until it is stopped. Superpages stay; the records say which were made.
    pub fn run(mut self, control: &mut dyn Control) {
        while !control.is_stopped() {
            if control.is_reload_asked() {
                let result = self.config.reload(&self.root);
                if result.is_ok() {
                    // Rules may have changed, so each process is decided about again.
                    self.stop_executors();
                    self.members = Members::new(&self.root);
                }
                control.reloaded(result);
            }
            let began = sys::param::thread_cpu_time();
            self.turn();
            let used = sys::param::thread_cpu_time().saturating_sub(began);
            if control.is_status_due() {
                self.count();
                control.status(&self.status);
            }
            let pause = used.mul_f64(100.0 / self.config.machine.cpu_share);
            control.sleep((self.config.machine.interval / self.speed).max(pause));
        }
        self.stop_executors();
    }

    fn turn(&mut self) {
        self.members.renew(&self.root, &self.config);
        self.assign();
        self.give_back();
        let now = Instant::now();
        if now >= self.survey_at {
            let began = sys::param::thread_cpu_time();
            self.look();
            let used = sys::param::thread_cpu_time().saturating_sub(began);
            self.survey_at = now + (SURVEY / self.speed).max(used.div_f64(SURVEY_SHARE));
        }
    }

    /// Gives each rule's executor its processes, and starts and stops executors.
    fn assign(&mut self) {
        let wanted = self.members.groups();
        for group in
            self.executors.keys().filter(|it| !wanted.contains_key(it)).cloned().collect::<Vec<_>>()
        {
            if let Some(executor) = self.executors.remove(&group) {
                executor.live.stop();
            }
        }
        for (group, pids) in wanted {
            let is_ended = |executor: &Executor| !executor.live.is_running();
            if self.executors.get(&group).is_some_and(is_ended) {
                self.executors.remove(&group);
            }
            match self.executors.get(&group) {
                Some(executor) => *lock(&executor.pids) = pids,
                None => {
                    let executor = self.start(&group, pids);
                    self.executors.extend(executor.map(|executor| (group, executor)));
                }
            }
        }
        let members = self.members.enforced();
        lock(&self.ledger).retain(&members);
    }

    fn start(&self, group: &Group, pids: Vec<Pid>) -> Option<Executor> {
        let rule = self.config.rules.get(group.rule)?;
        let design = self.members.design_of(group)?;
        let pids = Arc::new(Mutex::new(pids));
        let keeper = Keeper::new(Arc::clone(&self.ledger), &rule.limits);
        let members = Arc::clone(&pids);
        let policy = design.policy(Scale::X86);
        let members = move || lock(&members).clone();
        let live = Live::supervise(policy, self.root.clone(), self.speed, members, keeper);
        Some(Executor { live, pids })
    }

    fn stop_executors(&mut self) {
        for executor in std::mem::take(&mut self.executors).into_values() {
            executor.live.stop();
        }
    }

    /// Gives superpages back while memory becomes short.
    fn give_back(&mut self) {
        let Ok(now) = Shortage::read(&self.root) else { return };
        let earlier = self.shortages.front().map_or(now, |(_, earlier)| *earlier);
        let before = self.shortages.back().map_or(now, |(_, before)| *before);
        let settings = self.config.machine.give_back;
        let leave_alone = settings.leave_alone / self.speed;
        let cause = now.cause(&before, &earlier, &settings);
        self.shortages.push_back((Instant::now(), now));
        while self.shortages.front().is_some_and(|(at, _)| at.elapsed() * self.speed > EARLIER) {
            self.shortages.pop_front();
        }
        self.status.shortage = cause;
        let enforced = self.members.enforced();
        let short = give_back::short_groups(&self.root, &enforced);
        for process in enforced {
            if cause.is_some() || short.contains(&process.pid) {
                let split = give_back::from(&self.root, &process, &self.ledger, leave_alone);
                self.status.given_back += split.split;
                self.status.given_back_bytes =
                    ByteSize(self.status.given_back_bytes.bytes() + split.bytes);
            }
        }
    }

    /// Reads the coverage of each process that a rule keeps a design for.
    fn look(&mut self) {
        let found = self.members.kept();
        self.status.processes = found.map(|found| status::look(&self.root, found)).collect();
        self.remember();
    }

    /// Adds the managed processes' figures to the history.
    fn remember(&mut self) {
        self.count();
        let managed = self.status.processes.iter().filter(|kept| kept.mode == Mode::Enforce);
        let mut coverage = Coverage::default();
        managed.filter_map(|kept| kept.coverage).for_each(|one| coverage += one);
        let status = &mut self.status;
        let added = status.filled.bytes().saturating_sub(status.given_back_bytes.bytes());
        self.history.add(Point {
            seconds: self.began.elapsed().as_secs_f64() * f64::from(self.speed),
            eligible: coverage.eligible,
            on_superpages: coverage.on_superpages,
            added: ByteSize(added),
            cpu_seconds: status.cpu_seconds,
        });
        status.history = self.history.points().to_vec();
    }

    fn count(&mut self) {
        self.status.pid = Some(sys::param::own_pid());
        self.status.configuration.clone_from(&self.config.files);
        lock(&self.ledger).count(&mut self.status);
        let kept: BTreeSet<Pid> = self.members.kept().map(|found| found.process.pid).collect();
        self.status.processes.retain(|one| kept.contains(&one.pid));
        self.status.left_alone = self.members.left_alone();
        self.status.members = self.members.enforced().len() as u64;
        self.status.observed = self.members.observed() as u64;
        self.status.cpu_seconds = sys::param::process_cpu_time(sys::param::own_pid())
            .map_or(0.0, |time| time.as_secs_f64());
    }
}

/// Locks; a panic of another thread leaves the data as it is.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
