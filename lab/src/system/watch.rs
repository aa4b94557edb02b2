//! Superpages whose accesses are watched: for a while they are mapped by their base pages, where they are.

use policy::{Action, Candidates, Event, Extent, Facts, Result as Ended};
use trace::{Page, SLOTS};

use super::System;
use super::allocate::{LARGE_ORDER, Payer};
use super::region::{COW, Entry, POOL, RESERVED, WATCHED, ZEROS};
use crate::Cause;
use crate::memory::Frame;

impl System {
    /// Does what the policy asks of the daemon that splits superpages.
    pub(crate) fn watch(&mut self, action: Action) -> Ended {
        match action {
            Action::Watch { most } => self.watch_next(most),
            Action::Visit(Candidates::Watched) => self.visit_watched(),
            other => unreachable!("{other:?} is nothing that such a daemon does"),
        }
    }

    /// The next superpages by address are watched, once round at most.
    fn watch_next(&mut self, most: u32) -> Ended {
        let (all, from) = (self.spaces.regions.len() as u32, self.daemons.watched.1);
        let mut found = Vec::new();
        for region in (from..all).chain(0..from.min(all)) {
            if found.len() as u32 == most {
                break;
            }
            let at = &self.spaces.regions[region as usize];
            if self.spaces.is_large(region) && !at.has(COW | POOL | RESERVED | ZEROS) {
                found.push(region);
            }
        }
        let Some(&last) = found.last() else { return Ended::Nothing };
        self.daemons.watched.1 = last + 1;
        for &region in &found {
            self.demote(region, Payer::Daemon);
            self.counters.demoted -= 1;
            self.spaces.region(region).flags |= WATCHED;
        }
        found.reverse();
        self.daemons.watched.0 = found;
        Ended::Done { pages: 0 }
    }

    /// The next of those: split for good, or mapped as one again.
    fn visit_watched(&mut self) -> Ended {
        let Some(region) = self.daemons.watched.0.pop() else { return Ended::Nothing };
        if !self.spaces.regions[region as usize].has(WATCHED) {
            return Ended::Unfit;
        }
        self.spaces.region(region).flags &= !WATCHED;
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        let Some(base) = self.whole_again(region) else {
            // Something was done to a part of it meanwhile, as to any that was split.
            self.counters.demoted += 1;
            return Ended::Unfit;
        };
        match self.policy.on(Event::Candidate, &self.facts_of_watched(region)) {
            Action::Demote => self.counters.demoted += 1,
            _ => {
                self.spaces.folios.remove(&base.0);
                self.clock.spend_behind(Cause::Map, self.costs.promote);
                self.map_superpage(region, base, true);
            }
        }
        Ended::Done { pages: SLOTS }
    }

    /// The first frame of a region whose pages are all mapped, nobody else's, and in one aligned block.
    fn whole_again(&self, region: u32) -> Option<Frame> {
        let at = &self.spaces.regions[region as usize];
        let is_whole = !self.spaces.is_large(region)
            && *self.spaces.present(region) == [!0; 8]
            && !at.has(COW | RESERVED);
        let first = Page(region << 9);
        (is_whole && self.lies_together(first, LARGE_ORDER))
            .then(|| self.spaces.entry(first).frame())
            .flatten()
            .filter(|base| {
                let all = base.0..base.0 + SLOTS;
                self.spaces.shares.range(all).next().is_none()
            })
    }

    fn facts_of_watched(&self, region: u32) -> Facts {
        let at = &self.spaces.regions[region as usize];
        let table = self.spaces.tables.table(at.place);
        let accessed = table.iter().filter(|entry| entry.has(Entry::ACCESSED)).count() as u32;
        let mut facts = self.facts_of_candidate(region);
        facts.extent = Extent { coverage: accessed, ..self.extent(Page(region << 9), LARGE_ORDER) };
        facts
    }
}
