//! Scans that make superpages: by address (khugepaged), by population (Ingens), by recent access
//! (HawkEye).

use std::collections::BTreeMap;

use design::{Scan, ScanOrder};
use trace::{Page, SLOTS};

use super::System;
use super::allocate::Payer;
use super::collapse::{Collapsed, Fitness};
use super::daemons::Next;
use super::region::{ACCESSED, Entry, LISTED, NO_TABLE};
use crate::Cause;

/// Entries that a visit of a region costs of a scan's budget, collapsed or not (`HPAGE_PMD_NR`).
const VISIT: u32 = SLOTS;
/// Candidates that a process has at least, for HawkEye to serve it.
const LEAST_CANDIDATES: usize = 8;
/// The share of one CPU that sampling may use: it sleeps 19 times as long as it worked (HawkEye, code).
const SAMPLE_REST: u64 = 19;

impl System {
    /// One pass of the design's scan.
    pub(crate) fn scan(&mut self) -> Next {
        let Some(scan) = self.design.mapping.scan.clone() else { return Next::Period };
        let failed = match scan.order {
            ScanOrder::Address => self.scan_by_address(&scan),
            ScanOrder::Crossing => self.serve_candidates(&scan) || self.scan_by_address(&scan),
            ScanOrder::Coverage | ScanOrder::Overhead => self.scan_by_access(&scan),
        };
        if failed && !scan.after_failure.is_zero() {
            return Next::After(self.clock.cycles(scan.after_failure));
        }
        Next::Period
    }

    fn fitness(scan: &Scan) -> Fitness {
        Fitness { least_present: scan.least_present, referenced: scan.referenced }
    }

    /// Whether the pass that began when the daemons had spent `before` has used up its share of a CPU.
    fn is_spent(&self, scan: &Scan, before: u64) -> bool {
        let share = self.clock.cycles(scan.every) / 100 * u64::from(scan.cpu_percent);
        scan.cpu_percent > 0 && self.clock.background.total() - before >= share
    }

    /// khugepaged: up to `regions` regions from where the last pass ended, each costing 512 units of the
    /// budget whether or not it is collapsed, each mapping that is passed over one. `true`: memory ran out.
    fn scan_by_address(&mut self, scan: &Scan) -> bool {
        let before = self.clock.background.total();
        let mut budget = scan.regions.saturating_mul(VISIT);
        let (mut process, mut page) = self.daemons.cursor;
        let mut wrapped = false;
        while budget >= VISIT && !self.is_spent(scan, before) {
            let Some((owner, region)) = self.next_region(&mut process, &mut page, &mut budget)
            else {
                if std::mem::replace(&mut wrapped, true) {
                    break;
                }
                (process, page) = (0, 0);
                continue;
            };
            budget = budget.saturating_sub(VISIT);
            self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
            (process, page) = (owner, (region + 1) << 9);
            let done = self.collapse(region, Self::fitness(scan), scan.effort, Payer::Daemon);
            if done == Collapsed::NoMemory {
                self.daemons.cursor = (process, page);
                return true;
            }
            if done != Collapsed::Yes {
                self.spaces.region(region).flags &= !ACCESSED;
            }
        }
        self.daemons.cursor = (process, page);
        false
    }

    /// The next region at or after (process, page) that lies wholly in a mapping of a kind that is scanned.
    fn next_region(
        &self,
        process: &mut u32,
        page: &mut u32,
        budget: &mut u32,
    ) -> Option<(u32, u32)> {
        for (&number, space) in self.spaces.processes.range(*process..) {
            let from = if number == *process { *page } else { 0 };
            let start = space.find(Page(from)).map_or(from, |(first, _)| first);
            for (&first, mapping) in space.mappings.range(start..) {
                let window = first.max(from).next_multiple_of(SLOTS);
                let fits = window + SLOTS <= mapping.end
                    && mapping.is_anonymous()
                    && mapping.pool.is_none()
                    && self.is_eligible(*mapping);
                if fits {
                    return Some((number, window >> 9));
                }
                *budget = budget.saturating_sub(1);
            }
        }
        *process = 0;
        *page = 0;
        None
    }

    /// Ingens: the regions whose population crossed the threshold, first come first served. `true`: out of memory.
    fn serve_candidates(&mut self, scan: &Scan) -> bool {
        // It works on until the list is empty; here one at a time, so that the program's clock goes on too.
        while let Some(region) = self.daemons.candidates.pop_front() {
            self.spaces.region(region).flags &= !LISTED;
            self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
            let fitness = Fitness { least_present: scan.least_present, referenced: false };
            match self.collapse(region, fitness, scan.effort, Payer::Daemon) {
                Collapsed::NoMemory => return true,
                Collapsed::Yes => break,
                Collapsed::Unfit => {}
            }
        }
        false
    }

