//! Explains a design's behaviour at each event in words, by querying its policy with representative facts instead of
//! reading its keys.

use policy::{
    Action, Attempt, Backing, Daemon, DaemonAction, Event, Facts, FaultAction, Mapping, Orders,
    Page, Policy, Region, Reservation, Result as Ended, Scale, Superpage, Wait,
};

use crate::{Design, condition};

/// The behaviour at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Section of the event: `faults`, `in place`, `unmapping`, `shortage`, `daemons`.
    pub part: &'static str,
    /// The event.
    pub event: String,
    /// The actions.
    pub actions: Vec<String>,
    /// `true`: each action is tried only if the previous one fails; `false`: all are performed in order.
    pub alternatives: bool,
}

/// Base pages of 4 KiB, superpages of 2 MiB, ticks of one nanosecond.
const SCALE: Scale = Scale { base_page: 4096, superpage: 9, ticks: 1000 };
/// Number of base pages in a superpage.
const PAGES: u16 = 512;

impl Design {
    /// Describes what the policy does at each event on a machine with pages of 4 KiB and superpages of 2 MiB.
    pub fn explain(&self) -> Vec<Explained> {
        let pool = self.policy(SCALE).physical().pool.is_some();
        let explainer = Explainer {
            design: &self.with_condition(None),
            never: &self.with_condition(Some("1 > 2")),
            fault: self.rules.allocation.when.as_ref().map(condition::text),
            scan: self
                .rules
                .mapping
                .scan
                .as_ref()
                .and_then(|scan| scan.when.as_ref())
                .map(condition::text),
            split: self.rules.unmapping.when.as_ref().map(condition::text),
            pool,
        };
        let parts =
            [explainer.faults(), explainer.in_place(), explainer.unmapping(), explainer.shortage()];
        parts.into_iter().flatten().chain(explainer.daemons()).collect()
    }
}

struct Explainer<'a> {
    /// The design as if its conditions of faults and scans always held.
    design: &'a Design,
    /// The design as if its condition of faults never held.
    never: &'a Design,
    /// The condition of faults, as written.
    fault: Option<String>,
    /// The condition of the scan.
    scan: Option<String>,
    /// The condition under which a watched superpage is split.
    split: Option<String>,
    /// Whether the program's anonymous memory comes from a pool.
    pool: bool,
}

