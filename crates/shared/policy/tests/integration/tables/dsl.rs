//! The language of the tables: lines of events, facts and expected actions.
//!
//! A line is data, so a table can be tested on any design: on a preset, and on the same preset with one key changed
//! ([`super::mutation`]).

use core::fmt::Debug;

use superpage_policy::rules::Effort;
use superpage_policy::{
    Action, Backing, Compaction, Daemon, Direct, Event, Extent, Facts, How, Mapping, Orders, Page,
    Policy, Region, Reservation, Result as Ended, Scale, Superpage, Wait,
};
pub use superpage_policy::{
    Candidates, DaemonAction, FaultAction, ScanAction, UpkeepAction, WatchAction,
};

/// Base pages of 4 KiB, superpages of 2 MiB, ticks of a nanosecond.
pub const SCALE: Scale = Scale { base_page: 4096, superpage: 9, ticks: 1000 };
pub const WHOLE: u8 = 9;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1000 * MS;

/// The expected behaviour of a preset, line by line.
pub type Table = Vec<Line>;

/// A sequence of events for a policy in its initial state.
pub struct Line {
    pub what: &'static str,
    /// The paper and its section, or the kernel's file and function.
    pub source: &'static str,
    steps: Vec<Step>,
}

/// Passes an event or the last action's outcome to the policy. Returns an error if the answer is wrong.
type Step = Box<dyn Fn(&mut Policy, &mut Action) -> Result<(), String>>;

impl Line {
    /// Returns the error of the first step that fails.
    pub fn check(&self, policy: &mut Policy) -> Result<(), String> {
        let mut last = Action::Nothing;
        let told = |(at, step): (usize, &Step)| {
            step(policy, &mut last).map_err(|wrong| {
                format!("{} ({}), step {}: {wrong}", self.what, self.source, at + 1)
            })
        };
        self.steps.iter().enumerate().try_for_each(told)
    }
}

fn compare<T: PartialEq + Debug>(got: &T, expected: &T) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("\n     is {got:?}\n not as {expected:?}")),
    }
}

/// Returns a line of several steps.
pub fn run(
    what: &'static str,
    source: &'static str,
    steps: impl IntoIterator<Item = Step>,
) -> Line {
    Line { what, source, steps: steps.into_iter().collect() }
}

/// Returns a line of one event.
pub fn at(
    what: &'static str,
    source: &'static str,
    event: Event,
    facts: Facts,
    is: Action,
) -> Line {
    run(what, source, [on(event, facts, is)])
}

/// Returns a line about a constant of the policy.
pub fn says<T: PartialEq + Debug + 'static>(
    what: &'static str,
    source: &'static str,
    asked: fn(&Policy) -> T,
    expected: T,
) -> Line {
    let step: Step = Box::new(move |policy, _| compare(&asked(policy), &expected));
    run(what, source, [step])
}

/// An event.
pub fn on(event: Event, facts: Facts, expected: Action) -> Step {
    Box::new(move |policy, last| {
        let answer = policy.on(event, &facts);
        // A daemon's visit asks about its candidate, and ends afterwards.
        let is_within = matches!(event, Event::Candidate | Event::Inspected { .. })
            && matches!(last, Action::Daemon(_));
        if !is_within {
            *last = answer;
        }
        compare(&answer, &expected)
    })
}

/// Returns a step: the previous action ended with `result`.
pub fn then(result: Ended, facts: Facts, expected: Action) -> Step {
    passed(result, 0, facts, expected)
}

/// The same, and `cost` mappings were passed over.
pub fn passed(result: Ended, cost: u32, facts: Facts, expected: Action) -> Step {
    Box::new(move |policy, last| {
        *last = policy.on(Event::Outcome { action: *last, result, cost }, &facts);
        compare(last, &expected)
    })
}

// Events.

pub const READ: Event = Event::Fault { write: false };
pub const WRITE: Event = Event::Fault { write: true };
pub const NO_PAGE: Event = Event::NoPage { wanted: 1 };

pub fn tick(daemon: Daemon) -> Event {
    Event::Tick(daemon)
}

pub fn no_superpage(effort: Effort) -> Event {
    Event::NoSuperpage { effort, is_copy: false }
}

