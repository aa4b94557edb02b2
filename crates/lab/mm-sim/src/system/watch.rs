//! Superpages whose accesses are watched: for a while they are mapped by their base pages, where they are.

use policy::{Action, Candidates, Event, Extent, Facts, Result as Ended};
use trace::{Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::frames::LARGE_ORDER;
use super::spaces::region::{COW, Entry, POOL, RESERVED, WATCHED, ZEROS};
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
        let (all, from) = (self.spaces.region_count(), self.daemons.watches_from().0);
        let mut found = Vec::new();
        for region in (from..all).chain(0..from.min(all)).map(Region) {
            if found.len() as u32 == most {
                break;
            }
            let at = self.spaces.at(region);
            let is_large = self.spaces.is_large(region) && !self.spaces.is_part(region);
            if is_large && !at.has(COW | POOL | RESERVED | ZEROS) {
                found.push(region);
            }
        }
        if found.is_empty() {
            return Ended::Nothing;
        }
        for &region in &found {
            self.demote(region, Payer::Daemon);
            self.counters.demoted -= 1;
            self.spaces.mark(region, WATCHED);
        }
        self.daemons.watch(found);
        Ended::Done { pages: 0 }
    }

    /// The next of those: split for good, or mapped as one again.
    fn visit_watched(&mut self) -> Ended {
        let Some(region) = self.daemons.next_watched() else { return Ended::Nothing };
        if !self.spaces.at(region).has(WATCHED) {
            return Ended::Unfit;
        }
        self.spaces.unmark(region, WATCHED);
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        let Some(base) = self.whole_again(region) else {
            // Something was done to a part of it meanwhile, as to any that was split.
            self.counters.demoted += 1;
            return Ended::Unfit;
        };
        match self.policy.on(Event::Candidate, &self.facts_of_watched(region)) {
            Action::Demote => self.counters.demoted += 1,
            _ => {
                self.frames.end_hold(base);
                self.clock.spend_behind(Cause::Map, self.costs.promote);
                self.map_superpage(region, base, true);
            }
        }
        Ended::Done { pages: SLOTS }
    }

    /// The first frame of a region whose pages are all mapped, nobody else's, and in one aligned block.
    fn whole_again(&self, region: Region) -> Option<Frame> {
        let at = self.spaces.at(region);
        let is_whole = !self.spaces.is_large(region)
            && *self.spaces.present(region) == [!0; 8]
            && !at.has(COW | RESERVED);
        let first = region.first();
        (is_whole && self.spaces.lies_together(first, LARGE_ORDER))
            .then(|| self.spaces.entry(first).frame())
            .flatten()
            .filter(|&base| !self.frames.is_any_shared(base))
    }

    fn facts_of_watched(&self, region: Region) -> Facts {
        let table = self.spaces.table(region).unwrap_or_default();
        let accessed = table.iter().filter(|entry| entry.has(Entry::ACCESSED)).count() as u32;
        let mut facts = self.facts_of_candidate(region);
        facts.extent = Extent { coverage: accessed, ..self.extent(region.first(), LARGE_ORDER) };
        facts
    }
}