impl Explainer<'_> {
    /// Makes a policy that has seen no events, and whose conditions hold.
    fn policy(&self) -> Policy {
        self.design.policy(SCALE)
    }

    /// Puts the condition of faults before the actions that a policy takes only where it holds.
    fn conditioned(&self, actions: Vec<Action>, otherwise: &[Action]) -> Vec<String> {
        let text = |action: &Action| action.display(&SCALE).to_string();
        let Some(when) = &self.fault else { return actions.iter().map(text).collect() };
        let each = |action: &Action| match otherwise.contains(action) {
            true => text(action),
            false => format!("where {when}: {}", text(action)),
        };
        actions.iter().map(each).collect()
    }

    fn ask(&self, event: Event, facts: &Facts) -> Action {
        self.policy().on(event, &self.place(facts))
    }

    fn serve(&self, write: bool, facts: &Facts) -> FaultAction {
        self.policy().fault(write, &self.place(facts))
    }

    /// Adapts facts to a design whose anonymous memory comes from a pool.
    fn place(&self, facts: &Facts) -> Facts {
        if !self.pool || !facts.mapping.backing.is_anonymous() {
            return *facts;
        }
        facts.with(|facts| {
            facts.region.is_pooled = true;
            match &mut facts.region.superpage {
                Some(superpage) => *superpage = Superpage { pooled: true, ..*superpage },
                None => facts.page = Page::Pooled,
            }
        })
    }

    /// Describes the policy's first action, then the action it tries after each failure.
    fn chain(&self, event: Event, facts: &Facts) -> Vec<String> {
        let otherwise = self.chain_of(self.never.policy(SCALE), event, facts);
        self.conditioned(self.chain_of(self.policy(), event, facts), &otherwise)
    }

    fn chain_of(&self, mut policy: Policy, event: Event, facts: &Facts) -> Vec<Action> {
        let facts = &self.place(facts);
        let mut actions = vec![policy.on(event, facts)];
        while let Some(&action) = actions.last().filter(|action| can_fail(action)) {
            let result = Ended::NoMemory;
            actions.push(policy.on(Event::Outcome { action, result, cost: 0 }, facts));
        }
        actions
    }

    fn line(&self, part: &'static str, event: &str, happens: Event, facts: &Facts) -> Explained {
        let actions = self.chain(happens, facts);
        Explained { part, event: event.to_string(), actions, alternatives: true }
    }

    /// Returns the smallest number of populated pages in a region at which the policy's action
    /// satisfies `is`.
    fn first_at(
        &self,
        is: impl Fn(Action) -> bool,
        asked: impl Fn(u16) -> (Event, Facts),
    ) -> Option<u16> {
        (1..=PAGES).find(|&pages| {
            let (event, facts) = asked(pages);
            is(self.ask(event, &facts))
        })
    }

    /// Whether the first write of a region reserves a superpage.
    fn reserves(&self) -> bool {
        matches!(self.serve(true, &fresh()), FaultAction::Reserve { .. })
    }

    fn faults(&self) -> Vec<Explained> {
        let line = |event, happens, facts: &Facts| self.line("faults", event, happens, facts);
        let mut lines = vec![
            line("first read of a region", READ, &fresh()),
            line("first write", WRITE, &fresh()),
            line("first write, advised", WRITE, &advised(true)),
            line("first write, advised against", WRITE, &advised(false)),
            line("first write where the mapping ends within the region", WRITE, &cut()),
            line("first read of a file in memory", READ, &file()),
            line("write to a page beside others", WRITE, &beside(8)),
        ];
        if self.reserves() {
            lines.push(line("write to a page of a reservation", WRITE, &reserved(8)));
        }
        for facts in [fresh(), advised(true)] {
            if let FaultAction::MapZeros { order: order @ 1.. } = self.serve(false, &facts) {
                let event = match facts.mapping.advised {
                    None => "write to the superpage of zeros",
                    _ => "write to the superpage of zeros, advised",
                };
                lines.push(line(event, WRITE, &under_zeros(&facts, order)));
            }
        }
        let otherwise = self.sequence(self.never.policy(SCALE));
        let actions = self.conditioned(self.sequence(self.policy()), &otherwise);
        let event = "writes in the order of addresses".into();
        lines.push(Explained { part: "faults", event, actions, alternatives: false });
        lines.extend(self.thresholds());
        lines
    }

    /// Returns the actions at consecutive faults in a region, until they repeat.
    fn sequence(&self, mut policy: Policy) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut facts = match self.reserves() {
            true => reserved(8),
            false => self.place(&beside(8).with(|facts| facts.mapping.advised = Some(false))),
        };
        while actions.len() < 16 {
            let action = policy.fault(true, &facts);
            if actions.last() == Some(&Action::Fault(action)) {
                break;
            }
            facts.place.0 +=
                if let FaultAction::MapBase { pages } = action { u64::from(pages) } else { 1 };
            actions.push(Action::Fault(action));
        }
        actions
    }

    /// Returns the actions that a region triggers when it reaches a certain number of pages.
    fn thresholds(&self) -> Vec<Explained> {
        let populated = |pages| (Event::Populated, reserved(pages));
        let grew = |pages| (Event::Grew { before: pages - 1, after: pages }, fresh());
        let fills = |action| action == Action::Populate;
        let filled = self.first_at(fills, populated).map(|pages| (pages, populated(pages)));
        let lists = |action| action == Action::List;
        let listed = self.first_at(lists, grew).map(|pages| (pages, grew(pages)));
        let line = |(pages, (event, facts)): (u16, _)| {
            self.line("faults", &format!("a region gets its page number {pages}"), event, &facts)
        };
        filled.into_iter().chain(listed).map(line).collect()
    }

    fn in_place(&self) -> Vec<Explained> {
        let line = |event, happens, dirty| self.line("in place", event, happens, &full(dirty));
        let prepared = Event::Prepared { write: true };
        let lines = [
            line("all pages of a region are mapped and written", Event::Mapped, [!0; 8]),
            line("all are mapped, none is written", Event::Mapped, [0; 8]),
            line("all are mapped, some are written", Event::Mapped, [!0, 0, 0, 0, 0, 0, 0, 0]),
            line("all are prepared, and one is written", prepared, [0; 8]),
            self.line(
                "in place",
                "all are mapped, some beside a fault and not used since",
                Event::Mapped,
                &full([!0; 8]).with(|facts| facts.region.has_unaccessed = true),
            ),
        ];
        // If no event changes pages in place, one line suffices.
        match lines.iter().all(|line| line.actions == ["nothing"]) {
            true => lines.into_iter().take(1).collect(),
            false => lines.into(),
        }
    }

    fn unmapping(&self) -> Vec<Explained> {
        let line = |event, happens, facts: &Facts| self.line("unmapping", event, happens, facts);
        let shared = |whole| Event::Shared { whole, private: true };
        let mut lines = vec![
            line("a superpage is unmapped whole", Event::Unmapped { whole: true }, &large()),
            line("a part is unmapped", Event::Unmapped { whole: false }, &large()),
            line("a part is protected", Event::Protected { whole: false }, &large()),
            line("a clean superpage is written", WRITE, &large()),
            line("a fork shares a superpage", shared(true), &large()),
            line("a superpage shared by a fork is written", WRITE, &shared_after_fork()),
        ];
        let demoted = Event::Demoted { reserved: self.reserves() };
        lines.push(line("frames of a split superpage are not used any more", demoted, &fresh()));
        lines
    }

    fn shortage(&self) -> Vec<Explained> {
        let line = |event: &str, happens| self.line("shortage", event, happens, &fresh());
        let mut lines = vec![line("no base page is free", Event::NoPage { wanted: 1 })];
        for (event, facts) in [("a fault", fresh()), ("a fault, advised", advised(true))] {
            if let FaultAction::MakeSuperpage { effort, .. } | FaultAction::Reserve { effort, .. } =
                self.serve(true, &facts)
            {
                let happens = Event::NoSuperpage { effort, is_copy: false };
                lines.push(line(&format!("no superpage is free for {event}"), happens));
            }
        }
        let short = |tried| self.ask(Event::NoPoolPage { tried }, &fresh());
        if short(Attempt::Reclaim) == Action::Refuse {
            let event = "the pool is too small for a mapping".to_string();
            let tries = [Attempt::Nothing, Attempt::Compaction, Attempt::Reclaim];
            let mut actions = texts(&tries.map(short));
            actions.dedup();
            lines.push(Explained { part: "shortage", event, actions, alternatives: true });
        }
        lines
    }
}

