//! Daemons in virtual time: when each is due, and the lists they share with the fault path.
//!
//! What they do is in `scan`, `inactive` and `upkeep`. A daemon that worked for some cycles is not due
//! again before they have passed.

use std::collections::{BTreeMap, VecDeque};

use design::{Design, Release};

use super::System;
use crate::touched::Seen;

/// What a daemon does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Makes superpages out of base pages.
    Scan,
    /// Clears accessed bits, or counts them.
    Sample,
    /// Moves the pages of inactive reservations.
    Inactive,
    /// Completes reservations.
    Fill,
    /// Zeroes free memory.
    Prezero,
    /// Compacts.
    Compact,
    /// Reclaims ahead of need.
    Reclaim,
    /// Takes zero-filled pages from superpages.
    Recover,
}

/// A daemon's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Daemon {
    pub task: Task,
    pub due: u64,
    pub period: u64,
}

/// All daemons of a design, and what they know.
#[derive(Debug, Default)]
pub(crate) struct Daemons {
    pub list: Vec<Daemon>,
    /// The earliest `due`.
    pub next: u64,
    /// When the daemon at work was due: its present.
    pub now: u64,
    /// Regions whose population crossed the threshold, oldest first.
    pub candidates: VecDeque<u32>,
    /// Where the scan by address is: a process and a page.
    pub cursor: (u32, u32),
    /// A sample is under way since this time.
    pub sampling: Option<u64>,
    /// When a process was last served (HawkEye's round robin among equals), by process.
    pub served: BTreeMap<u32, u64>,
    /// A fault asked for compaction in the background.
    pub compaction_wanted: bool,
    /// Bloat is being recovered until enough is free.
    pub recovering: bool,
    /// Proactive compaction waits this many more checks, after one without progress.
    pub compaction_rests: u32,
    /// Zeroed per mille of free memory fell below the start, not yet above the stop.
    pub zeroing: bool,
}

/// How often proactive compaction looks (Linux `HPAGE_FRAG_CHECK_INTERVAL_MSEC`).
const COMPACT_CHECK: std::time::Duration = std::time::Duration::from_millis(500);
/// How often memory's watermarks are looked at: kswapd is woken at once, which is at the next tick here.
const RECLAIM_CHECK: std::time::Duration = std::time::Duration::from_millis(100);

impl Daemons {
    pub(crate) fn new(
        design: &Design,
        now: u64,
        cycles: impl Fn(std::time::Duration) -> u64,
    ) -> Self {
        let mut list = Vec::new();
        let mut add = |task, period: std::time::Duration| {
            let period = cycles(period).max(1);
            // Where in its period a daemon is when a program begins is chance: the middle is the mean.
            list.push(Daemon { task, due: now + period / 2, period });
        };
        if let Release::Inactive { every, .. } = design.deallocation.release {
            add(Task::Inactive, every);
        }
        if let Some(fill) = design.preparation.background {
            add(Task::Fill, fill.every);
        }
        if let Some(prezero) = design.preparation.prezero {
            add(Task::Prezero, prezero.every);
        }
        if let Some(scan) = &design.mapping.scan {
            if let Some(sampling) = &scan.sampling {
                add(Task::Sample, sampling.every);
            }
            add(Task::Scan, scan.every);
        }
        let memory = &design.memory;
        if let Some((_, every)) = memory.periodic_compaction {
            add(Task::Compact, every);
        } else if memory.background_compaction || memory.proactiveness > 0 {
            add(Task::Compact, COMPACT_CHECK);
        }
        if let Some(bloat) = design.deallocation.bloat {
            add(Task::Recover, bloat.every);
        }
        add(Task::Reclaim, RECLAIM_CHECK);
        let next = list.iter().map(|daemon| daemon.due).min().unwrap_or(u64::MAX);
        Self { list, next, ..Self::default() }
    }

    /// The daemon that was due first, no later than `now`.
    fn earliest(&self, now: u64) -> Option<usize> {
        let due = self.list.iter().enumerate().filter(|(_, daemon)| daemon.due <= now);
        due.min_by_key(|(at, daemon)| (daemon.due, *at)).map(|(at, _)| at)
    }

    pub(crate) fn wake_compaction(&mut self) {
        self.compaction_wanted = true;
    }

    /// A process ended.
    pub(crate) fn forget(&mut self, process: u32) {
        self.served.remove(&process);
    }
}

impl System {
    /// Lets all daemons that are due do their work. The engine calls this often; it costs one comparison.
    #[inline]
    pub(crate) fn tick(&mut self, seen: Seen<'_>) {
        let now = self.clock.now();
        self.spaces.now = now;
        let woken = !self.daemons.candidates.is_empty() && self.awake;
        if now >= self.daemons.next || woken {
            self.work(now, woken, seen);
        }
    }

    /// All work that fell due until `now`, in the order of its times.
    #[cold]
    fn work(&mut self, now: u64, woken: bool, seen: Seen<'_>) {
        if woken && now >= self.scan_busy {
            // Crossing the threshold wakes the scan at once, unless it is at work still.
            let before = self.clock.background.total();
            self.daemons.now = now;
            let asked = self.perform(Task::Scan, seen).unwrap_or(0);
            let busy = self.clock.background.total() - before;
            self.scan_busy = now + busy.max(asked);
        }
        while let Some(at) = self.daemons.earliest(now) {
            let Daemon { task, due, period } = self.daemons.list[at];
            let before = self.clock.background.total();
            self.daemons.now = due;
            let asked = self.perform(task, seen);
            let busy = self.clock.background.total() - before;
            self.daemons.list[at].due = due + asked.unwrap_or(period).max(busy).max(1);
        }
        self.daemons.next =
            self.daemons.list.iter().map(|daemon| daemon.due).min().unwrap_or(u64::MAX);
    }

    /// Does a daemon's work once; returns the time to its next, if not its period.
    fn perform(&mut self, task: Task, seen: Seen<'_>) -> Option<u64> {
        match task {
            Task::Scan => self.scan(),
            Task::Sample => self.sample(),
            Task::Inactive => self.evacuate_inactive(),
            Task::Fill => self.fill_in_background(),
            Task::Prezero => self.prezero(),
            Task::Compact => self.compact_in_background(),
            Task::Reclaim => self.keep_watermarks(),
            Task::Recover => self.recover(seen),
        }
        .then_after()
    }
}

/// A daemon's wish for its next time.
pub(crate) enum Next {
    /// Its period.
    Period,
    /// After this many cycles.
    After(u64),
}

impl Next {
    fn then_after(self) -> Option<u64> {
        match self {
            Self::Period => None,
            Self::After(cycles) => Some(cycles),
        }
    }
}