pub const DONE: Ended = Ended::Done { pages: 0 };
pub const NOTHING: Ended = Ended::Nothing;
pub const NO_MEMORY: Ended = Ended::NoMemory;

pub fn done(pages: u32) -> Ended {
    Ended::Done { pages }
}

// Facts.

pub fn orders(orders: &[u8]) -> Orders {
    orders.iter().copied().collect()
}

fn all() -> Orders {
    (1..=18).collect()
}

/// Facts about the first touch of an aligned 2 MiB of anonymous memory, in the middle of a large writable mapping.
pub fn fresh() -> Facts {
    Facts {
        mapping: Mapping { writable: true, ..Mapping::default() },
        place: (512_000, 512_512),
        region: Region {
            inside: true,
            begins: all(),
            ends: all(),
            absent: all(),
            unreserved: all(),
            has_writable: true,
            ..Region::default()
        },
        ..Facts::default()
    }
}

/// Short names for changes to facts.
pub trait With: Sized {
    fn with(self, change: impl FnOnce(&mut Facts)) -> Facts;

    fn advised(self, advised: bool) -> Facts {
        self.with(|facts| facts.mapping.advised = Some(advised))
    }

    fn backed(self, backing: Backing) -> Facts {
        self.with(|facts| facts.mapping.backing = backing)
    }

    fn region(self, change: impl FnOnce(&mut Region)) -> Facts {
        self.with(|facts| change(&mut facts.region))
    }

    fn machine(self, change: impl FnOnce(&mut superpage_policy::Machine)) -> Facts {
        self.with(|facts| change(&mut facts.machine))
    }

    /// Changes facts that conditions read.
    fn extent(self, change: impl FnOnce(&mut Extent)) -> Facts {
        self.with(|facts| change(&mut facts.extent))
    }

    /// The mapping ends within these 2 MiB, so that only sizes up to 64 KiB fit.
    fn cut(self) -> Facts {
        self.region(|region| (region.inside, region.ends) = (false, orders(&[1, 2, 3, 4])))
    }

    /// This many pages are populated, but not the page itself or its neighbours.
    fn populated(self, pages: u16) -> Facts {
        self.region(|region| {
            (region.populated, region.has_table) = (pages, true);
            (region.absent, region.unreserved) = (orders(&[1, 2, 3, 4]), orders(&[1, 2, 3, 4]));
        })
    }

    /// The page is in a reservation of a superpage with this many populated pages.
    fn reserved(self, pages: u16) -> Facts {
        self.region(|region| {
            (region.populated, region.has_table) = (pages, pages > 0);
            region.unreserved = Orders::NONE;
            let reservation =
                Reservation { order: WHOLE, populated: pages.into(), ..Default::default() };
            region.reservation = Some(reservation);
        })
    }

    /// All pages of the reservation are populated and mapped, and these are dirty.
    fn full(self, dirty: [u64; 8]) -> Facts {
        self.with(|facts| *facts = core::mem::take(facts).reserved(512)).region(|region| {
            (region.is_mapped, region.dirty) = (true, dirty);
            if let Some(reservation) = &mut region.reservation {
                reservation.is_full = true;
            }
        })
    }

    fn page(self, page: Page) -> Facts {
        self.with(|facts| facts.page = page)
    }

    /// The page is mapped by a superpage, with these changes.
    fn superpage(self, change: impl FnOnce(&mut Superpage)) -> Facts {
        let mut superpage = Superpage::default();
        change(&mut superpage);
        self.region(|region| (region.populated, region.superpage) = (512, Some(superpage)))
    }
}

impl With for Facts {
    fn with(mut self, change: impl FnOnce(&mut Facts)) -> Facts {
        change(&mut self);
        self
    }
}

/// Facts about a page that a superpage maps.
pub fn large() -> Facts {
    fresh().superpage(|_| {})
}

/// Facts about a region that a scan by address accepts: base pages, one of them written and one accessed.
pub fn candidate(pages: u16) -> Facts {
    fresh().populated(pages).region(|region| region.accessed = true)
}

// Actions.

pub const fn fault(action: FaultAction) -> Action {
    Action::Fault(action)
}

pub const fn scan_step(action: ScanAction) -> Action {
    Action::Daemon(DaemonAction::Scan(action))
}