/// Whether this action can fail, so that the policy may need an alternative.
fn can_fail(action: &Action) -> bool {
    matches!(
        action,
        Action::Fault(FaultAction::Reserve { .. } | FaultAction::MakeSuperpage { .. })
            | Action::Compact { direct: Some(_), .. }
            | Action::Reclaim { .. }
            | Action::BreakReservation { .. }
            | Action::ReleaseHeld { .. }
    )
}

fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(|action| action.display(&SCALE).to_string()).collect()
}

impl Design {
    /// Returns the design with another condition of faults (`None`: no condition), and no condition of scans.
    fn with_condition(&self, fault: Option<&str>) -> Self {
        let mut design = self.clone();
        let rules = &mut design.rules;
        // Without a condition of faults, both designs decide alike.
        let fault = fault.filter(|_| rules.allocation.when.is_some());
        let read = |text| condition::read(text, policy::Rule::Fault).expect("a condition");
        rules.allocation.when = fault.map(read);
        if let Some(scan) = &mut rules.mapping.scan {
            scan.when = None;
        }
        design
    }
}

// Daemons: the actions of a pass, their limits and candidates.

/// A daemon that performs more actions than this in a pass is reported as unlimited.
const NO_BUDGET: usize = 1 << 20;

impl Explainer<'_> {
    pub(super) fn daemons(&self) -> Vec<Explained> {
        let all: Vec<_> = self.policy().daemons().collect();
        all.into_iter().map(|(daemon, period)| self.daemon(daemon, period)).collect()
    }

    /// Describes a pass of a daemon that always finds work; for a sampling daemon, the pass
    /// includes both halves.
    fn daemon(&self, daemon: Daemon, period: u64) -> Explained {
        let mut policy = self.policy();
        let mut actions: Vec<String> = self.limits(daemon).into_iter().collect();
        actions.extend(pass(&mut policy, daemon));
        if daemon == Daemon::Sample {
            actions.extend(pass(&mut policy, daemon));
        }
        actions.extend(self.candidate(daemon));
        let event = format!("{}, every {}", name(daemon), SCALE.display(period));
        Explained { part: "daemons", event, actions, alternatives: false }
    }

    /// Describes when a daemon starts and stops.
    fn limits(&self, daemon: Daemon) -> Option<String> {
        match daemon {
            Daemon::Prezero => {
                let at = |permille| busy().with(|facts| facts.machine.zeroed_permille = permille);
                let (start, stop) = self.range(daemon, 1000, at);
                Some(format!("from less than {start} to {stop} per mille of free memory zeroed:"))
            }
            Daemon::Recover => {
                let at = |percent| {
                    busy().with(|facts| (facts.machine.free, facts.machine.pages) = (percent, 100))
                };
                let (start, stop) = self.range(daemon, 100, at);
                Some(format!("from less than {start} to {stop} % of memory free:"))
            }
            _ => None,
        }
    }

    /// Returns the smallest amount at which the daemon does not start, and the smallest amount at
    /// which it stops.
    fn range(&self, daemon: Daemon, most: u64, at: impl Fn(u64) -> Facts) -> (u64, u64) {
        let rests = |action| matches!(action, DaemonAction::Wait(_));
        let begins = |amount| self.policy().tick(daemon, &at(amount));
        let goes_on = |amount| {
            let mut policy = self.policy();
            let action = policy.tick(daemon, &at(0));
            policy.worked(action, DONE, 0, &at(amount))
        };
        let start = (0..=most).find(|&amount| rests(begins(amount)));
        let stop = (0..=most).find(|&amount| rests(goes_on(amount)));
        (start.unwrap_or(most), stop.unwrap_or(most))
    }

    /// Describes what the daemon does with a candidate, and what it requires of candidates.
    fn candidate(&self, daemon: Daemon) -> Option<String> {
        match daemon {
            Daemon::Scan => [None, Some(true)].into_iter().find_map(|advised| {
                let facts = |pages| beside(pages).with(|facts| facts.mapping.advised = advised);
                let is = |action| action == Action::Inspect;
                let least = self.first_at(is, |pages| (Event::Candidate, facts(pages)))?;
                let made = self.ask(Event::Inspected { requested: false }, &facts(least));
                let what = if advised.is_some() { "of an advised one" } else { "of one" };
                let swapped = |pages| facts(least).with(|facts| facts.region.swapped = pages);
                let inspected = |pages| (Event::Inspected { requested: false }, swapped(pages));
                let but = self.first_at(|action| action == Action::Nothing, inspected);
                let but = but.map(|most| format!("; {}: nothing", pages(most, " swapped out")));
                let made = made.display(&SCALE);
                let when =
                    self.scan.as_ref().map_or(String::new(), |when| format!(", where {when}"));
                let smaller = match when.is_empty() {
                    true => "",
                    false => "; else smaller pages of its parts, where it holds for them",
                };
                let but = but.unwrap_or_default();
                Some(format!("{what} with {}{when}: {made}{but}{smaller}", pages(least, "")))
            }),
            Daemon::Split => {
                let when = self.split.as_ref()?;
                let (split, whole) = (Action::Demote.display(&SCALE), "map it as one again");
                Some(format!("of one that was watched, where {when}: {split}; else {whole}"))
            }
            Daemon::Recover => {
                let mut policy = self.policy();
                policy.tick(daemon, &busy());
                let with = |zeros| large().with(|facts| facts.region.zeros = zeros);
                let mut is = |zeros| policy.on(Event::Inspected { requested: false }, &with(zeros));
                let least = (0..=PAGES).find(|&zeros| is(zeros) == Action::Recover)?;
                let made = Action::Recover.display(&SCALE);
                Some(format!("of one with {}: {made}", pages(least, " of zeros")))
            }
            _ => None,
        }
    }
}

