//! What a design does at each event, in words: its policy is asked, with facts that stand for many. No key is read.

mod conditions;
mod daemons;
mod facts;

use policy::{Action, Attempt, Event, Facts, Page, Policy, Result as Ended, Scale, Superpage};

use self::facts::{
    READ, WRITE, With, advised, beside, cut, file, fresh, full, large, reserved, shared_after_fork,
    under_zeros,
};
use crate::Design;

/// What is done at an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// What the event is part of: `faults`, `in place`, `unmapping`, `shortage`, `daemons`, `conditions`.
    pub part: &'static str,
    /// What happens.
    pub event: String,
    /// What is done.
    pub actions: Vec<String>,
    /// Each where the one before fails. If not: one after the other.
    pub alternatives: bool,
}

/// Pages of 4 KiB, superpages of 2 MiB, a clock of nanoseconds.
const SCALE: Scale = Scale { base_page: 4096, superpage: 9, ticks: 1000 };
/// Base pages of a superpage.
const PAGES: u16 = 512;

impl Design {
    /// What its policy does at each event, on a machine with pages of 4 KiB and superpages of 2 MiB.
    pub fn explain(&self) -> Vec<Explained> {
        let design = &self.unconditional();
        let explainer = Explainer { design, pool: self.policy(SCALE).physical().pool.is_some() };
        let parts =
            [explainer.faults(), explainer.in_place(), explainer.unmapping(), explainer.shortage()];
        let all = parts.into_iter().flatten().chain(explainer.daemons());
        all.chain(self.conditions()).collect()
    }
}

struct Explainer<'a> {
    design: &'a Design,
    /// Memory of the program's own comes from a pool.
    pool: bool,
}

impl Explainer<'_> {
    /// One that knows of nothing before.
    fn policy(&self) -> Policy {
        self.design.policy(SCALE)
    }

    fn ask(&self, event: Event, facts: &Facts) -> Action {
        self.policy().on(event, &self.place(facts))
    }

    /// The same place, where the program's memory is a pool's.
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

    /// What is done, and what is done instead each time it fails.
    fn chain(&self, event: Event, facts: &Facts) -> Vec<Action> {
        let (mut policy, facts) = (self.policy(), &self.place(facts));
        let mut actions = vec![policy.on(event, facts)];
        while let Some(&action) = actions.last().filter(|action| can_fail(action)) {
            let result = Ended::NoMemory;
            actions.push(policy.on(Event::Outcome { action, result, cost: 0 }, facts));
        }
        actions
    }

    fn line(&self, part: &'static str, event: &str, happens: Event, facts: &Facts) -> Explained {
        let actions = texts(&self.chain(happens, facts));
        Explained { part, event: event.to_string(), actions, alternatives: true }
    }

    /// The fewest pages, of a superpage's worth, at which the answer is this.
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
        if let Action::Reserve { .. } = self.ask(WRITE, &fresh()) {
            lines.push(line("write to a page of a reservation", WRITE, &reserved(8)));
        }
        for facts in [fresh(), advised(true)] {
            if let Action::MapZeros { order: order @ 1.. } = self.ask(READ, &facts) {
                let event = match facts.mapping.advised {
                    None => "write to the superpage of zeros",
                    _ => "write to the superpage of zeros, advised",
                };
                lines.push(line(event, WRITE, &under_zeros(&facts, order)));
            }
        }
        let (event, actions) = ("writes in the order of addresses".into(), texts(&self.sequence()));
        lines.push(Explained { part: "faults", event, actions, alternatives: false });
        lines.extend(self.thresholds());
        lines
    }

    /// Faults side by side, as long as the answers change.
    fn sequence(&self) -> Vec<Action> {
        let (mut policy, mut actions) = (self.policy(), Vec::new());
        let mut facts = match self.ask(WRITE, &fresh()) {
            Action::Reserve { .. } => reserved(8),
            _ => self.place(&beside(8).with(|facts| facts.mapping.advised = Some(false))),
        };
        while actions.len() < 16 {
            let action = policy.on(WRITE, &facts);
            if actions.last() == Some(&action) {
                break;
            }
            facts.place.0 +=
                if let Action::MapBase { pages } = action { u64::from(pages) } else { 1 };
            actions.push(action);
        }
        actions
    }

    /// What a region's n-th page brings.
    fn thresholds(&self) -> Vec<Explained> {
        let populated = |pages| (Event::Populated, reserved(pages));
        let grew = |pages| (Event::Grew { before: pages - 1, after: pages }, fresh());
        let fills = |action| matches!(action, Action::Populate { .. });
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
        // Where nothing is made in place, one line says so.
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
        let reserves = matches!(self.ask(WRITE, &fresh()), Action::Reserve { .. });
        let demoted = Event::Demoted { reserved: reserves };
        lines.push(line("frames of a split superpage are not used any more", demoted, &fresh()));
        lines
    }

    fn shortage(&self) -> Vec<Explained> {
        let line = |event: &str, happens| self.line("shortage", event, happens, &fresh());
        let mut lines = vec![line("no base page is free", Event::NoPage { wanted: 1 })];
        for (event, facts) in [("a fault", fresh()), ("a fault, advised", advised(true))] {
            let asks = self.ask(WRITE, &facts);
            if let Action::MakeSuperpage { effort, .. } | Action::Reserve { effort, .. } = asks {
                let happens = Event::NoSuperpage { effort, daemon: false };
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

/// Whether something else is done when it fails: a policy answers that.
fn can_fail(action: &Action) -> bool {
    use policy::How::Fresh;
    matches!(
        action,
        Action::Reserve { .. }
            | Action::MakeSuperpage { how: Fresh, .. }
            | Action::Compact { direct: Some(_), .. }
            | Action::Reclaim { .. }
            | Action::BreakReservation { .. }
            | Action::ReleaseHeld { .. }
    )
}

fn texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(|action| action.display(&SCALE).to_string()).collect()
}
