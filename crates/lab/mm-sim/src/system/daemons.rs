//! Daemons in virtual time: when each is due, the state of its pass, and requests from faults.
//!
//! Each daemon has its own CPU and works in pieces: a piece starts when the last one is done, so a daemon is never
//! busy for longer than time passed, and a pass longer than its period delays the next. Work beyond the end of the
//! run is refunded ([`Daemons::cut_off`]).

use std::collections::{BTreeMap, VecDeque};

use policy::rules::Effort;
use policy::{Action, Daemon as Task, DaemonAction, Event, Facts, How, Policy, Wait};
use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::clock::{Clock, Payer};
use super::scan::Visited;
use super::spaces::region::{Entry, LISTED};
use crate::memory::{Frame, Mobility, Owner};
use crate::touched::TouchedView;
use crate::{Cause, CycleCounts};

/// A daemon's clock.
#[derive(Debug)]
struct Daemon {
    task: Task,
    /// Time of its next work; not before its last piece of work is done.
    due: u64,
    period: u64,
    pass: Pass,
    last: Piece,
}

/// State of a daemon's pass. A new pass starts empty.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// Time it was due. `None`: not started.
    pub began: Option<u64>,
    /// Cycles of its earlier pieces.
    pub spent: u64,
    /// Position: a region.
    pub at: Region,
    /// Regions chosen at the start of the pass, the first one last.
    pub chosen: Vec<Region>,
}

/// A piece of a daemon's work.
#[derive(Debug, Default)]
struct Piece {
    until: u64,
    spent: CycleCounts,
}

/// A piece of work that is due.
#[derive(Debug)]
pub(crate) struct Due {
    pub task: Task,
    pub pass: Pass,
    at: usize,
    /// Total cycles of all daemons before it.
    before: CycleCounts,
}

/// All daemons of a design, and their state.
#[derive(Debug, Default)]
pub(crate) struct Daemons {
    list: Vec<Daemon>,
    /// Daemons are enabled: not while the fragmenter runs, as the artifact enables policies after it.
    awake: bool,
    /// The earliest `due`.
    next: u64,
    /// Start time of the current piece of work, and total cycles of all daemons by then.
    now: u64,
    before: u64,
    /// Regions whose population crossed the threshold, oldest first.
    candidates: VecDeque<Region>,
    /// The scan sleeps after a failure, until there are more candidates than this.
    naps_with: Option<usize>,
    /// Position of the scan by address: process and page.
    cursor: (u32, Page),
    /// When a process was last served (HawkEye's round robin among equals), by process.
    served: BTreeMap<u32, u64>,
    /// Watched superpages, the next one to visit last; and the region from which the next ones are chosen.
    watched: (Vec<Region>, Region),
    /// A fault requested background compaction.
    compaction_wanted: bool,
    /// End of a daemon's lock on a process's address space: (process, time).
    locked: Option<(u32, u64)>,
}

/// A daemon's work becomes visible in pieces of about this length: a tick of FreeBSD's clock at hz = 1000.
const PIECE_MICROSECONDS: u64 = 1000;