/// Returns a daemon's actions until it rests, on a machine that always has work.
fn pass(policy: &mut Policy, daemon: Daemon) -> Vec<String> {
    let facts = busy();
    let mut action = policy.tick(daemon, &facts);
    let (mut actions, mut total) = (Vec::<(DaemonAction, usize)>::new(), 0);
    while !matches!(action, DaemonAction::Wait(_)) && total < NO_BUDGET {
        match actions.last_mut() {
            Some((last, times)) if *last == action => *times += 1,
            _ => actions.push((action, 1)),
        }
        total += 1;
        action = policy.worked(action, DONE, 0, &facts);
    }
    let last = actions.len().saturating_sub(1);
    let is_endless = |at| at == last && total == NO_BUDGET;
    let words = |(at, &each)| repeated(daemon, each, is_endless(at));
    let mut words: Vec<String> = actions.iter().enumerate().map(words).collect();
    if total < NO_BUDGET && action != DaemonAction::Wait(Wait::Period) {
        words.push(Action::Daemon(action).display(&SCALE).to_string());
    }
    words
}

/// Describes an action that a daemon repeats `times` times in a pass.
fn repeated(daemon: Daemon, (action, times): (DaemonAction, usize), is_endless: bool) -> String {
    let action = Action::Daemon(action);
    let words = action.display(&SCALE);
    match (daemon, times) {
        (_, 1) => words.to_string(),
        _ if is_endless => format!("{words}, as long as there is one"),
        // These daemons' actions are per page.
        (Daemon::Evacuate | Daemon::Fill, _) => format!("{words}, up to {times} pages in a pass"),
        _ => format!("{words}, up to {times} times in a pass"),
    }
}

