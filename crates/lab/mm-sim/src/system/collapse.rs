//! Base pages are copied into a superpage: out of place, as khugepaged does.
//! See docs/decisions/lab-model.md#3.

use policy::rules::Effort;
use policy::{Action, Event, Facts, How};
use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::spaces::region::{Entry, LISTED};
use crate::Cause;
use crate::memory::{Frame, Mobility, Owner};

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
