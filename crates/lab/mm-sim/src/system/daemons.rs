//! Daemons in virtual time: due times, state of their passes, and requests from faults.
//!
//! Each daemon has its own CPU and works in pieces. A piece starts when the preceding one is done. So a daemon is never
//! busy for longer than the time that has passed. A pass that takes longer than its period delays the next pass. Work
//! beyond the end of the run is refunded ([`Daemons::cut_off`]).

use std::collections::{BTreeMap, VecDeque};

use policy::rules::Effort;
use policy::{
    Action, Daemon as Task, DaemonAction, Event, Facts, How, Policy, Result as Ended, ScanAction,
    Wait, WatchAction,
};
use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::clock::{Clock, Payer};
use super::scan::Visited;
use super::spaces::region::{Entry, LISTED};
use crate::memory::{Frame, Mobility, Owner};
use crate::touched::TouchedView;
use crate::{Cause, CycleCounts};

#[derive(Debug)]
struct Daemon {
    task: Task,
    /// Time of the next piece of work; never before the last piece is done.
    due: u64,
    /// Middle of the open window of accessed bits.
    half: Option<u64>,
    period: u64,
    pass: Pass,
    last: Piece,
}

/// State of a daemon's pass. A new pass starts empty.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// Due time of the pass. `None`: the pass has not started.
    pub began: Option<u64>,
    /// Cycles of the pass's earlier pieces.
    pub spent: u64,
    /// Region at which the pass continues.
    pub at: Region,
    /// Regions chosen at the start of the pass, in reverse order.
    pub chosen: Vec<Region>,
}

#[derive(Debug, Default)]
struct Piece {
    until: u64,
    spent: CycleCounts,
}

#[derive(Debug)]
pub(crate) struct Due {
    pub task: Task,
    pub pass: Pass,
    at: usize,
    /// Cycles of all daemons before the piece.
    before: CycleCounts,
}

#[derive(Debug, Default)]
pub(crate) struct Daemons {
    list: Vec<Daemon>,
    /// Whether daemons are enabled. They are not while the fragmenter runs: the artifact enables policies after it.
    awake: bool,
    /// The earliest `due` or `half`.
    next: u64,
    /// Start time of the current piece of work, in cycles.
    now: u64,
    /// Cycles that all daemons had spent before the current piece of work.
    before: u64,
    /// Regions whose population crossed the threshold, oldest first.
    candidates: VecDeque<Region>,
    /// The scan sleeps after a failure until there are more candidates than this.
    naps_with: Option<usize>,
    /// Position of the scan by address: process and page.
    cursor: (u32, Page),
    /// Time at which each process was last served (HawkEye's round robin among equals).
    served: BTreeMap<u32, u64>,
    /// Watched superpages, next one last, and the region where the next choice begins.
    watched: (Vec<Region>, Region),
    /// Whether a fault requested background compaction.
    compaction_wanted: bool,
    /// Process whose address space a daemon locks, and the end of the lock.
    locked: Option<(u32, u64)>,
}

/// Length of a piece of work after which its effects become visible: a tick of FreeBSD's clock at hz = 1000.
const PIECE_MICROSECONDS: u64 = 1000;

impl Daemons {
    pub(crate) fn new(policy: &Policy, now: u64) -> Self {
        let daemon = |(task, period): (Task, u64)| Daemon {
            task,
            // The daemon's phase at the program's start is random; half a period is the mean. See
            // docs/decisions/lab-model.md#1.
            due: now + period / 2,
            half: None,
            period,
            pass: Pass::default(),
            last: Piece::default(),
        };
        let list = policy.daemons().map(daemon).collect();
        let mut daemons = Self { list, awake: true, ..Self::default() };
        daemons.find_next();
        daemons
    }

    #[inline]
    pub(crate) fn are_awake(&self) -> bool {
        self.awake
    }

    #[inline]
    pub(crate) fn is_any_due(&mut self, now: u64) -> bool {
        if self.naps_with.is_some_and(|most| self.candidates.len() > most) {
            self.wake_scan(now);
        }
        now >= self.next
    }