fn pages(least: u16, of: &str) -> String {
    let plural = if least == 1 { "" } else { "s" };
    format!("{least} page{plural}{of} or more")
}

const DONE: Ended = Ended::Done { pages: 1 };

fn name(daemon: Daemon) -> &'static str {
    match daemon {
        Daemon::Evacuate => "evacuation",
        Daemon::Fill => "preparation",
        Daemon::Prezero => "zeroing ahead",
        Daemon::Sample => "sampling",
        Daemon::Scan => "scan",
        Daemon::Compact => "compaction",
        Daemon::Recover => "recovery of zeros",
        Daemon::Reclaim => "reclaim",
        Daemon::Split => "splitting",
    }
}

// Representative facts.

pub const READ: Event = Event::Fault { write: false };
pub const WRITE: Event = Event::Fault { write: true };

pub trait With: Sized {
    fn with(self, change: impl FnOnce(&mut Facts)) -> Facts;
}

impl With for Facts {
    fn with(mut self, change: impl FnOnce(&mut Facts)) -> Facts {
        change(&mut self);
        self
    }
}

/// A superpage-sized range of untouched anonymous memory inside a large writable mapping.
pub fn fresh() -> Facts {
    let all: Orders = (1..=18).collect();
    Facts {
        mapping: Mapping { writable: true, ..Mapping::default() },
        place: (0, PAGES.into()),
        region: Region {
            inside: true,
            begins: all,
            ends: all,
            absent: all,
            unreserved: all,
            has_writable: true,
            accessed: true,
            ..Region::default()
        },
        ..Facts::default()
    }
}

pub fn advised(advised: bool) -> Facts {
    fresh().with(|facts| facts.mapping.advised = Some(advised))
}

/// Like [`fresh`], but the mapping ends after 64 KiB.
pub fn cut() -> Facts {
    let ends: Orders = (1..=4).collect();
    fresh().with(|facts| (facts.region.inside, facts.region.ends) = (false, ends))
}

pub fn file() -> Facts {
    fresh().with(|facts| facts.mapping.backing = Backing::File { cached: true })
}

/// Like [`fresh`], but with `pages` other pages of the region in use, so that no larger page fits.
pub fn beside(pages: u16) -> Facts {
    fresh().with(|facts| {
        let region = &mut facts.region;
        (region.populated, region.has_table) = (pages, true);
        (region.absent, region.unreserved) = (Orders::NONE, Orders::NONE);
    })
}

pub fn reserved(pages: u16) -> Facts {
    let reservation = Reservation { order: 9, populated: pages.into(), ..Reservation::default() };
    beside(pages).with(|facts| facts.region.reservation = Some(reservation))
}

pub fn full(dirty: [u64; 8]) -> Facts {
    reserved(PAGES).with(|facts| {
        let region = &mut facts.region;
        (region.is_mapped, region.dirty) = (true, dirty);
        region.reservation = region.reservation.map(|one| Reservation { is_full: true, ..one });
    })
}

pub fn mapped(superpage: Superpage) -> Facts {
    fresh().with(|facts| facts.region.superpage = Some(superpage))
}

pub fn large() -> Facts {
    mapped(Superpage::default())
}

pub fn under_zeros(facts: &Facts, order: u8) -> Facts {
    let superpage = Superpage { order, zeros: true, ..Superpage::default() };
    facts.with(|facts| facts.region.superpage = Some(superpage))
}

pub fn shared_after_fork() -> Facts {
    mapped(Superpage { cow: true, shared: true, ..Superpage::default() })
}

/// Facts of a machine on which every daemon has work.
pub fn busy() -> Facts {
    fresh().with(|facts| {
        let machine = &mut facts.machine;
        (machine.pages, machine.waiting, machine.watermarks) = (1 << 20, 1, (256, 512));
        (machine.compaction_wanted, machine.is_fragmented) = (true, true);
    })
}
