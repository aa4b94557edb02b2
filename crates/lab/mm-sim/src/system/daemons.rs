//! Daemons in virtual time: when each is due, what it knows of its pass, and what faults leave for it.
//!
//! Each has one CPU of its own and works on it piece by piece: a piece begins when the last one is done, so a daemon is
//! never busy for longer than time passed, and a pass that takes longer than its period delays the next. What lies beyond
//! the end of the run is taken out of the books again ([`Daemons::cut_off`]).

use trace::{Page, Region};

use std::collections::{BTreeMap, VecDeque};

use policy::{Daemon as Task, Policy, Wait};

use super::clock::Clock;
use crate::{Cause, CycleCounts};

/// A daemon's clock.
#[derive(Debug)]
struct Daemon {
    task: Task,
    /// When it works next: not before its last piece of work is done.
    due: u64,
    period: u64,
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
    pub at: Region,
    /// Regions that were chosen when it began, the first one last.
    pub chosen: Vec<Region>,
}

/// A piece of a daemon's work.
#[derive(Debug, Default)]
struct Piece {
    until: u64,
    spent: CycleCounts,
}

/// A piece of work that fell due.
#[derive(Debug)]
pub(crate) struct Due {
    pub task: Task,
    pub pass: Pass,
    at: usize,
    /// What all daemons had spent before it.
    before: CycleCounts,
}

/// All daemons of a design, and what they know.
#[derive(Debug, Default)]
pub(crate) struct Daemons {
    list: Vec<Daemon>,
    /// Daemons work: not while the fragmenter does, as the artifact enables policies after it.
    awake: bool,
    /// The earliest `due`.
    next: u64,
    /// When the piece of work under way began, and what all daemons had spent by then.
    now: u64,
    before: u64,
    /// Regions whose population crossed the threshold, oldest first.
    candidates: VecDeque<Region>,
    /// The scan sleeps after a failure, until there are more candidates than this.
    naps_with: Option<usize>,
    /// Where the scan by address is: a process and a page.
    cursor: (u32, Page),
    /// When a process was last served (HawkEye's round robin among equals), by process.
    served: BTreeMap<u32, u64>,
    /// Superpages that are watched, the next one to visit last; and from where on others are.
    watched: (Vec<Region>, Region),
    /// A fault asked for compaction in the background.
    compaction_wanted: bool,
    /// Until when a daemon keeps the faults of a process out: (process, time).
    locked: Option<(u32, u64)>,
}

/// A daemon's work becomes visible in pieces of about this length: a tick of FreeBSD's clock at hz = 1000.
const PIECE_MICROSECONDS: u64 = 1000;

impl Daemons {
    /// The daemons of a design begin at a time.
    pub(crate) fn new(policy: &Policy, now: u64) -> Self {
        let daemon = |(task, period): (Task, u64)| Daemon {
            task,
            // Where in its period a daemon is when a program begins is chance: the middle is the mean.
            // See docs/decisions/lab-model.md#1.
            due: now + period / 2,
            period,
            pass: Pass::default(),
            last: Piece::default(),
        };
        let list = policy.daemons().map(daemon).collect();
        let mut daemons = Self { list, awake: true, ..Self::default() };
        daemons.find_next();
        daemons
    }

    /// Whether they work.
    #[inline]
    pub(crate) fn are_awake(&self) -> bool {
        self.awake
    }

    /// Whether a daemon has work to do at a time.
    #[inline]
    pub(crate) fn is_any_due(&mut self, now: u64) -> bool {
        if self.naps_with.is_some_and(|most| self.candidates.len() > most) {
            self.wake_scan(now);
        }
        now >= self.next
    }

    /// The daemon that was due first, no later than `now`, begins a piece of work.
    pub(crate) fn begin_piece(&mut self, now: u64, clock: &Clock) -> Option<Due> {
        let due = self.list.iter_mut().enumerate().filter(|(_, daemon)| daemon.due <= now);
        let Some((at, daemon)) = due.min_by_key(|(at, daemon)| (daemon.due, *at)) else {
            self.find_next();
            return None;
        };
        let before = *clock.background();
        (self.now, self.before) = (daemon.due, before.total());
        if daemon.task == Task::Scan {
            self.naps_with = None;
        }
        Some(Due { task: daemon.task, pass: std::mem::take(&mut daemon.pass), at, before })
    }

    /// That piece of work is done.
    pub(crate) fn end_piece(&mut self, piece: Due, clock: &Clock, next: Wait) {
        if let (Task::Scan, Wait::Pause(_)) = (piece.task, next) {
            self.naps_with = Some(self.candidates.len());
        }
        let spent = clock.background().since(&piece.before);
        self.list[piece.at].has_worked(spent, piece.pass, next);
    }

