//! Daemons in virtual time: when each is due, and the lists they share with the fault path.
//!
//! What they do is in `scan` and `upkeep`, and the policy says what. Each has one CPU of its own and works on it piece by piece:
//! a piece begins when the last one is done, so a daemon is never busy for longer than time passed, and a
//! pass that takes longer than its period delays the next. What lies beyond the end of the run is
//! taken out of the books again ([`System::cut_off`]).

use std::collections::{BTreeMap, VecDeque};

use policy::{Action, Daemon as Task, Event, Policy, Wait};

use super::System;
use crate::touched::Seen;
use crate::{Cause, Ledger};

/// A daemon's clock.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub task: Task,
    /// When it works next: not before its last piece of work is done.
    pub due: u64,
    pub period: u64,
    pass: Pass,
    last: Piece,
}

/// What a daemon knows of its pass. A new pass begins with none of it.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// When it was due. `None`: it has not begun.
    pub began: Option<u64>,
    /// What its earlier pieces took, in cycles.
    pub spent: u64,
    /// How far it came: a region.
    pub at: u32,
    /// Regions that were chosen when it began, the first one last.
    pub chosen: Vec<u32>,
}

/// A piece of a daemon's work.
#[derive(Debug, Default)]
struct Piece {
    until: u64,
    spent: Ledger,
}

/// All daemons of a design, and what they know.
#[derive(Debug)]
pub(crate) struct Daemons {
    pub list: Vec<Daemon>,
    /// The earliest `due`.
    pub next: u64,
    /// When the piece of work under way began, and what all daemons had spent by then.
    pub now: u64,
    before: u64,
    /// Regions whose population crossed the threshold, oldest first.
    pub candidates: VecDeque<u32>,
    /// The scan sleeps after a failure, until there are more candidates than this.
    pub naps_with: usize,
    /// Where the scan by address is: a process and a page.
    pub cursor: (u32, u32),
    /// When a process was last served (HawkEye's round robin among equals), by process.
    pub served: BTreeMap<u32, u64>,
    /// Superpages that are watched, the next one to visit last; and from where on others are.
    pub watched: (Vec<u32>, u32),
    /// A fault asked for compaction in the background.
    pub compaction_wanted: bool,
}

/// A daemon's work becomes visible in pieces of about this length: a tick of FreeBSD's clock at hz = 1000.
const PIECE_MICROSECONDS: u64 = 1000;

impl Default for Daemons {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            next: 0,
            now: 0,
            before: 0,
            candidates: VecDeque::new(),
            naps_with: usize::MAX,
            cursor: (0, 0),
            served: BTreeMap::new(),
            watched: (Vec::new(), 0),
            compaction_wanted: false,
        }
    }
}

impl Daemons {
    pub(crate) fn new(policy: &Policy, now: u64) -> Self {
        let daemon = |(task, period): (Task, u64)| Daemon {
            task,
            // Where in its period a daemon is when a program begins is chance: the middle is the mean.
            due: now + period / 2,
            period,
            pass: Pass::default(),
            last: Piece::default(),
        };
        let mut daemons = Self { list: policy.daemons().map(daemon).collect(), ..Self::default() };
        daemons.find_next();
        daemons
    }

    /// The daemon that was due first, no later than `now`.
    fn earliest(&self, now: u64) -> Option<usize> {
        let due = self.list.iter().enumerate().filter(|(_, daemon)| daemon.due <= now);
        due.min_by_key(|(at, daemon)| (daemon.due, *at)).map(|(at, _)| at)
    }

    fn find_next(&mut self) {
        self.next = self.list.iter().map(|daemon| daemon.due).min().unwrap_or(u64::MAX);
    }

    /// Ends the scan's sleep after a failure. It has done with what it did before.
    fn wake_scan(&mut self, now: u64) {
        self.naps_with = usize::MAX;
        for daemon in self.list.iter_mut().filter(|daemon| daemon.task == Task::Scan) {
            daemon.due = daemon.due.min(now.max(daemon.last.until));
        }
        self.find_next();
    }

    pub(crate) fn wake_compaction(&mut self) {
        self.compaction_wanted = true;
    }

