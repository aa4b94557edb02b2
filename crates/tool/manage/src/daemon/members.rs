//! Which processes get which design: found on the machine, decided by the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
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

/// How long a decision about a process is believed: its unit may change, or a program executed unseen.
const RENEW: Duration = Duration::from_secs(30);
/// Largest share of the time for finding processes.
const SHARE: f64 = 0.002;

/// Processes without a design that are looked at in one turn, in the order of pids: whether they execute another program
/// since, which a rule may mean. A look takes 8 µs.
const LOOKS: usize = 100;

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
    program: u64,
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
    /// Others, that get nothing, with the program that each executed when that was decided.
    others: BTreeMap<Pid, u64>,
    /// The last of them that was looked at.
    looked_to: Pid,
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
            others: BTreeMap::new(),
            looked_to: Pid(0),
            kept: BTreeMap::new(),
            left_alone: BTreeMap::new(),
        }
    }

    /// Searches for processes, and decides about those that were there at the last search too.
    pub fn renew(&mut self, root: &Root, config: &Config) {
        let now = Instant::now();
        for pid in self.executed(root) {
            self.decide(root, config, pid, now);
        }
        let newest = self.load.as_mut().and_then(|load| load.newest_pid().ok());
        let is_due = now >= self.decide_at;
        let is_quiet = newest.is_some() && newest == self.newest && self.young.is_empty();
        if now < self.search_at || is_quiet && !is_due {
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
        self.others.retain(|pid, _| pids.contains(pid));
        self.left_alone.retain(|pid, _| pids.contains(pid));
        self.kept.retain(|pid, _| pids.contains(pid));
        let young = std::mem::take(&mut self.young);
        let is_first = self.kept.is_empty() && self.others.is_empty() && young.is_empty();
        for pid in pids {
            let known = self.kept.get(&pid).map(|found| found.decided_at);
            if known.is_some_and(|at| now < at + RENEW) || self.others.contains_key(&pid) {
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

    /// Processes that execute another program since they were decided about: of those with a design all, of the others the
    /// next ones. Forgets those with a design that have ended.
    fn executed(&mut self, root: &Root) -> Vec<Pid> {
        let mut executed = Vec::new();
        self.kept.retain(|pid, found| match process::stat(root, *pid) {
            Ok(stat) if stat.start_ticks != found.process.start_ticks || stat.is_dead() => false,
            Ok(stat) => {
                executed.extend((stat.stack_start != found.program).then_some(*pid));
                true
            }
            Err(_) => false,
        });
        let after = (Bound::Excluded(self.looked_to), Bound::Unbounded);
        let rest = self.others.range(after).chain(self.others.range(..=self.looked_to));
        let next: Vec<(Pid, u64)> =
            rest.take(LOOKS).map(|(pid, program)| (*pid, *program)).collect();
        for (pid, program) in next {
            self.looked_to = pid;
            let now = process::stat(root, pid);
            // One that has ended has no stack.
            let is_other = now.is_ok_and(|stat| !stat.is_dead() && stat.stack_start != program);
            executed.extend(is_other.then_some(pid));
        }
        executed
    }

    fn decide(&mut self, root: &Root, config: &Config, pid: Pid, now: Instant) {
        self.left_alone.remove(&pid);
        self.kept.remove(&pid);
        // Until the next time that all are decided about, unless it is kept.
        // Read before the decision: a program that is executed meanwhile is another one.
        let program = process::stat(root, pid).map_or(0, |stat| stat.stack_start);
        self.others.insert(pid, program);
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
                let found = Found { process, group, design, mode, forbidden, decided_at, program };
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
    let is_overridden = |what: &Forbidden| match what {
        Forbidden::OffForMachine => limits.may_override.contains(&Override::ThpNever),
        Forbidden::Userfaultfd | Forbidden::UserfaultfdUnknown => {
            limits.may_override.contains(&Override::Userfaultfd)
        }
        Forbidden::OffForProcess => false,
    };
    found.retain(|what| !is_overridden(what));
    Some(found)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::config::Sources;

    #[test]
    fn a_program_that_a_known_process_executes_is_found_before_all_are_decided_about_again() {
        let root = Root::real();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("manage.toml");
        // No other process sleeps that long.
        let seconds = 2_000_000 + std::process::id();
        let rule = format!("[[rule]]\ncommand = \"^sleep {seconds}\"\ndesign = \"sync-64\"\n");
        std::fs::write(&file, rule).unwrap();
        let config = Config::read(&root, &Sources::File(file)).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("read line; exec sleep {seconds}")]).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let pid = Pid(shell.id() as i32);
        let mut members = Members::new(&root);
        // Never again for another reason.
        let never = Instant::now() + Duration::from_secs(86_400);
        members.decide_at = never;
        let reaches = |members: &mut Members, is_met: &dyn Fn(&Members) -> bool| {
            let end = Instant::now() + Duration::from_secs(60);
            while !is_met(members) && Instant::now() < end {
                members.renew(&root, &config);
                std::thread::sleep(Duration::from_millis(5));
            }
            is_met(members)
        };
        let is_other = |members: &Members| members.others.contains_key(&pid);
        let is_kept = |members: &Members| members.kept.contains_key(&pid);
        let was_other = reaches(&mut members, &is_other);
        shell.stdin.take().unwrap().write_all(b"\n").unwrap();
        let was_kept = reaches(&mut members, &is_kept);
        let _ = shell.kill();
        let _ = shell.wait();
        assert_eq!((was_other, was_kept, members.decide_at), (true, true, never));
        assert!(reaches(&mut members, &|members| !is_kept(members)), "it has ended");
    }
}