    fn find_next(&mut self) {
        self.next = self.list.iter().map(|daemon| daemon.due).min().unwrap_or(u64::MAX);
    }

    /// Ends the scan's sleep after a failure. It has done with what it did before.
    fn wake_scan(&mut self, now: u64) {
        self.naps_with = None;
        for daemon in self.list.iter_mut().filter(|daemon| daemon.task == Task::Scan) {
            daemon.due = daemon.due.min(now.max(daemon.last.until));
        }
        self.find_next();
    }

    /// When the piece of work under way began.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// What the piece of work under way took so far, in cycles.
    pub(crate) fn spent_in_piece(&self, clock: &Clock) -> u64 {
        clock.background().total() - self.before
    }

    /// Whether the piece of work under way is long enough.
    pub(crate) fn is_piece_done(&self, clock: &Clock) -> bool {
        self.spent_in_piece(clock) >= clock.of_microseconds(PIECE_MICROSECONDS)
    }

    /// The run ends: what daemons were at work on is counted up to here.
    pub(crate) fn cut_off(&mut self, clock: &mut Clock) {
        let now = clock.now();
        for daemon in &mut self.list {
            let Piece { until, spent } = std::mem::take(&mut daemon.last);
            let (all, beyond) = (spent.total(), until.saturating_sub(now));
            if beyond == 0 {
                continue;
            }
            let within = u128::from(all.saturating_sub(beyond));
            for cause in Cause::ALL {
                let kept = u128::from(spent[cause]) * within / u128::from(all);
                clock.withdraw_behind(cause, spent[cause] - kept as u64);
            }
        }
    }

    /// A region becomes a candidate for a superpage.
    pub(crate) fn list(&mut self, region: Region) {
        self.candidates.push_back(region);
    }

    /// How many candidates wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.candidates.len() as u32
    }

    /// The candidate that waits longest; it does no more.
    pub(crate) fn next_candidate(&mut self) -> Option<Region> {
        self.candidates.pop_front()
    }

    /// Where the scan by address is.
    pub(crate) fn cursor(&self) -> (u32, Page) {
        self.cursor
    }

    /// The scan by address continues from another place.
    pub(crate) fn set_cursor(&mut self, process: u32, page: Page) {
        self.cursor = (process, page);
    }

    /// When a process was last served.
    pub(crate) fn served(&self, process: u32) -> u64 {
        self.served.get(&process).copied().unwrap_or(0)
    }

    /// A process is served now.
    pub(crate) fn serve(&mut self, process: u32, now: u64) {
        self.served.insert(process, now);
    }

    /// A process ended.
    pub(crate) fn forget(&mut self, process: u32) {
        self.served.remove(&process);
    }

    /// From which region on superpages are watched next.
    pub(crate) fn watches_from(&self) -> Region {
        self.watched.1
    }

    /// These superpages are watched now, in the order in which they were found.
    pub(crate) fn watch(&mut self, mut found: Vec<Region>) {
        let Some(last) = found.last() else { return };
        self.watched.1 = last.next();
        found.reverse();
        self.watched.0 = found;
    }

    /// The superpage that is watched longest; it is no more.
    pub(crate) fn next_watched(&mut self) -> Option<Region> {
        self.watched.0.pop()
    }

    /// A fault asks for compaction in the background.
    pub(crate) fn wake_compaction(&mut self) {
        self.compaction_wanted = true;
    }

    /// Whether one did since this was last asked.
    pub(crate) fn take_compaction_wanted(&mut self) -> bool {
        std::mem::take(&mut self.compaction_wanted)
    }

    /// A daemon has an address space to itself for so many cycles more.
    pub(crate) fn lock(&mut self, process: u32, now: u64, cycles: u64) {
        // What it did since the program last waited follows one on the other.
        let until = self.locked.filter(|lock| lock.0 == process).map_or(0, |lock| lock.1);
        self.locked = Some((process, until.max(now) + cycles));
    }

    /// Whether a daemon keeps the faults of a process out, or did since the process last waited.
    #[inline]
    pub(crate) fn locks(&self, process: u32) -> bool {
        self.locked.is_some_and(|lock| lock.0 == process)
    }

    /// How long the process that is kept out waits at a time. It is kept out no more.
    pub(crate) fn end_lock(&mut self, now: u64) -> u64 {
        self.locked.take().map_or(0, |lock| lock.1.saturating_sub(now))
    }
}

impl Daemon {
    /// Its piece of work that was due is done.
    fn has_worked(&mut self, spent: CycleCounts, mut pass: Pass, next: Wait) {
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
