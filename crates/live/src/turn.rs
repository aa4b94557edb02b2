//! The executor's thread: processes are looked at, the policy is told, and what it asks for is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::Root;
use host::process::{KeptLoad, MemoryMounts};
use policy::{Policy, Result as Ended};
use sys::param::thread_cpu_time;
use units::Pid;

use crate::ask::{self, Wanted};
use crate::daemons::Daemons;
use crate::extent::Extent;
use crate::make;
use crate::process::Process;
use crate::report::{Report, Tally};

/// Between turns, where there is something to see, and where there was nothing for long.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_IDLE_PAUSE: Duration = Duration::from_millis(50);
/// A pause is so many times the CPU time of the look before it: looking takes 1 % of a CPU.
const PAUSE_FOR_LOOKS: u32 = 99;

/// An executor under way.
pub(crate) struct Executor {
    pub policy: Policy,
    root: Root,
    mounts: MemoryMounts,
    members: Box<dyn Fn() -> Vec<Pid> + Send>,
    load: Option<KeptLoad>,
    newest: Option<Pid>,
    pub processes: BTreeMap<Pid, Process>,
    pub daemons: Daemons,
    /// Extents that are wanted and not made yet.
    pub pending: Vec<(Pid, u64)>,
    tally: Tally,
    began: Instant,
    stop: Arc<AtomicBool>,
}

impl Executor {
    pub(crate) fn new(
        policy: Policy,
        root: Root,
        members: Box<dyn Fn() -> Vec<Pid> + Send>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            daemons: Daemons::new(&policy),
            policy,
            mounts: MemoryMounts::from_pid(&root, sys::param::own_pid()).unwrap_or_default(),
            load: KeptLoad::open(&root).ok(),
            root,
            members,
            newest: None,
            processes: BTreeMap::new(),
            pending: Vec::new(),
            tally: Tally::default(),
            began: Instant::now(),
            stop,
        }
    }

    pub(crate) fn run(mut self) -> Report {
        let mut idle = MIN_PAUSE;
        while !self.is_stopped() {
            let began = thread_cpu_time();
            self.renew();
            let has_looked = self.look();
            let looked = thread_cpu_time().saturating_sub(began);
            self.tally.report.looking_seconds += looked.as_secs_f64();
            let began = thread_cpu_time();
            self.make_pending();
            self.work();
            let made = thread_cpu_time().saturating_sub(began);
            self.tally.report.making_seconds += made.as_secs_f64();
            idle = if has_looked { MIN_PAUSE } else { (idle * 5 / 4).min(MAX_IDLE_PAUSE) };
            let pause = idle.max(looked * PAUSE_FOR_LOOKS);
            let due = self.daemons.next_due().map(|due| due.saturating_sub(self.now()));
            let pause = due.map_or(pause, |due| pause.min(Duration::from_micros(due)));
            if !self.is_stopped() {
                std::thread::park_timeout(pause);
            }
        }
        let wanted = |extent: &&Extent| extent.is_wanted && !extent.is_huge;
        let extents = self.processes.values().flat_map(|process| process.extents.values());
        self.tally.report.unmade = extents.filter(wanted).count() as u64;
        self.tally.end()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// In ticks since the program was started.
    pub(crate) fn now(&self) -> u64 {
        now_since(self.began)
    }

    /// Finds the processes anew if one was born anywhere since.
    fn renew(&mut self) {
        let newest = self.load.as_mut().and_then(|load| load.newest_pid().ok());
        if newest.is_some() && newest == self.newest {
            return;
        }
        self.newest = newest;
        let members = (self.members)();
        self.processes.retain(|pid, _| members.contains(pid));
        for pid in members {
            if !self.processes.contains_key(&pid)
                && let Some(process) = Process::open(&self.root, pid)
            {
                self.tally.report.processes += 1;
                self.processes.insert(pid, process);
            }
        }
    }

    /// Looks at processes that took faults, and tells the policy. Whether there was something to see.
    fn look(&mut self) -> bool {
        let now = self.now();
        let mut has_looked = false;
        let is_shared = self.processes.len() > 1;
        let mut gone = Vec::new();
        for (pid, process) in &mut self.processes {
            let grown = match process.look(&self.root, &self.mounts, now) {
                Ok(None) => continue,
                Ok(Some(grown)) => grown,
                Err(error) => {
                    if !error.is_gone() {
                        self.tally.report.unseen = Some(error.to_string());
                    }
                    gone.push(*pid);
                    continue;
                }
            };
            has_looked = true;
            self.tally.report.looks += 1;
            for growth in grown {
                let Some(mut extent) = process.extents.get(&growth.start).copied() else {
                    continue;
                };
                let report = &mut self.tally.report;
                report.touched += u64::from(growth.before == 0);
                if extent.is_huge {
                    report.by_others += u64::from(!extent.is_ours);
                    continue;
                }
                let shared = || is_shared && process.is_shared(growth.start);
                match ask::grew(&mut self.policy, &mut extent, growth.before, shared) {
                    Wanted::Superpage if !extent.is_wanted => {
                        extent.is_wanted = true;
                        self.pending.push((*pid, growth.start));
                    }
                    Wanted::Candidate => self.daemons.candidates.push_back((*pid, growth.start)),
                    Wanted::Superpage | Wanted::Nothing => {}
                }
                if !extent.is_wanted {
                    report.fullest = report.fullest.max(extent.populated);
                }
                process.extents.insert(growth.start, extent);
            }
        }
        self.processes.retain(|pid, _| !gone.contains(pid));
        has_looked
    }

    /// Makes what is wanted and may be tried now.
    fn make_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let now = self.now();
        let mut by_process = BTreeMap::<Pid, Vec<u64>>::new();
        let mut rest = Vec::new();
        for (pid, start) in std::mem::take(&mut self.pending) {
            let process = self.processes.get(&pid);
            match process.and_then(|process| process.extents.get(&start)) {
                Some(extent) if extent.is_wanted && !extent.is_huge => {
                    match extent.retry_at <= now {
                        true => by_process.entry(pid).or_default().push(start),
                        false => rest.push((pid, start)),
                    }
                }
                _ => {}
            }
        }
        for (pid, mut starts) in by_process {
            starts.sort_unstable();
            for some in starts.chunks(64) {
                if !self.is_stopped() {
                    self.make(pid, some);
                }
                let process = self.processes.get(&pid);
                let left = |start: &&u64| {
                    let extent = process.and_then(|process| process.extents.get(*start));
                    extent.is_some_and(|extent| extent.is_wanted)
                };
                rest.extend(some.iter().filter(left).map(|&start| (pid, start)));
            }
        }
        self.pending = rest;
    }

    pub(crate) fn make(&mut self, pid: Pid, starts: &[u64]) -> Ended {
        let Some(process) = self.processes.get_mut(&pid) else { return Ended::Nothing };
        let began = self.began;
        make::make(process, starts, &mut self.tally, &|| now_since(began))
    }
}

fn now_since(began: Instant) -> u64 {
    began.elapsed().as_micros() as u64
}
