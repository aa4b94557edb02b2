//! Random events that are possible for executors: an action that a policy never requested has no outcome.

mod facts;

use design::Design;
use superpage_policy::rules::Effort;
use superpage_policy::{
    Action, Attempt, Backing, Candidates, Compaction, Daemon, DaemonAction, Event, Extent, Facts,
    FaultAction, How, Machine, Mapping, Orders, Page, Physical, Policy, Process, Region,
    Reservation, Result as Ended, Scale, ScanAction, Superpage, UpkeepAction, Wait, WatchAction,
    Zeroing,
};

use crate::tables::dsl::SCALE;

/// Whether the action makes a daemon visit a candidate.
fn visits(action: Action) -> bool {
    matches!(
        action,
        Action::Daemon(
            DaemonAction::Scan(ScanAction::Visit(_))
                | DaemonAction::Upkeep(UpkeepAction::Fill { .. } | UpkeepAction::Inspect)
                | DaemonAction::Watch(WatchAction::Visit)
        )
    )
}

/// A generator of random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn of(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.of(100) < chance
    }

    /// Draws a number. All numbers of bits are equally likely.
    fn magnitude(&mut self, bits: usize) -> u64 {
        let bits = self.of(bits + 1);
        self.next() & ((1 << bits) - 1)
    }

    /// Draws a number of pages in a superpage, often at either end of the range.
    fn pages(&mut self) -> u16 {
        match self.of(4) {
            0 => [0, 1, 2, 511, 512][self.of(5)],
            1 => self.magnitude(9) as u16,
            _ => self.of(513) as u16,
        }
    }

    fn orders(&mut self) -> Orders {
        let all: Orders = (1..=18).collect();
        match self.of(4) {
            0 => (1..=18).filter(|_| self.percent(50)).collect(),
            1 => all.below(self.of(19) as u8),
            _ => all,
        }
    }
}

/// Two policies that have behaved alike so far, and what they have requested.
struct World {
    policies: [Policy; 2],
    random: Random,
    physical: Physical,
    has_prezeroed: bool,
    daemons: Vec<Daemon>,
    seen: Seen,
    /// The page after the last fault's page.
    ahead: u64,
}

/// Number of pieces of a long pass of a daemon.
const PIECES: usize = 600;

/// What happened at least once.
#[derive(Default)]
struct Seen {
    fresh: bool,
    fresh_large: bool,
    copied: bool,
    in_place: bool,
    zeros: bool,
    reserved: bool,
    demoted: bool,
    prepared: bool,
    woken: bool,
    zeroed_ahead: bool,
    ranked: bool,
    /// Whether memory was compacted: for an allocation, by a compaction whose failure defers others, and ahead of need.
    compacted: [bool; 3],
    /// Orders of superpages made of parts of candidates.
    parts: Vec<u8>,
    /// Daemons that did some work.
    worked: Vec<Daemon>,
}

/// The policies behaved differently.
struct Differ;

type Told = Result<Action, Differ>;

/// Returns whether the behaviour of two designs differs somewhere.
pub fn is_told_apart(a: &Design, b: &Design) -> bool {
    // Reservations larger than a region are tested as if the page table had superpages of that size.
    let superpage = a.policy(SCALE).physical().reserved.largest().unwrap_or(0).max(9);
    let scale = Scale { superpage, ..SCALE };
    (0..400).any(|seed| {
        let mut world = World::new([a.policy(scale), b.policy(scale)], seed);
        (0..300).try_for_each(|_| world.happens()).is_err() || world.settings_differ()
    })
}

impl World {
    fn new(policies: [Policy; 2], seed: u64) -> Self {
        let both = policies.iter().flat_map(Policy::daemons);
        let daemons: Vec<Daemon> = both.map(|(daemon, _)| daemon).collect();
        let physical = policies[0].physical();
        let has_prezeroed = physical.is_ideal || daemons.contains(&Daemon::Prezero);
        Self {
            policies,
            random: Random(seed),
            physical,
            has_prezeroed,
            daemons,
            seen: Seen::default(),
            ahead: 0,
        }
    }

