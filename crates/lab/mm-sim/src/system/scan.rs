//! The scan that makes superpages, as far as it is not the policy's: where candidates come from.

use std::collections::BTreeMap;

use policy::{Action, Candidates, Facts, Process, Result as Ended};
use trace::{Page, Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::collapse::Collapsed;
use super::daemons::Pass;
use super::larger::Larger;
use super::spaces::region::{ACCESSED, LISTED, NO_TABLE, WATCHED};
use crate::Cause;
use crate::reservation::ReservationId;

/// What a daemon came by in a piece of its work.
#[derive(Debug, Default)]
pub(crate) struct Visited {
    /// The reservation that it looks at next, once it has looked at one.
    pub partial: Option<Option<ReservationId>>,
    /// The last one whose pages could not be moved.
    pub passed: Option<ReservationId>,
}

impl System {
    /// Does what the policy asks of a scan. Returns how that ended, and how many mappings were passed over.
    pub(crate) fn scan(&mut self, action: Action, pass: &mut Pass) -> (Ended, u32) {
        let done = (Ended::Done { pages: 0 }, 0);
        match action {
            Action::Rewind => self.daemons.set_cursor(0, Page(0)),
            Action::Rank { most, one_process } => pass.chosen = self.choose(most, one_process),
            Action::ClearAccessed => {
                let entries = self.spaces.clear_accessed();
                self.clock.spend_behind(Cause::Scan, self.costs.scan_page * entries);
            }
            Action::CountAccessed { newest_percent } => {
                let entries = self.spaces.count_accessed(newest_percent);
                self.clock.spend_behind(Cause::Scan, self.costs.scan_page * entries);
            }
            Action::Visit(Candidates::Best) => return (self.visit_best(pass), 0),
            Action::Visit(Candidates::Listed) => {
                if let Some(region) = self.daemons.next_candidate() {
                    self.spaces.unmark(region, LISTED);
                    let process = self.spaces.at(region).process;
                    self.daemons.set_cursor(process, region.first());
                }
                return self.visit_next();
            }
            Action::Visit(_) => return self.visit_next(),
            other => unreachable!("{other:?} is nothing that a scan does"),
        }
        done
    }

    /// The next region by address.
    fn visit_next(&mut self) -> (Ended, u32) {
        let mut passed = 0;
        let Some((owner, region)) = self.next_region(self.daemons.cursor(), &mut passed) else {
            return (Ended::Nothing, passed);
        };
        if self.policy.scanned_sizes().has(self.larger_order()) && self.group > 0 {
            return (self.visit_larger(owner, region), passed);
        }
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        self.daemons.set_cursor(owner, region.next().first());
        (self.visit(region), passed)
    }

    fn visit(&mut self, region: Region) -> Ended {
        match self.collapse(region, Payer::Daemon) {
            Collapsed::Yes => Ended::Done { pages: SLOTS },
            Collapsed::NoMemory => Ended::NoMemory,
            Collapsed::Unfit => {
                self.spaces.unmark(region, ACCESSED);
                Ended::Unfit
            }
        }
    }

    /// A candidate for the largest superpage, from a region of it on; where none is made, each of its regions that the
    /// mapping holds.
    fn visit_larger(&mut self, owner: u32, from: Region) -> Ended {
        let mapping = self.spaces.process(owner).and_then(|own| own.find(from.first()));
        let held = mapping.map_or(from.next().0, |(_, mapping)| mapping.end / SLOTS);
        let end = self.extent_around(from).end().region().0.min(held);
        self.daemons.set_cursor(owner, Region(end).first());
        let read = (from.0..end).map(Region).map(|region| match self.spaces.table(region) {
            Some(_) => u64::from(SLOTS),
            None => 1,
        });
        let entries: u64 = read.sum();
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * entries);
        match self.collapse_larger(from) {
            Larger::Made => return Ended::Done { pages: SLOTS << self.group },
            Larger::NoMemory => return Ended::NoMemory,
            Larger::Unfit => return Ended::Unfit,
            Larger::Parts => {}
        }
        let mut all = Ended::Unfit;
        for region in (from.0..end).map(Region) {
            match self.visit(region) {
                Ended::NoMemory => return Ended::NoMemory,
                Ended::Unfit => {}
                done => all = done,
            }
        }
        all
    }

    /// The best of those that were ranked.
    fn visit_best(&mut self, pass: &mut Pass) -> Ended {
        let Some(region) = pass.chosen.pop() else { return Ended::Nothing };
        match self.collapse(region, Payer::Daemon) {
            Collapsed::Yes => Ended::Done { pages: SLOTS },
            Collapsed::NoMemory => Ended::NoMemory,
            Collapsed::Unfit => {
                // Failures go back to bin 0.
                self.spaces.forget_coverage(region);
                Ended::Unfit
            }
        }
    }

    /// The next region at or after (process, page) that lies wholly in a mapping of a kind that is scanned.
    fn next_region(&self, (process, page): (u32, Page), passed: &mut u32) -> Option<(u32, Region)> {
        for (number, space) in self.spaces.processes_from(process) {
            let from = if number == process { page.0 } else { 0 };
            let start = space.find(Page(from)).map_or(from, |(first, _)| first);
            for (first, mapping) in space.mappings_from(start) {
                let window = first.max(from).next_multiple_of(SLOTS);
                let fits = window + SLOTS <= mapping.end
                    && mapping.is_anonymous()
                    && mapping.pool.is_none()
                    && self.policy.is_eligible(&mapping.facts());
                if fits {
                    return Some((number, Page(window).region()));
                }
                *passed += 1;
            }
        }
        None
    }

    /// The regions of a pass, the first one last.
    fn choose(&mut self, most: u32, one_process: bool) -> Vec<Region> {
        let mut candidates = self.candidates_by_process();
        if one_process {
            let all = candidates.iter();
            let best = all.filter_map(|(&number, regions)| {
                let ranks = regions.iter().map(|&(rank, _)| rank);
                Some((self.policy.rank_process(ranks, &self.process_facts(number))?, number))
            });
            let Some((_, process)) = best.max() else { return Vec::new() };
            self.daemons.serve(process, self.clock.now());
            candidates.retain(|&number, _| number == process);
        }
        let mut all: Vec<(u32, Region)> = candidates.into_values().flatten().collect();
        // The highest rank first; among equals the one that was put there last, at its head: the highest address.
        all.sort_unstable();
        let most = if most == 0 { usize::MAX } else { most as usize };
        all.drain(..all.len().saturating_sub(most));
        all.into_iter().map(|(_, region)| region).collect()
    }

    fn process_facts(&self, number: u32) -> Process {
        let (walks, all) = self.spaces.process(number).map_or((0, 1), |own| own.overhead());
        Process {
            walks_permille: walks * 1000 / all.max(1),
            served: self.daemons.served(number),
            number,
        }
    }

    fn facts_of_ranked(&self, region: Region) -> Facts {
        let at = self.spaces.at(region);
        let mut facts = Facts::default();
        facts.region.superpage =
            (self.spaces.is_large(region) || at.has(WATCHED)).then(Default::default);
        facts.region.has_table = at.place != NO_TABLE;
        facts.region.coverage = at.coverage;
        facts
    }

    fn candidates_by_process(&self) -> BTreeMap<u32, Vec<(u32, Region)>> {
        let mut found: BTreeMap<u32, Vec<(u32, Region)>> = BTreeMap::new();
        for (region, at) in self.spaces.regions() {
            if let Some(rank) = self
                .policy
                .rank(&self.facts_of_ranked(region).region, self.spaces.misses_of(region))
            {
                found.entry(at.process).or_default().push((rank, region));
            }
        }
        found
    }
}
