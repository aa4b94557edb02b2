//! Event 4 behind the program: superpages that are accessed unevenly are split (HugeScope, FHPM).
//!
//! A pass watches some superpages for a while: they are mapped by base pages where they are, so that each base page
//! has an accessed bit. Then each is split for good, or mapped as one again.

use crate::action::{Candidates, How, Wait};
use crate::daemon::Daemon;
use crate::event::Result;
use crate::rules::Effort;
use crate::{Action, Facts, Policy};

impl Policy {
    /// A pass begins, or goes on when its window is over.
    pub(crate) fn split_begins(&mut self, facts: &Facts) -> Action {
        let Some(scan) = self.rules.unmapping.scan else { return Action::Wait(Wait::Period) };
        let is_short = scan.below_percent >= 100
            || facts.machine.free * 100 < u64::from(scan.below_percent) * facts.machine.pages;
        match self.passes[Daemon::Split as usize].has_begun {
            true => Action::Visit(Candidates::Watched),
            false if is_short => Action::Watch { most: scan.superpages },
            false => Action::Wait(Wait::Period),
        }
    }

    /// Superpages are watched, or one of them was visited.
    pub(crate) fn split_goes_on(&self, action: Action, result: Result, facts: &Facts) -> Action {
        let window = self.rules.unmapping.scan.map(|scan| self.scale.ticks_of(scan.window));
        match (action, result) {
            (_, Result::Nothing) => Action::Wait(Wait::Period),
            (Action::Watch { .. }, _) => Action::Wait(Wait::Pause(window.unwrap_or(0))),
            _ if facts.machine.is_piece_done => Action::Wait(Wait::More),
            _ => Action::Visit(Candidates::Watched),
        }
    }

    /// One that was watched.
    pub(crate) fn watched(&self, facts: &Facts) -> Action {
        let order = self.scale.superpage;
        match &self.rules.unmapping.when {
            Some(when) if self.holds(Some(when), order, facts) => Action::Demote,
            _ => Action::MakeSuperpage {
                order,
                how: How::InPlace { writable: true },
                effort: Effort::None,
            },
        }
    }
}