    /// HawkEye: the highest bin of access coverage, over all processes or in the one that suffers most.
    fn scan_by_access(&mut self, scan: &Scan) -> bool {
        let before = self.clock.background.total();
        let mut candidates = self.candidates_by_process();
        if scan.order == ScanOrder::Overhead {
            let Some(process) = self.most_overhead(&candidates) else { return false };
            self.daemons.served.insert(process, self.clock.now());
            candidates.retain(|&number, _| number == process);
        }
        let mut all: Vec<u32> = candidates.into_values().flatten().collect();
        // The highest bin first; in a bin the one that was put there last, at its head: the highest address.
        all.sort_unstable_by_key(|&region| {
            std::cmp::Reverse((bin(self.spaces.regions[region as usize].coverage), region))
        });
        let most = if scan.regions == 0 { usize::MAX } else { scan.regions as usize };
        for region in all.into_iter().take(most) {
            if self.is_spent(scan, before) {
                break;
            }
            let fitness = Fitness { least_present: scan.least_present, referenced: false };
            match self.collapse(region, fitness, scan.effort, Payer::Daemon) {
                Collapsed::NoMemory => return true,
                Collapsed::Yes => {}
                // Failures go back to bin 0.
                Collapsed::Unfit => self.spaces.region(region).coverage = 0,
            }
        }
        false
    }

    fn candidates_by_process(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (region, at) in (0..).zip(self.spaces.regions.iter()) {
            if at.coverage > 0 && at.place != NO_TABLE && !self.spaces.is_large(region) {
                found.entry(at.process).or_default().push(region);
            }
        }
        found
    }

    /// The process with the largest share of its time in walks that has enough candidates; among equals
    /// the one served longest ago.
    fn most_overhead(&self, candidates: &BTreeMap<u32, Vec<u32>>) -> Option<u32> {
        let enough = |regions: &Vec<u32>| {
            let good =
                regions.iter().filter(|&&at| bin(self.spaces.regions[at as usize].coverage) > 1);
            good.count() >= LEAST_CANDIDATES
        };
        let able =
            candidates.iter().filter(|(_, regions)| enough(regions)).map(|(&number, _)| number);
        able.max_by_key(|number| {
            let served = self.daemons.served.get(number).copied().unwrap_or(0);
            let (walks, all) = self.spaces.processes.get(number).map_or((0, 1), |own| own.overhead);
            (walks * 1000 / all.max(1), std::cmp::Reverse(served), std::cmp::Reverse(*number))
        })
    }

    /// Clears accessed bits, and after the window counts those that were set again.
    pub(crate) fn sample(&mut self) -> Next {
        let sampling = self.design.mapping.scan.as_ref().and_then(|scan| scan.sampling.clone());
        let Some(sampling) = sampling else { return Next::Period };
        let before = self.clock.background.total();
        match self.daemons.sampling.take() {
            None => {
                self.clear_accessed();
                self.daemons.sampling = Some(self.clock.now());
                Next::After(self.clock.cycles(sampling.window))
            }
            Some(_) => {
                self.count_accessed(u32::from(sampling.newest_percent));
                let busy = self.clock.background.total() - before;
                Next::After((SAMPLE_REST * busy).max(self.clock.cycles(sampling.every)))
            }
        }
    }

    fn clear_accessed(&mut self) {
        for region in 0..self.spaces.regions.len() {
            let table = self.spaces.regions[region].place;
            if table == NO_TABLE || self.spaces.is_large(region as u32) {
                continue;
            }
            for entry in self.spaces.tables.table_mut(table) {
                *entry = entry.without(Entry::ACCESSED);
            }
            self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        }
        // Entries that stay in a TLB are not walked to again: without this they would look unused.
        self.spaces.shoot.push(super::spaces::Shoot::All);
        for process in self.spaces.processes.values_mut() {
            process.overhead = (0, 0);
        }
    }

    fn count_accessed(&mut self, newest: u32) {
        for region in 0..self.spaces.regions.len() {
            let table = self.spaces.regions[region].place;
            if table == NO_TABLE || self.spaces.is_large(region as u32) {
                continue;
            }
            let entries = self.spaces.tables.table(table);
            let accessed = entries.iter().filter(|entry| entry.has(Entry::ACCESSED)).count() as u32;
            let at = self.spaces.regions.extend(region);
            at.coverage =
                ((u32::from(at.coverage) * (100 - newest) + accessed * newest) / 100) as u16;
            self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        }
    }
}

/// The bin of a coverage: the logarithm, rounded up (HawkEye's code; its paper has ten equal bins).
fn bin(coverage: u16) -> u32 {
    u32::from(coverage).next_power_of_two().ilog2()
}
