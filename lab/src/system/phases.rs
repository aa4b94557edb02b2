//! The phases of a program: a book for each.

use super::clock::Clock;
use crate::{Ledger, Phase};

/// The phases so far.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    done: Vec<Phase>,
    /// The one under way: name, time, ledger and accesses at its beginning.
    open: Option<(String, u64, Ledger, u64)>,
}

impl Phases {
    /// A phase begins; the one before ends.
    pub(crate) fn begin(&mut self, name: &str, clock: &Clock, accesses: u64) {
        self.end(clock, accesses);
        self.open = Some((name.to_string(), clock.now(), clock.ledger, accesses));
    }

    /// The last one ends.
    pub(crate) fn end(&mut self, clock: &Clock, accesses: u64) {
        let Some((name, began, ledger, before)) = self.open.take() else { return };
        self.done.push(Phase {
            name,
            wall_cycles: clock.now() - began,
            ledger: clock.ledger.since(&ledger),
            accesses: accesses - before,
        });
    }

    /// What there was.
    pub(crate) fn take(&mut self) -> Vec<Phase> {
        std::mem::take(&mut self.done)
    }
}