    fn on(&mut self, event: Event, facts: &Facts) -> Told {
        let [a, b] = &mut self.policies;
        let action = a.on(event, facts);
        if action != b.on(event, facts) {
            return Err(Differ);
        }
        self.note(action);
        Ok(action)
    }

    fn note(&mut self, action: Action) {
        let seen = &mut self.seen;
        match action {
            Action::Fault(FaultAction::MakeSuperpage { order, .. }) => {
                seen.fresh = true;
                seen.fresh_large |= order >= 9;
            }
            Action::MakeSuperpage { how: How::InPlace { .. }, .. }
            | Action::Fault(FaultAction::MapFile | FaultAction::MapInPlace { .. }) => {
                seen.in_place = true;
            }
            Action::MakeSuperpage { how: How::Copy { .. }, .. } => seen.copied = true,
            Action::Fault(FaultAction::MapZeros { order }) => seen.zeros |= order > 0,
            Action::Fault(FaultAction::Reserve { .. }) => seen.reserved = true,
            Action::Populate => seen.prepared = true,
            Action::Demote
            | Action::Fault(FaultAction::DemoteAndCopy | FaultAction::Demote)
            | Action::Daemon(DaemonAction::Watch(WatchAction::Begin { .. })) => seen.demoted = true,
            Action::Wake => seen.woken = true,
            Action::Daemon(DaemonAction::Upkeep(UpkeepAction::Zero { .. })) => {
                seen.zeroed_ahead = true
            }
            Action::Daemon(DaemonAction::Scan(ScanAction::Rank { .. })) => seen.ranked = true,
            Action::Consider { order } => seen.parts.push(order),
            Action::Compact { mode, .. } => {
                seen.compacted[0] = true;
                seen.compacted[1] |= mode == Compaction::SyncLight;
            }
            Action::Daemon(DaemonAction::Upkeep(UpkeepAction::Compact { mode })) => {
                seen.compacted[0] |= mode == Compaction::Sync;
                seen.compacted[1] |= mode == Compaction::SyncLight;
                seen.compacted[2] |= mode == Compaction::Proactive;
            }
            _ => {}
        }
    }

    /// Makes a random event happen, with all its consequences.
    fn happens(&mut self) -> Result<(), Differ> {
        match self.random.of(16) {
            0..6 => self.fault(),
            6..10 => {
                let daemon = self.daemons[self.random.of(self.daemons.len())];
                self.daemon(daemon)
            }
            10 => self.shortage(),
            11 => {
                let facts = self.facts();
                match self.on(Event::CollapseRequested, &facts)? {
                    Action::Inspect => self.inspected(true, facts),
                    _ => Ok(()),
                }
            }
            _ => self.change(),
        }
    }

    fn fault(&mut self) -> Result<(), Differ> {
        let facts = self.facts();
        self.ahead = facts.place.0 + 1;
        let write = self.random.percent(60);
        let mut action = self.on(Event::Fault { write }, &facts)?;
        for _ in 0..4 {
            let effort = match action {
                Action::Fault(
                    FaultAction::MakeSuperpage { effort, .. } | FaultAction::Reserve { effort, .. },
                ) => effort,
                _ => break,
            };
            if self.random.percent(40) {
                return Ok(());
            }
            self.no_superpage(effort, false)?;
            let failed = Event::Outcome { action, result: Ended::NoMemory, cost: 0 };
            action = self.on(failed, &facts)?;
        }
        Ok(())
    }