pub const fn upkeep(action: UpkeepAction) -> Action {
    Action::Daemon(DaemonAction::Upkeep(action))
}

pub const fn watch(action: WatchAction) -> Action {
    Action::Daemon(DaemonAction::Watch(action))
}

pub const fn rest(wait: Wait) -> Action {
    Action::Daemon(DaemonAction::Wait(wait))
}

pub const BASE: Action = fault(FaultAction::MapBase { pages: 1 });
pub const NEXT: Action = scan_step(ScanAction::Visit(Candidates::Next));
pub const PERIOD: Action = rest(Wait::Period);
pub const MORE: Action = rest(Wait::More);

pub fn zeros(superpage: bool) -> Action {
    fault(FaultAction::MapZeros { order: if superpage { WHOLE } else { 0 } })
}

/// Makes a whole superpage at a fault.
pub fn whole(effort: Effort) -> Action {
    fault(FaultAction::MakeSuperpage { order: WHOLE, effort })
}

/// A smaller one.
pub fn smaller(order: u8) -> Action {
    sized(order, Effort::None)
}

/// Makes a superpage of any size at a fault.
pub fn sized(order: u8, effort: Effort) -> Action {
    fault(FaultAction::MakeSuperpage { order, effort })
}

/// Makes a superpage by copying.
pub fn copied(effort: Effort, exclusive: bool) -> Action {
    Action::MakeSuperpage { order: WHOLE, how: How::Copy { exclusive }, effort }
}

/// Makes a superpage in place.
pub fn in_place(writable: bool) -> Action {
    let how = How::InPlace { writable };
    Action::MakeSuperpage { order: WHOLE, how, effort: Effort::None }
}

pub fn reserve(order: u8, preempt: bool) -> Action {
    fault(FaultAction::Reserve { order, effort: Effort::None, preempt })
}

/// Compacts memory for a pool.
pub fn compact(mode: Compaction) -> Action {
    Action::Compact { mode, direct: None }
}

/// Compacts memory by a daemon.
pub fn compact_behind(mode: Compaction) -> Action {
    upkeep(UpkeepAction::Compact { mode })
}

/// Maps a superpage in place at a fault.
pub fn in_place_at_fault(writable: bool) -> Action {
    fault(FaultAction::MapInPlace { writable })
}

/// An allocation that is the last one.
pub fn last(second: Compaction, gives_up: bool) -> Direct {
    Direct { second, gives_up, is_second: false, then: None }
}

/// The allocation on a fault's own node; the second compaction of the allocation after it is as thorough as `then`.
pub fn on_own_node(then: Compaction) -> Direct {
    Direct { then: Some(then), ..last(Compaction::Async, true) }
}

/// The first direct compaction of an allocation.
pub fn direct(direct: Direct) -> Action {
    Action::Compact { mode: Compaction::Async, direct: Some(direct) }
}

/// The reclaim after the first compaction.
pub fn direct_reclaim(direct: Direct) -> Action {
    Action::Reclaim { pages: 512, lumpy: false, direct: Some(direct) }
}

/// The second direct compaction.
pub fn direct_again(direct: Direct) -> Action {
    let again = Direct { is_second: true, ..direct };
    Action::Compact { mode: direct.second, direct: Some(again) }
}

/// Reclaims memory by a daemon.
pub fn reclaim_behind(pages: u64) -> Action {
    upkeep(UpkeepAction::Reclaim { pages, lumpy: false })
}

pub fn reclaim(pages: u64) -> Action {
    Action::Reclaim { pages, lumpy: false, direct: None }
}

pub fn after(ticks: u64) -> Action {
    rest(Wait::After(ticks))
}

/// Properties of physical memory for designs without rules about it: mm/page_alloc.c, without daemons.
pub const PHYSICAL: superpage_policy::Physical = superpage_policy::Physical {
    grouping: true,
    swaps: true,
    defer_shift: 6,
    proactiveness: 0,
    contended: (0, 0),
    pool: None,
    prefers_zeroed: false,
    is_ideal: false,
    preemptible: superpage_policy::Orders::NONE,
    reserved: superpage_policy::Orders::NONE,
    smaller: superpage_policy::Orders::NONE,
    larger: superpage_policy::Orders::NONE,
};
