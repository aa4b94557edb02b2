//! Scans that make superpages: by address (khugepaged), by population (Ingens), by recent access
//! (HawkEye).

use std::collections::BTreeMap;

use design::{Scan, ScanOrder};
use trace::{Page, SLOTS};

use super::System;
use super::allocate::Payer;
use super::collapse::{Collapsed, Fitness};
use super::daemons::{Next, Pass};
use super::region::{ACCESSED, Entry, LISTED, NO_TABLE};
use crate::Cause;

/// Entries that a visit of a region costs of a scan's budget, collapsed or not (`HPAGE_PMD_NR`).
const VISIT: u32 = SLOTS;
/// Candidates that a process has at least, for HawkEye to serve it.
const LEAST_CANDIDATES: usize = 8;
/// The share of one CPU that sampling may use: it sleeps 19 times as long as it worked (HawkEye, code).
const SAMPLE_REST: u64 = 19;

/// What became of a visit to regions in the order of their addresses.
enum Visited {
    /// A superpage was made.
    Made,
    /// None was to be had.
    NoMemory,
    /// The piece of work is long enough.
    Paused,
    /// The budget is used up, or nothing is left.
    Spent,
}

impl System {
    /// A piece of a pass of the design's scan.
    pub(crate) fn scan(&mut self, pass: &mut Pass) -> Next {
        let Some(scan) = self.design.mapping.scan.clone() else { return Next::Period };
        match scan.order {
            ScanOrder::Address => self.scan_by_address(&scan, pass),
            ScanOrder::Crossing => self.serve_candidates(&scan, pass),
            ScanOrder::Coverage | ScanOrder::Overhead => self.scan_by_access(&scan, pass),
        }
    }

    /// The pass ends because no superpage was to be had.
    fn after_failure(&self, scan: &Scan) -> Next {
        match self.clock.cycles(scan.after_failure) {
            0 => Next::Period,
            rest => Next::After(rest),
        }
    }

    fn fitness(scan: &Scan) -> Fitness {
        Fitness { least_present: scan.least_present, referenced: scan.referenced }
    }

    /// Whether a pass has used up its share of a CPU.
    fn is_spent(&self, scan: &Scan, pass: &Pass) -> bool {
        let share = self.clock.cycles(scan.every) / 100 * u64::from(scan.cpu_percent);
        scan.cpu_percent > 0 && pass.spent + self.spent_in_piece() >= share
    }

    /// khugepaged: up to `regions` regions from where the last pass ended.
    fn scan_by_address(&mut self, scan: &Scan, pass: &mut Pass) -> Next {
        if pass.began.is_none() {
            pass.budget = scan.regions.saturating_mul(VISIT);
        }
        loop {
            match self.visit(scan, pass) {
                Visited::Made => {}
                Visited::NoMemory => return self.after_failure(scan),
                Visited::Paused => return Next::More,
                Visited::Spent => return Next::Period,
            }
        }
    }

