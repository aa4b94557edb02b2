//! Which processes get which design: found on the machine, decided by the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use design::Design;
use host::Root;
use host::process;
use serde::{Deserialize, Serialize};
use services::Process;
use units::Pid;

use crate::config::{Config, HIDDEN, Limits, Mode, Outcome, Override, Request};
use crate::memory::{Forbidden, Memory};

/// How long a decision about a process is believed: it may execute another program, or its unit may change.
const RENEW: Duration = Duration::from_secs(30);
/// Largest share of the time for finding processes.
const SHARE: f64 = 0.002;

/// The processes of one rule that get one design.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Index of the rule.
    pub rule: usize,
    /// Name of the design.
    pub design: String,
}

/// A process for which a rule keeps a design in force.
#[derive(Debug, Clone)]
pub struct Found {
    pub process: Process,
    pub group: Group,
    pub design: Arc<Design>,
    pub mode: Mode,
    /// What forbids superpages in it.
    pub forbidden: Vec<Forbidden>,
    decided_at: Instant,
}

/// A process that a rule means and that gets nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftAlone {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// All processes, by what was decided.
pub struct Members {
    load: Option<process::KeptLoad>,
    newest: Option<Pid>,
    search_at: Instant,
    decide_at: Instant,
    /// Processes seen for the first time at the last search. Most end before the next.
    young: BTreeSet<Pid>,
    /// Others, that get nothing.
    others: BTreeSet<Pid>,
    kept: BTreeMap<Pid, Found>,
    left_alone: BTreeMap<Pid, LeftAlone>,
}

impl Members {
    pub fn new(root: &Root) -> Self {
        let now = Instant::now();
        Self {
            load: process::KeptLoad::open(root).ok(),
            newest: None,
            search_at: now,
            decide_at: now + RENEW,
            young: BTreeSet::new(),
            others: BTreeSet::new(),
            kept: BTreeMap::new(),
            left_alone: BTreeMap::new(),
        }
    }

    /// Searches for processes, and decides about those that were there at the last search too.
    pub fn renew(&mut self, root: &Root, config: &Config) {
        let now = Instant::now();
        let newest = self.load.as_mut().and_then(|load| load.newest_pid().ok());
        let is_due = now >= self.decide_at;
        let is_quiet = newest.is_some() && newest == self.newest && self.young.is_empty();
        if now < self.search_at || is_quiet && !is_due {
            self.kept.retain(|_, found| found.process.is_running(root));
            return;
        }
        let began = sys::param::thread_cpu_time();
        self.newest = newest;
        let Ok(pids) = process::pids(root) else { return };
        let pids: BTreeSet<Pid> = pids.into_iter().collect();
        if is_due {
            self.others.clear();
            self.decide_at = now + RENEW;
        }
        self.others.retain(|pid| pids.contains(pid));
        self.left_alone.retain(|pid, _| pids.contains(pid));
        self.kept.retain(|pid, found| pids.contains(pid) && found.process.is_running(root));
        let young = std::mem::take(&mut self.young);
        let is_first = self.kept.is_empty() && self.others.is_empty() && young.is_empty();
        for pid in pids {
            let known = self.kept.get(&pid).map(|found| found.decided_at);
            if known.is_some_and(|at| now < at + RENEW) || self.others.contains(&pid) {
                continue;
            }
            if known.is_none() && !is_first && !is_due && !young.contains(&pid) {
                self.young.insert(pid);
                continue;
            }
            self.decide(root, config, pid, now);
        }
        let used = sys::param::thread_cpu_time().saturating_sub(began);
        self.search_at = now + used.div_f64(SHARE);
    }

    fn decide(&mut self, root: &Root, config: &Config, pid: Pid, now: Instant) {
        self.left_alone.remove(&pid);
        self.kept.remove(&pid);
        // Until the next time that all are decided about, unless it is kept.
        self.others.insert(pid);
        let Ok(Some(process)) = Process::read(root, pid) else { return };
        let decision = config.decide(&process, || Request::read(root, &process));
        let why = match decision.outcome {
            Outcome::Keep(design) => {
                let rule = decision.rule.and_then(|rule| {
                    let at = config.rules.iter().position(|one| std::ptr::eq(one, rule))?;
                    Some((at, rule))
                });
                let Some((at, rule)) = rule else { return };
                // One that has ended meanwhile is decided about again if its pid is there.
                self.others.remove(&pid);
                let Some(forbidden) = forbidden(root, &process, &rule.limits) else { return };
                let group = Group { rule: at, design: design.name.clone() };
                let (mode, decided_at) = (rule.mode, now);
                let found = Found { process, group, design, mode, forbidden, decided_at };
                self.kept.insert(pid, found);
                return;
            }
            Outcome::Unmatched | Outcome::LeaveAlone => return,
            Outcome::BadRequest { asked, why } => format!("it asks for {asked:?}: {why}"),
            Outcome::UnknownRequest { why } => format!("what it asks for is unknown: {why}"),
            Outcome::UnknownLimits => HIDDEN.to_string(),
        };
        self.left_alone.insert(pid, LeftAlone { pid, name: process.name, why });
    }

    /// Processes on which designs are enforced, by group.
    pub fn groups(&self) -> BTreeMap<Group, Vec<Pid>> {
        let mut groups = BTreeMap::<Group, Vec<Pid>>::new();
        for found in self.kept.values().filter(|found| found.is_enforced()) {
            groups.entry(found.group.clone()).or_default().push(found.process.pid);
        }
        groups
    }

    pub fn design_of(&self, group: &Group) -> Option<Arc<Design>> {
        let found = self.kept.values().find(|found| found.group == *group)?;
        Some(Arc::clone(&found.design))
    }

    /// Processes for which a rule has a design, in both modes.
    pub fn kept(&self) -> impl Iterator<Item = &Found> {
        self.kept.values()
    }

    /// Processes in which superpages are made.
    pub fn enforced(&self) -> Vec<Process> {
        let enforced = self.kept.values().filter(|found| found.is_enforced());
        enforced.map(|found| found.process.clone()).collect()
    }

    /// Number of processes that are only observed.
    pub fn observed(&self) -> usize {
        self.kept.values().filter(|found| found.mode == Mode::Observe).count()
    }

    /// Processes that a rule means and that get nothing.
    pub fn left_alone(&self) -> Vec<LeftAlone> {
        self.left_alone.values().cloned().collect()
    }
}

impl Found {
    fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce && self.forbidden.is_empty()
    }
}

/// What forbids superpages in a process, apart from what its rule overrides; `None`: it ended or may not be read.
fn forbidden(root: &Root, process: &Process, limits: &Limits) -> Option<Vec<Forbidden>> {
    let memory = Memory::open(root, process).ok()?;
    let mut found = memory.forbidden().ok()?;
    found.extend(memory.has_locked().then_some(Forbidden::Locked));
    let is_overridden = |what: &Forbidden| match what {
        Forbidden::OffForMachine => limits.may_override.contains(&Override::ThpNever),
        Forbidden::Userfaultfd | Forbidden::UserfaultfdUnknown => {
            limits.may_override.contains(&Override::Userfaultfd)
        }
        Forbidden::OffForProcess | Forbidden::Locked => false,
    };
    found.retain(|what| !is_overridden(what));
    Some(found)
}
