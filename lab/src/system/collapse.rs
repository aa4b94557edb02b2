//! Base pages are copied into a superpage: out of place, as khugepaged does.

use policy::rules::Effort;
use policy::{Action, Event, How};
use trace::{Page, Pages, SLOTS};

use super::System;
use super::allocate::Payer;
use super::region::LISTED;
use crate::Cause;
use crate::memory::Owner;

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
    pub(crate) fn collapse(&mut self, region: u32, payer: Payer) -> Collapsed {
        let requested = payer == Payer::Program;
        let event = if requested { Event::CollapseRequested } else { Event::Candidate };
        if self.policy.on(event, &self.facts_of_candidate(region)) != Action::Inspect {
            return Collapsed::Unfit;
        }
        // A candidate leaves the list when it is looked into.
        self.spaces.region(region).flags &= !LISTED;
        match self.policy.on(Event::Inspected { requested }, &self.facts_of_inspected(region)) {
            Action::MakeSuperpage { how: How::Copy { exclusive }, effort, .. } => {
                self.copy_into_superpage(region, exclusive, effort, payer)
            }
            _ => Collapsed::Unfit,
        }
    }

    fn copy_into_superpage(
        &mut self,
        region: u32,
        exclusive: bool,
        effort: Effort,
        payer: Payer,
    ) -> Collapsed {
        let Some(got) = self.superpage(effort, payer) else { return Collapsed::NoMemory };
        let first = Page(region << 9);
        let present = (0..SLOTS)
            .filter(|slot| self.spaces.entry(Page(first.0 + slot)).frame().is_some())
            .count() as u64;
        self.charge(payer, Cause::Copy, self.costs.copy_page * present + self.costs.collapse);
        let holes = u64::from(SLOTS) - present;
        if !got.zeroed {
            self.charge(payer, Cause::Zero, self.costs.zero_page * holes);
            self.counters.zeroed += holes;
        }
        if exclusive {
            let cost = self.costs.copy_page * present
                + self.costs.collapse
                + if got.zeroed { 0 } else { self.costs.zero_page * holes };
            // What it did since the program was last told follows one on the other.
            let process = self.spaces.regions[region as usize].process;
            let until = if self.locked.0 == process { self.locked.1 } else { 0 };
            self.locked = (process, until.max(self.clock.now()) + cost);
        }
        self.clock.spend(Cause::Shootdown, self.costs.shootdown);
        // A daemon serves other processes too: what it makes for them is not the program's.
        let process = self.spaces.regions[region as usize].process;
        if self.spaces.is_ours(process) {
            self.counters.copied += present;
            self.counters.made_by_copy += 1;
        }
        // The old pages go, silently: the program pays nothing for that.
        let books = self.clock.ledger;
        self.release(Pages { first, count: SLOTS });
        self.clock.restore(books);
        self.memory.set_owner(got.frame, Owner::Page(first));
        self.map_superpage(region, got.frame, true);
        Collapsed::Yes
    }
}