impl Daemons {
    /// Starts the daemons of a design at time `now`.
    pub(crate) fn new(policy: &Policy, now: u64) -> Self {
        let daemon = |(task, period): (Task, u64)| Daemon {
            task,
            // A daemon's position in its period when a program starts is random: the middle is the mean.
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

    /// Whether the daemons are enabled.
    #[inline]
    pub(crate) fn are_awake(&self) -> bool {
        self.awake
    }

    /// Whether any daemon is due.
    #[inline]
    pub(crate) fn is_any_due(&mut self, now: u64) -> bool {
        if self.naps_with.is_some_and(|most| self.candidates.len() > most) {
            self.wake_scan(now);
        }
        now >= self.next
    }

    /// Starts a piece of work of the daemon that was due first, no later than `now`.
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

    /// Ends that piece of work.
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

    /// Start time of the current piece of work.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Cycles of the current piece of work so far.
    pub(crate) fn spent_in_piece(&self, clock: &Clock) -> u64 {
        clock.background().total() - self.before
    }

    /// Whether the current piece of work is long enough.
    pub(crate) fn is_piece_done(&self, clock: &Clock) -> bool {
        self.spent_in_piece(clock) >= clock.of_microseconds(PIECE_MICROSECONDS)
    }

    /// Ends the run: work in progress is counted only up to now.
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

    /// Adds a region as a candidate for a superpage.
    pub(crate) fn list(&mut self, region: Region) {
        self.candidates.push_back(region);
    }

    /// Number of waiting candidates.
    pub(crate) fn waiting(&self) -> u32 {
        self.candidates.len() as u32
    }

    /// Removes and returns the oldest candidate.
    pub(crate) fn next_candidate(&mut self) -> Option<Region> {
        self.candidates.pop_front()
    }

    /// Position of the scan by address.
    pub(crate) fn cursor(&self) -> (u32, Page) {
        self.cursor
    }

    /// Sets the position of the scan by address.
    pub(crate) fn set_cursor(&mut self, process: u32, page: Page) {
        self.cursor = (process, page);
    }

    /// Time a process was last served.
    pub(crate) fn served(&self, process: u32) -> u64 {
        self.served.get(&process).copied().unwrap_or(0)
    }

    /// Records that a process is served now.
    pub(crate) fn serve(&mut self, process: u32, now: u64) {
        self.served.insert(process, now);
    }

    /// Removes an exited process.
    pub(crate) fn forget(&mut self, process: u32) {
        self.served.remove(&process);
    }

    /// The region from which the next superpages to watch are chosen.
    pub(crate) fn watches_from(&self) -> Region {
        self.watched.1
    }

    /// Starts watching these superpages, in the order in which they were found.
    pub(crate) fn watch(&mut self, mut found: Vec<Region>) {
        let Some(last) = found.last() else { return };
        self.watched.1 = last.next();
        found.reverse();
        self.watched.0 = found;
    }

    /// Removes and returns the superpage watched for longest.
    pub(crate) fn next_watched(&mut self) -> Option<Region> {
        self.watched.0.pop()
    }

    /// Requests background compaction.
    pub(crate) fn wake_compaction(&mut self) {
        self.compaction_wanted = true;
    }

    /// Whether a fault requested background compaction since the last call.
    pub(crate) fn take_compaction_wanted(&mut self) -> bool {
        std::mem::take(&mut self.compaction_wanted)
    }

    /// Locks an address space for a daemon for `cycles` more cycles.
    pub(crate) fn lock(&mut self, process: u32, now: u64, cycles: u64) {
        // A daemon's work since the program last waited is consecutive.
        let until = self.locked.filter(|lock| lock.0 == process).map_or(0, |lock| lock.1);
        self.locked = Some((process, until.max(now) + cycles));
    }

    /// Whether a daemon locks out the faults of a process, or did since the process last waited.
    #[inline]
    pub(crate) fn locks(&self, process: u32) -> bool {
        self.locked.is_some_and(|lock| lock.0 == process)
    }

    /// Time that the locked-out process must wait; ends the lock.
    pub(crate) fn end_lock(&mut self, now: u64) -> u64 {
        self.locked.take().map_or(0, |lock| lock.1.saturating_sub(now))
    }
}

impl Daemon {
    /// Records that the daemon's due piece of work is done.
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
        };
        (self.due, self.pass) = (due.max(self.due + 1), pass);
        self.last = Piece { until, spent };
    }
}

// Daemons at work: due work is done in the order of due times.
// See docs/decisions/lab-model.md#6.

impl System {
    /// Runs all due daemons. The engine calls this often; it costs two comparisons.
    #[inline]
    pub(crate) fn tick(&mut self, touched: TouchedView<'_>) {
        let now = self.clock.now();
        if self.daemons.is_any_due(now) {
            self.work(now, touched);
        }
    }

    /// Does all work due until `now`.
    #[cold]
    fn work(&mut self, now: u64, touched: TouchedView<'_>) {
        while let Some(mut piece) = self.daemons.begin_piece(now, &self.clock) {
            let next = self.perform(piece.task, &mut piece.pass, touched);
            self.daemons.end_piece(piece, &self.clock, next);
        }
    }

    /// Does a piece of a daemon's work: performs the policy's actions until the policy ends the piece.
    fn perform(&mut self, task: Task, pass: &mut Pass, touched: TouchedView<'_>) -> Wait {
        let mut piece = Visited::default();
        let facts = self.facts_of_daemon(task, pass, &piece);
        let mut action = self.policy.tick(task, &facts);
        loop {
            let (result, cost) = match action {
                DaemonAction::Wait(wait) => return wait,
                DaemonAction::Scan(action) => self.scan(action, pass),
                DaemonAction::Watch(action) => (self.watch(action), 0),
                DaemonAction::Upkeep(action) => (self.upkeep(action, pass, &mut piece, touched), 0),
            };
            let facts = self.facts_of_daemon(task, pass, &piece);
            action = self.policy.worked(action, result, cost, &facts);
        }
    }
}

// Collapse: base pages are copied into a superpage, out of place, as khugepaged does.
// See docs/decisions/lab-model.md#3.

/// Outcome for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collapsed {
    /// It is a superpage now.
    Yes,
    /// The candidate does not qualify.
    Unfit,
    /// No superpage was available.
    NoMemory,
}

impl System {
    /// Makes a superpage of a region, if the policy wants one there. The cost is the payer's; the shootdown is the
    /// program's. A daemon's candidate is its own idea, a program's its request.
    pub(crate) fn collapse(&mut self, region: Region, payer: Payer) -> Collapsed {
        let requested = payer == Payer::Program;
        let event = if requested { Event::CollapseRequested } else { Event::Candidate };
        let mut facts = self.facts_of_candidate(region);
        if self.policy.on(event, &facts) != Action::Inspect {
            return Collapsed::Unfit;
        }
        // A candidate leaves the list when it is looked into.
        self.spaces.unmark(region, LISTED);
        self.add_inspected(region, &mut facts);
        match self.policy.on(Event::Inspected { requested }, &facts) {
            Action::MakeSuperpage { how: How::Copy { exclusive }, effort, .. } => {
                self.copy_into_superpage(region, exclusive, effort, payer)
            }
            Action::Consider { order } => self.collapse_parts(region, order, facts, payer),
            _ => Collapsed::Unfit,
        }
    }

