//! Decisions of the advisor for a running program, tested without one, in tables of facts. Each line names the source
//! of the expected action.

mod advise;
mod prepare;
mod record;
mod segments;

use superpage_advisor::{Action, Outcome};
use superpage_advisor::{
    Advisor, Event, Facts, Fallback, Kind, Pages, Request, Source, State, Use,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SUPERPAGE: u64 = 2 * MIB;
const DONE: Outcome = Outcome::Done { pages: 0 };

const THP: Request = Request { pages: Pages::Superpage, prezero: 0, prefault: 0 };
const PREPARED: Request = Request { prezero: 64 * MIB, prefault: 64 * MIB, ..THP };

/// A machine of 24 GB, of which 20 GB are free, all in superpages.
fn whole(length: u64) -> Facts {
    Facts {
        superpage: SUPERPAGE,
        base_page: 4 * KIB,
        length,
        kind: Kind::Mapping,
        compacts: true,
        total: 24 * GIB,
        contiguous: Some(20 * GIB),
        free: 20 * GIB,
        ..Facts::default()
    }
}

/// The same machine, with `contiguous` bytes free in superpages.
fn partly(length: u64, contiguous: u64) -> Facts {
    Facts { contiguous: Some(contiguous), ..whole(length) }
}

/// What an executor reports. Expensive facts are reported only when the advisor asks for them. `probe`: the result of a
/// probe.
struct World {
    facts: Facts,
    probe: (Outcome, u32),
}

impl World {
    /// Returns all answers to the event, up to the first that acts on the memory.
    fn answers(&self, policy: &mut Advisor, event: Event) -> Vec<Action> {
        let mut all = self.facts;
        let mut facts = Facts {
            contiguous: None,
            reclaimable: None,
            smaller: 0,
            contiguous_smaller: 0,
            has_supply: false,
            obtained: None,
            resident: None,
            headroom: None,
            is_unlimited: false,
            is_whole: false,
            ..all
        };
        let mut answers = vec![policy.on(event, &facts)];
        loop {
            let action = *answers.last().expect("one");
            let (mut result, mut cost) = (DONE, 0);
            match action {
                Action::Read(Source::Losses) | Action::Wait { .. } => {}
                Action::Read(Source::Free) if all.contiguous.is_none() => {
                    result = Outcome::Unavailable
                }
                Action::Read(Source::Free) => facts.contiguous = all.contiguous,
                Action::Read(Source::Spare) => {
                    facts.reclaimable = Some(all.reclaimable.unwrap_or(0));
                    facts.smaller = all.smaller;
                    facts.contiguous_smaller = all.contiguous_smaller;
                    facts.has_supply = all.has_supply;
                }
                Action::Read(Source::Resident) => facts.resident = all.resident,
                Action::Read(Source::Headroom) => facts.headroom = all.headroom,
                Action::Read(Source::Whole) => {
                    (facts.is_unlimited, facts.is_whole) = (all.is_unlimited, all.is_whole);
                }
                Action::Obtain { .. } => {
                    (facts.obtained, facts.reclaimable) = (all.obtained, None);
                    let got = all.obtained.unwrap_or(0) * all.superpage;
                    all.contiguous = all.contiguous.map(|before| before + got);
                }
                Action::Probe { .. } => {
                    (result, cost) = self.probe;
                    facts.reclaimable = None;
                    if let Outcome::Done { pages } = result {
                        let got = u64::from(pages) * all.superpage;
                        all.contiguous = all.contiguous.map(|before| before.max(got));
                    }
                }
                Action::Populate { most } => facts.prepared += u64::from(most) * facts.base_page,
                _ => return answers,
            }
            answers.push(policy.on(Event::Outcome { action, result, cost }, &facts));
        }
    }
}

/// Returns the answers of an executor that cannot probe.
fn answers(policy: &mut Advisor, event: Event, facts: Facts) -> Vec<Action> {
    World { facts, probe: (Outcome::Unavailable, 0) }.answers(policy, event)
}

fn last(policy: &mut Advisor, event: Event, facts: Facts) -> Action {
    *answers(policy, event, facts).last().expect("one")
}

fn advise(bytes: u64) -> Action {
    Action::Advise { bytes, order: 9, promised: true }
}

/// The same action, but no free memory is set aside for it.
fn unpromised(bytes: u64) -> Action {
    Action::Advise { bytes, order: 9, promised: false }
}

fn short() -> State {
    State { is_short: true, ..State::NEW }
}

fn tried(is_good: bool) -> State {
    State { verdict: Some(is_good), ..State::NEW }
}

/// superpage-run(1), --fallback.
#[test]
fn what_the_pool_has_not_falls_back_as_asked() {
    for (fallback, expected) in [
        (Fallback::Refuse, Action::Refuse),
        (Fallback::Base, Action::GiveUp),
        (Fallback::Advise, unpromised(8 * MIB)),
    ] {
        let asked = Request { pages: Pages::Pool, ..THP };
        let facts = Facts { fallback, ..whole(8 * MIB) };
        assert_eq!(Advisor::new(asked).on(Event::NoPoolPage, &facts), expected);
    }
}