    /// Starts a piece of work of the daemon with the earliest due time, if that is at most `now`.
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

    /// Returns a daemon the middle of whose window is at most `now`, once for each window.
    pub(crate) fn take_half(&mut self, now: u64) -> Option<Task> {
        let passed = |daemon: &&mut Daemon| daemon.half.is_some_and(|half| half <= now);
        let daemon = self.list.iter_mut().find(passed)?;
        daemon.half = None;
        Some(daemon.task)
    }

    /// Ends a piece of work. `opens`: it cleared accessed bits, which are counted after `next`.
    pub(crate) fn end_piece(&mut self, piece: Due, clock: &Clock, next: Wait, opens: bool) {
        if let (Task::Scan, Wait::Pause(_)) = (piece.task, next) {
            self.naps_with = Some(self.candidates.len());
        }
        let spent = clock.background().since(&piece.before);
        let daemon = &mut self.list[piece.at];
        daemon.has_worked(spent, piece.pass, next);
        daemon.half = opens.then_some((daemon.last.until + daemon.due) / 2);
    }

    fn find_next(&mut self) {
        let next = |daemon: &Daemon| daemon.due.min(daemon.half.unwrap_or(u64::MAX));
        self.next = self.list.iter().map(next).min().unwrap_or(u64::MAX);
    }

    /// Ends the scan's sleep after a failure, but not before its last piece of work is done.
    fn wake_scan(&mut self, now: u64) {
        self.naps_with = None;
        for daemon in self.list.iter_mut().filter(|daemon| daemon.task == Task::Scan) {
            daemon.due = daemon.due.min(now.max(daemon.last.until));
        }
        self.find_next();
    }

    /// Returns the start time of the current piece of work.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Returns the cycles spent in the current piece of work.
    pub(crate) fn spent_in_piece(&self, clock: &Clock) -> u64 {
        clock.background().total() - self.before
    }

    pub(crate) fn is_piece_done(&self, clock: &Clock) -> bool {
        self.spent_in_piece(clock) >= clock.of_microseconds(PIECE_MICROSECONDS)
    }

    /// Ends the run: refunds the part of each last piece that lies after now.
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

    pub(crate) fn waiting(&self) -> u32 {
        self.candidates.len() as u32
    }

    /// Removes and returns the oldest candidate.
    pub(crate) fn next_candidate(&mut self) -> Option<Region> {
        self.candidates.pop_front()
    }

    pub(crate) fn cursor(&self) -> (u32, Page) {
        self.cursor
    }

    pub(crate) fn set_cursor(&mut self, process: u32, page: Page) {
        self.cursor = (process, page);
    }

    pub(crate) fn served(&self, process: u32) -> u64 {
        self.served.get(&process).copied().unwrap_or(0)
    }

    pub(crate) fn serve(&mut self, process: u32, now: u64) {
        self.served.insert(process, now);
    }

    pub(crate) fn forget(&mut self, process: u32) {
        self.served.remove(&process);
    }

    /// Returns the region where the next choice of watched superpages begins.
    pub(crate) fn watches_from(&self) -> Region {
        self.watched.1
    }

    /// Starts watching these superpages, in the given order.
    pub(crate) fn watch(&mut self, mut found: Vec<Region>) {
        let Some(last) = found.last() else { return };
        self.watched.1 = last.next();
        found.reverse();
        self.watched.0 = found;
    }

    /// Removes and returns the next watched superpage.
    pub(crate) fn next_watched(&mut self) -> Option<Region> {
        self.watched.0.pop()
    }

    pub(crate) fn wake_compaction(&mut self) {
        self.compaction_wanted = true;
    }

    /// Returns whether a fault requested background compaction since the last call.
    pub(crate) fn take_compaction_wanted(&mut self) -> bool {
        std::mem::take(&mut self.compaction_wanted)
    }

    /// Extends a daemon's lock on an address space by `cycles`.
    pub(crate) fn lock(&mut self, process: u32, now: u64, cycles: u64) {
        // A daemon works without pause after the program's last wait, so the lock is extended.
        let until = self.locked.filter(|lock| lock.0 == process).map_or(0, |lock| lock.1);
        self.locked = Some((process, until.max(now) + cycles));
    }