    /// Looks at regions from the cursor on, until one is made a superpage. Each costs 512 units of the budget
    /// whether or not it is collapsed, each mapping that is passed over one.
    fn visit(&mut self, scan: &Scan, pass: &mut Pass) -> Visited {
        while pass.budget >= VISIT && !self.is_spent(scan, pass) {
            if self.is_piece_done() {
                return Visited::Paused;
            }
            let (mut process, mut page) = self.daemons.cursor;
            let found = self.next_region(&mut process, &mut page, &mut pass.budget);
            let Some((owner, region)) = found else {
                if std::mem::replace(&mut pass.wrapped, true) {
                    break;
                }
                self.daemons.cursor = (0, 0);
                continue;
            };
            pass.budget = pass.budget.saturating_sub(VISIT);
            self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
            self.daemons.cursor = (owner, (region + 1) << 9);
            match self.collapse(region, Self::fitness(scan), scan.effort, Payer::Daemon) {
                Collapsed::Yes => return Visited::Made,
                Collapsed::NoMemory => return Visited::NoMemory,
                Collapsed::Unfit => self.spaces.region(region).flags &= !ACCESSED,
            }
        }
        Visited::Spent
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

    /// Ingens: the regions whose population crossed the threshold, first come first served. Each is where the scan
    /// by address goes on from, so one that does not qualify any more costs a look at those behind it.
    ///
    /// The thread works until nobody waits, then sleeps for the whole period: the fault path does wake it, but
    /// `khugepaged_wait_work` waits for the kernel thread to be stopped, and sleeps on. After a failure it does not
    /// wait for anything in particular, and the next candidate ends its sleep (`khugepaged_alloc_sleep`).
    /// A second failure ends the round, and with it the memory of the first.
    fn serve_candidates(&mut self, scan: &Scan, pass: &mut Pass) -> Next {
        self.daemons.naps_with = usize::MAX;
        if self.is_spent(scan, pass) {
            return Next::Period;
        }
        let waiting = !self.daemons.candidates.is_empty();
        if pass.budget < VISIT {
            if pass.began.is_some() && !waiting {
                return Next::Period;
            }
            (pass.budget, pass.wrapped) = (scan.regions.saturating_mul(VISIT), false);
            pass.failed = false;
        }
        if let Some(region) = self.daemons.candidates.pop_front() {
            self.spaces.region(region).flags &= !LISTED;
            self.daemons.cursor = (self.spaces.regions[region as usize].process, region << 9);
        }
        match self.visit(scan, pass) {
            Visited::Made | Visited::Paused => Next::More,
            Visited::NoMemory if !std::mem::replace(&mut pass.failed, true) => {
                self.daemons.naps_with = self.daemons.candidates.len();
                Next::Pause(self.clock.cycles(scan.after_failure))
            }
            Visited::NoMemory | Visited::Spent => {
                pass.budget = 0;
                Next::More
            }
        }
    }

    /// HawkEye: the highest bin of access coverage, over all processes or in the one that suffers most.
    fn scan_by_access(&mut self, scan: &Scan, pass: &mut Pass) -> Next {
        if pass.began.is_none() {
            pass.chosen = self.choose_by_access(scan);
        }
        while let Some(region) = pass.chosen.pop() {
            if self.is_spent(scan, pass) {
                break;
            }
            let fitness = Fitness { least_present: scan.least_present, referenced: false };
            match self.collapse(region, fitness, scan.effort, Payer::Daemon) {
                Collapsed::NoMemory => return self.after_failure(scan),
                Collapsed::Yes => {}
                // Failures go back to bin 0.
                Collapsed::Unfit => self.spaces.region(region).coverage = 0,
            }
            if self.is_piece_done() {
                return Next::More;
            }
        }
        Next::Period
    }

    /// The regions of a pass, the first one last.
    fn choose_by_access(&mut self, scan: &Scan) -> Vec<u32> {
        let mut candidates = self.candidates_by_process();
        if scan.order == ScanOrder::Overhead {
            let Some(process) = self.most_overhead(&candidates) else { return Vec::new() };
            self.daemons.served.insert(process, self.clock.now());
            candidates.retain(|&number, _| number == process);
        }
        let mut all: Vec<u32> = candidates.into_values().flatten().collect();
        // The highest bin first; in a bin the one that was put there last, at its head: the highest address.
        all.sort_unstable_by_key(|&region| {
            (bin(self.spaces.regions[region as usize].coverage), region)
        });
        let most = if scan.regions == 0 { usize::MAX } else { scan.regions as usize };
        all.drain(..all.len().saturating_sub(most));
        all
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
        match self.daemons.sampling.take() {
            None => {
                self.clear_accessed();
                self.daemons.sampling = Some(self.clock.now());
                Next::After(self.clock.cycles(sampling.window))
            }
            Some(_) => {
                self.count_accessed(u32::from(sampling.newest_percent));
                let busy = self.spent_in_piece();
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