    /// Makes smaller pages of a region's parts, where the policy wants some.
    fn collapse_parts(
        &mut self,
        region: Region,
        order: u8,
        mut facts: Facts,
        payer: Payer,
    ) -> Collapsed {
        let mut made = Collapsed::Unfit;
        for first in (region.first().0..region.next().first().0).step_by(1 << order).map(Page) {
            facts.extent = self.extent(first, order);
            let inspected = Event::Inspected { requested: false };
            let wants = self.policy.on(Event::Candidate, &facts) == Action::Inspect
                && matches!(
                    self.policy.on(inspected, &facts),
                    Action::MakeSuperpage { order: wanted, .. } if wanted == order
                );
            if wants && !self.spaces.lies_together(first, order) {
                match self.copy_together(first, order, payer) {
                    true => made = Collapsed::Yes,
                    false => return Collapsed::NoMemory,
                }
            }
        }
        self.find_runs(region);
        made
    }

    /// Copies pages that lie apart into frames side by side; those that are missing are zeros. `false`: there are no
    /// such frames.
    fn copy_together(&mut self, first: Page, order: u8, payer: Payer) -> bool {
        let Some(got) = self.memory.allocate(order, Mobility::Movable, 0, false) else {
            return false;
        };
        let pages = 1u32 << order;
        let present = self.read_back(Pages { first, count: pages }, payer);
        let holes = u64::from(pages) - present;
        self.clock.charge(payer, Cause::Copy, self.costs.copy_page * present);
        self.clock.charge(payer, Cause::Zero, self.costs.zero_page * holes);
        self.clock.charge(payer, Cause::Map, self.costs.map_page * u64::from(pages));
        if payer == Payer::Program {
            self.counters.zeroed += holes;
        }
        if self.spaces.is_ours(self.spaces.at(first.region()).process) {
            self.clock.spend(Cause::Shootdown, self.costs.shootdown);
            self.counters.copied += present;
        }
        self.release_unpaid(Pages { first, count: pages });
        for slot in 0..pages {
            self.install(Page(first.0 + slot), Frame(got.frame.0 + slot), true);
        }
        true
    }

    /// Pages that have contents. Those that are swapped out are read first (`__collapse_huge_page_swapin`), and
    /// faults go on meanwhile: the kernel takes mmap_lock for writing after that.
    fn read_back(&mut self, pages: Pages, payer: Payer) -> u64 {
        let all = pages.first.0..pages.end().0;
        let count = |is: fn(&Entry) -> bool| {
            all.clone().filter(|&page| is(&self.spaces.entry(Page(page)))).count() as u64
        };
        let present = count(|entry| entry.frame().is_some());
        let swapped = if self.spaces.swapped() > 0 { count(|entry| entry.is_swapped()) } else { 0 };
        self.clock.charge(payer, Cause::Read, self.costs.read_page * swapped);
        if self.spaces.is_ours(self.spaces.at(pages.first.region()).process) {
            self.counters.read += swapped;
        }
        present + swapped
    }

    fn copy_into_superpage(
        &mut self,
        region: Region,
        exclusive: bool,
        effort: Effort,
        payer: Payer,
    ) -> Collapsed {
        let Some(got) = self.superpage(effort, payer) else { return Collapsed::NoMemory };
        let first = region.first();
        let present = self.read_back(Pages { first, count: SLOTS }, payer);
        self.clock.charge(payer, Cause::Copy, self.costs.copy_page * present + self.costs.collapse);
        let holes = u64::from(SLOTS) - present;
        if !got.zeroed {
            self.clock.charge(payer, Cause::Zero, self.costs.zero_page * holes);
            if payer == Payer::Program {
                self.counters.zeroed += holes;
            }
        }
        if exclusive {
            let cost = self.costs.copy_page * present
                + self.costs.collapse
                + if got.zeroed { 0 } else { self.costs.zero_page * holes };
            let process = self.spaces.at(region).process;
            self.daemons.lock(process, self.clock.now(), cost);
        }
        // A daemon serves other processes too: what it makes for them is not the program's.
        let process = self.spaces.at(region).process;
        if self.spaces.is_ours(process) {
            self.clock.spend(Cause::Shootdown, self.costs.shootdown);
            self.counters.copied += present;
            self.counters.made_by_copy += 1;
        }
        self.release_unpaid(Pages { first, count: SLOTS });
        self.memory.set_owner(got.frame, Owner::Page(first));
        self.map_superpage(region, got.frame, true);
        Collapsed::Yes
    }
}