    /// Returns whether a daemon locks out the faults of a process, or has done so since the process last waited.
    #[inline]
    pub(crate) fn locks(&self, process: u32) -> bool {
        self.locked.is_some_and(|lock| lock.0 == process)
    }

    /// Ends the lock. Returns the time that the locked-out process must wait, in cycles.
    pub(crate) fn end_lock(&mut self, now: u64) -> u64 {
        self.locked.take().map_or(0, |lock| lock.1.saturating_sub(now))
    }
}

impl Daemon {
    /// Records that the daemon's piece of work is done.
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

// Runs due work in the order of due times. See docs/decisions/lab-model.md#6.

impl System {
    /// Runs all due daemons. If none is due, the call costs two comparisons.
    #[inline]
    pub(crate) fn tick(&mut self, touched: TouchedView<'_>) {
        let now = self.clock.now();
        if self.daemons.is_any_due(now) {
            self.work(now, touched);
        }
    }

    #[cold]
    fn work(&mut self, now: u64, touched: TouchedView<'_>) {
        while let Some(task) = self.daemons.take_half(now) {
            self.spaces.note_half(task == Task::Split);
        }
        while let Some(mut piece) = self.daemons.begin_piece(now, &self.clock) {
            let (next, opens) = self.perform(piece.task, &mut piece.pass, touched);
            self.daemons.end_piece(piece, &self.clock, next, opens);
        }
    }

    /// Runs a piece of a daemon's work: performs the policy's actions until the policy ends the piece. Returns whether
    /// the piece cleared accessed bits, too.
    fn perform(&mut self, task: Task, pass: &mut Pass, touched: TouchedView<'_>) -> (Wait, bool) {
        let mut opens = false;
        let mut piece = Visited::default();
        let facts = self.facts_of_daemon(task, pass, &piece);
        let mut action = self.policy.tick(task, &facts);
        loop {
            let (result, cost) = match action {
                DaemonAction::Wait(wait) => return (wait, opens),
                DaemonAction::Scan(action) => self.scan(action, pass),
                DaemonAction::Watch(action) => (self.watch(action), 0),
                DaemonAction::Upkeep(action) => (self.upkeep(action, pass, &mut piece, touched), 0),
            };
            opens |= match action {
                DaemonAction::Scan(ScanAction::ClearAccessed) => true,
                DaemonAction::Watch(WatchAction::Begin { .. }) => result != Ended::Nothing,
                _ => false,
            };
            let facts = self.facts_of_daemon(task, pass, &piece);
            action = self.policy.worked(action, result, cost, &facts);
        }
    }
}

// Collapse: copies base pages into a superpage elsewhere, as khugepaged does. See docs/decisions/lab-model.md#3.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collapsed {
    Yes,
    Unfit,
    NoMemory,
}

impl System {
    /// Collapses a region into a superpage, if the policy agrees. `payer` pays the cost, the program pays the
    /// shootdown. A daemon proposes candidates; a program requests a collapse.
    pub(crate) fn collapse(&mut self, region: Region, payer: Payer) -> Collapsed {
        let requested = payer == Payer::Program;
        let event = if requested { Event::CollapseRequested } else { Event::Candidate };
        let mut facts = self.facts_of_candidate(region);
        if self.policy.on(event, &facts) != Action::Inspect {
            return Collapsed::Unfit;
        }
        // An inspected candidate leaves the list.
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

    /// Collapses parts of a region into smaller pages, where the policy wants them.
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

    /// Copies scattered pages into contiguous frames; missing pages become zeros. Returns `false` if no such frames are
    /// free.
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

    /// Returns the number of pages with contents, after reading back swapped pages (`__collapse_huge_page_swapin`).
    /// Faults are served during the reads, because the kernel takes mmap_lock for writing only after them.
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
        let Some(got) = self.superpage(effort, payer, true) else { return Collapsed::NoMemory };
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
        // Daemons also serve other processes. Superpages that are made for other processes are not counted for the
        // program.
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