    /// A process ended.
    pub(crate) fn forget(&mut self, process: u32) {
        self.served.remove(&process);
    }
}

impl Daemon {
    /// Its piece of work that was due is done.
    fn has_worked(&mut self, spent: Ledger, mut pass: Pass, next: Wait) {
        let cycles = spent.total();
        let until = self.due + cycles;
        let began = pass.began.unwrap_or(self.due);
        pass.began = Some(began);
        pass.spent += cycles;
        let (due, pass) = match next {
            Wait::Period => ((began + self.period).max(until), Pass::default()),
            Wait::After(rest) => (until + rest, Pass::default()),
            Wait::More => (until, pass),
            Wait::Pause(rest) => (until + rest, pass),
            Wait::Bytes(_) => unreachable!("what a process asks for is no daemon's matter"),
        };
        (self.due, self.pass) = (due.max(self.due + 1), pass);
        self.last = Piece { until, spent };
    }
}

impl System {
    /// Lets all daemons that are due do their work. The engine calls this often; it costs two comparisons.
    #[inline]
    pub(crate) fn tick(&mut self, seen: Seen<'_>) {
        let now = self.clock.now();
        self.spaces.now = now;
        if self.daemons.candidates.len() > self.daemons.naps_with {
            self.daemons.wake_scan(now);
        }
        if now >= self.daemons.next {
            self.work(now, seen);
        }
    }

    /// All work that fell due until `now`, in the order of its times.
    #[cold]
    fn work(&mut self, now: u64, seen: Seen<'_>) {
        while let Some(at) = self.daemons.earliest(now) {
            let Daemon { task, due, pass, .. } = &mut self.daemons.list[at];
            let (task, mut pass) = (*task, std::mem::take(pass));
            self.daemons.now = *due;
            let before = self.clock.background;
            self.daemons.before = before.total();
            let next = self.perform(task, &mut pass, seen);
            let spent = self.clock.background.since(&before);
            self.daemons.list[at].has_worked(spent, pass, next);
        }
        self.daemons.find_next();
    }

    /// Does a piece of a daemon's work: what the policy says, until it says that this is enough.
    fn perform(&mut self, task: Task, pass: &mut Pass, seen: Seen<'_>) -> Wait {
        let mut piece = super::scan::Visited::default();
        if task == Task::Scan {
            self.daemons.naps_with = usize::MAX;
        }
        let mut event = Event::Tick(task);
        loop {
            let facts = self.facts_of_daemon(task, pass, &piece);
            let action = self.policy.on(event, &facts);
            let (result, cost) = match action {
                Action::Wait(wait) => {
                    if let (Task::Scan, Wait::Pause(_)) = (task, wait) {
                        self.daemons.naps_with = self.daemons.candidates.len();
                    }
                    return wait;
                }
                _ if matches!(task, Task::Scan | Task::Sample) => self.scan(action, pass),
                _ if task == Task::Split => (self.watch(action), 0),
                _ => (self.keep_memory(action, pass, &mut piece, seen), 0),
            };
            event = Event::Outcome { action, result, cost };
        }
    }

    /// What the piece of work under way took so far, in cycles.
    pub(crate) fn spent_in_piece(&self) -> u64 {
        self.clock.background.total() - self.daemons.before
    }

    /// Whether the piece of work under way is long enough.
    pub(crate) fn is_piece_done(&self) -> bool {
        self.spent_in_piece() >= self.clock.of_microseconds(PIECE_MICROSECONDS)
    }

    /// The run ends: what daemons were at work on is counted up to here.
    pub(crate) fn cut_off(&mut self) {
        let now = self.clock.now();
        for daemon in &mut self.daemons.list {
            let Piece { until, spent } = std::mem::take(&mut daemon.last);
            let (all, beyond) = (spent.total(), until.saturating_sub(now));
            if beyond == 0 {
                continue;
            }
            let within = u128::from(all.saturating_sub(beyond));
            for cause in Cause::ALL {
                let kept = u128::from(spent[cause]) * within / u128::from(all);
                self.clock.background.withdraw(cause, spent[cause] - kept as u64);
            }
        }
    }
}
