//! Daemons in virtual time: when each is due, what it knows of its pass, and what faults leave for it.
//!
//! Each has one CPU of its own and works on it piece by piece: a piece begins when the last one is done, so a daemon is
//! never busy for longer than time passed, and a pass that takes longer than its period delays the next. What lies beyond
//! the end of the run is taken out of the books again ([`Daemons::cut_off`]).

use std::collections::{BTreeMap, VecDeque};

use policy::rules::Effort;
use policy::{Action, Daemon as Task, Event, Facts, How, Policy, Wait};
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

// Daemons at work: what fell due is done, in the order of its times.
// See docs/decisions/lab-model.md#6.

impl System {
    /// Lets all daemons that are due do their work. The engine calls this often; it costs two comparisons.
    #[inline]
    pub(crate) fn tick(&mut self, touched: TouchedView<'_>) {
        let now = self.clock.now();
        if self.daemons.is_any_due(now) {
            self.work(now, touched);
        }
    }

    /// All work that fell due until `now`.
    #[cold]
    fn work(&mut self, now: u64, touched: TouchedView<'_>) {
        while let Some(mut piece) = self.daemons.begin_piece(now, &self.clock) {
            let next = self.perform(piece.task, &mut piece.pass, touched);
            self.daemons.end_piece(piece, &self.clock, next);
        }
    }

    /// Does a piece of a daemon's work: what the policy says, until it says that this is enough.
    fn perform(&mut self, task: Task, pass: &mut Pass, touched: TouchedView<'_>) -> Wait {
        let mut piece = Visited::default();
        let mut event = Event::Tick(task);
        loop {
            let facts = self.facts_of_daemon(task, pass, &piece);
            let action = self.policy.on(event, &facts);
            let (result, cost) = match action {
                Action::Wait(wait) => return wait,
                _ if matches!(task, Task::Scan | Task::Sample) => self.scan(action, pass),
                _ if task == Task::Split => (self.watch(action), 0),
                _ => (self.keep_memory(action, pass, &mut piece, touched), 0),
            };
            event = Event::Outcome { action, result, cost };
        }
    }
}

// Base pages are copied into a superpage: out of place, as khugepaged does.
// See docs/decisions/lab-model.md#3.

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collapsed {
    /// It is a superpage now.
    Yes,
    /// It does not qualify.
    Unfit,
    /// No superpage was to be had.
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