    fn no_superpage(&mut self, effort: Effort, is_copy: bool) -> Result<(), Differ> {
        let mut event = Event::NoSuperpage { effort, is_copy };
        for _ in 0..8 {
            let action = self.on(event, &Facts::default())?;
            if !matches!(action, Action::Compact { .. } | Action::Reclaim { .. }) {
                break;
            }
            let result = [Ended::Nothing, Ended::Unavailable][self.random.of(2)];
            event = Event::Outcome { action, result, cost: 0 };
        }
        Ok(())
    }

    fn shortage(&mut self) -> Result<(), Differ> {
        let wanted = self.random.magnitude(10);
        let mut event = Event::NoPage { wanted };
        for _ in 0..4 {
            let action = self.on(event, &Facts::default())?;
            if action == Action::GiveUp {
                break;
            }
            event = Event::Outcome { action, result: Ended::Nothing, cost: 0 };
        }
        if self.physical.pool.is_some() {
            for tried in [Attempt::Nothing, Attempt::Compaction, Attempt::Reclaim] {
                self.on(Event::NoPoolPage { tried }, &Facts::default())?;
            }
        }
        Ok(())
    }

    /// Changes a mapping.
    fn change(&mut self) -> Result<(), Differ> {
        let facts = self.facts();
        let (whole, private) = (self.random.percent(40), self.random.percent(70));
        let before = self.random.of(512) as u16;
        let after = before + 1 + self.random.of(512 - usize::from(before)) as u16;
        let event = match self.random.of(8) {
            0 => Event::Unmapped { whole },
            1 => Event::Protected { whole },
            2 => Event::Shared { whole, private },
            3 => Event::Mapped,
            4 if self.seen.reserved => Event::Populated,
            5 if self.seen.prepared => Event::Prepared { write: whole },
            6 if self.seen.demoted => {
                let reserved = self.seen.in_place && self.random.percent(50);
                if !reserved && !self.seen.fresh && !self.seen.copied {
                    return Ok(());
                }
                Event::Demoted { reserved }
            }
            _ => Event::Grew { before, after },
        };
        self.on(event, &facts).map(drop)
    }

    fn daemon(&mut self, daemon: Daemon) -> Result<(), Differ> {
        let facts = self.facts();
        let mut action = self.on(Event::Tick(daemon), &facts)?;
        let is_long = self.random.percent(20);
        for _ in 0..if is_long { PIECES } else { 24 } {
            if matches!(action, Action::Daemon(DaemonAction::Wait(wait)) if !matches!(wait, Wait::More | Wait::Pause(_)))
            {
                return Ok(());
            }
            if matches!(action, Action::Daemon(DaemonAction::Wait(_))) {
                let facts = self.facts();
                action = self.on(Event::Tick(daemon), &facts)?;
                continue;
            }
            self.seen.worked.push(daemon);
            let ends = if is_long { 8 * PIECES } else { 8 };
            let mut result = match self.random.of(ends) {
                0 => Ended::Nothing,
                1 => Ended::NoMemory,
                2 => Ended::Unfit,
                _ => Ended::Done { pages: 1 + self.random.magnitude(18) as u32 },
            };
            if visits(action) && result != Ended::Nothing {
                self.candidate(daemon, action)?;
                if result == Ended::NoMemory && daemon != Daemon::Scan {
                    result = Ended::Unfit;
                }
            }
            let facts = self.facts();
            let cost = self.random.of(4) as u32;
            action = self.on(Event::Outcome { action, result, cost }, &facts)?;
        }
        // Passes end.
        for _ in 0..4096 {
            if matches!(action, Action::Daemon(DaemonAction::Wait(wait)) if !matches!(wait, Wait::More | Wait::Pause(_)))
            {
                return Ok(());
            }
            let event = match action {
                Action::Daemon(DaemonAction::Wait(_)) => Event::Tick(daemon),
                _ => Event::Outcome { action, result: Ended::Nothing, cost: 0 },
            };
            action = self.on(event, &Facts::default())?;
        }
        Ok(())
    }

    fn candidate(&mut self, daemon: Daemon, from: Action) -> Result<(), Differ> {
        let mut facts = self.facts();
        if from == Action::Daemon(DaemonAction::Scan(ScanAction::Visit(Candidates::Best))) {
            // A region that is ranked was accessed.
            facts.region.coverage = facts.region.coverage.max(1);
        }
        if daemon == Daemon::Scan
            && self.random.percent(50)
            && let Some(order) = self.policies[0].scanned_sizes().above(9).largest()
        {
            // A scan asks for its largest size first.
            let extent = &mut facts.extent;
            *extent = Extent {
                order,
                populated: extent.populated << (order - 9),
                coverage: extent.coverage << (order - 9),
                ..*extent
            };
        }
        let action = self.on(Event::Candidate, &facts)?;
        match action {
            Action::Inspect if daemon == Daemon::Scan => self.inspected(false, facts),
            Action::Inspect => self.on(Event::Inspected { requested: false }, &facts).map(drop),
            Action::Consider { order } => {
                facts.extent.order = order;
                self.on(Event::Candidate, &facts).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn inspected(&mut self, requested: bool, mut facts: Facts) -> Result<(), Differ> {
        for _ in 0..3 {
            match self.on(Event::Inspected { requested }, &facts)? {
                Action::Consider { order } => facts.extent.order = order,
                Action::MakeSuperpage { effort, .. } => {
                    return self.no_superpage(effort, !requested);
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

// The constants of the policies.

impl World {
    fn settings_differ(&mut self) -> bool {
        let Self { policies: [a, b], seen, random, .. } = self;
        let zeroes = seen.fresh_large || seen.prepared || a.physical().pool.is_some();
        let ahead = seen.zeroed_ahead;
        let worked = &seen.worked;
        let periods = |policy: &Policy| -> Vec<(Daemon, u64)> {
            policy.daemons().filter(|(daemon, _)| worked.contains(daemon)).collect()
        };
        let settings = |policy: &Policy| {
            (
                physical(policy, seen.compacted),
                zeroing(policy, zeroes, ahead),
                policy.fault_path(),
                policy.launch().size.filter(|_| policy.physical().pool.is_some()),
                periods(policy),
            )
        };
        settings(a) != settings(b) || seen.ranked && ranks_differ(a, b, random)
    }
}

/// Returns the properties of physical memory that matter, given how memory was compacted.
fn physical(policy: &Policy, [direct, deferrable, ahead]: [bool; 3]) -> Physical {
    let all = policy.physical();
    let (share, pages) = all.contended;
    Physical {
        defer_shift: if deferrable { all.defer_shift } else { 0 },
        contended: if direct && share > 0 { (share, pages) } else { (0, 0) },
        proactiveness: if ahead { all.proactiveness } else { 0 },
        ..all
    }
}

/// Returns the properties of zeroing that matter, given whether faults zeroed more than a base page, and whether memory
/// was zeroed ahead.
fn zeroing(policy: &Policy, whole: bool, ahead: bool) -> Zeroing {
    let all = policy.zeroing();
    Zeroing {
        non_temporal: all.non_temporal && whole,
        bulk: if whole || ahead { all.bulk } else { units::ByteSize::kib(4) },
        ahead_non_temporal: all.ahead_non_temporal.filter(|_| ahead),
    }
}

fn ranks_differ(a: &Policy, b: &Policy, random: &mut Random) -> bool {
    (0..100).any(|_| {
        let region = Region { has_table: true, coverage: random.pages(), ..Region::default() };
        let misses = random.magnitude(20) as u32;
        let process = Process {
            walks_permille: random.of(1001) as u64,
            served: random.magnitude(30),
            number: random.of(9) as u32,
        };
        let served = |policy: &Policy| policy.rank_process((0..9).map(|_| 3), &process);
        a.rank(&region, misses) != b.rank(&region, misses) || served(a) != served(b)
    })
}
