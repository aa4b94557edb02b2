//! Mapping (event 3) after the fault: scans that make superpages by copying. They take candidates by address
//! (khugepaged), by population (Ingens) or by recent accesses (HawkEye). See docs/decisions/lab-model.md#7.

use core::cmp::Reverse;

use crate::action::{Candidates, How, ScanAction, Wait};
use crate::daemon::{Daemon, Pass};
use crate::event::Result;
use crate::rules::{CleanPages, Effort, Scan, ScanOrder};
use crate::{Action, Condition, DaemonAction, Facts, Policy, Population, Region, Rule};

/// Units of a scan's budget that visiting a region costs, collapsed or not (HPAGE_PMD_NR).
const VISIT: u32 = 512;
/// HawkEye serves only processes with at least this many candidates.
const MIN_CANDIDATES: usize = 8;
/// Ratio of sleep to work while sampling, so that sampling uses a twentieth of one CPU (HawkEye,
/// code).
const SAMPLE_REST: u64 = 19;

impl Policy {
    /// Returns the first action of a piece of a scan's pass.
    pub(crate) fn scan_begins(&mut self, facts: &Facts) -> DaemonAction {
        let Some(scan) = &self.rules.mapping.scan else { return DaemonAction::Wait(Wait::Period) };
        if self.scanned_sizes().is_empty() {
            // khugepaged makes only PMD-sized superpages, and does not run if they are disabled (Linux:
            // hugepage_pmd_enabled).
            return DaemonAction::Wait(Wait::Period);
        }
        let (order, regions) = (scan.order, scan.regions);
        let budget = regions.saturating_mul(VISIT);
        match order {
            ScanOrder::Address => {
                if !self.pass().has_begun {
                    *self.pass() = Pass { budget, ..Pass::default() };
                }
                self.next_by_address(facts)
            }
            ScanOrder::Crossing => self.serve(budget, facts),
            _ if self.pass().has_begun => self.next_best(facts),
            ScanOrder::Coverage | ScanOrder::Misses | ScanOrder::Overhead => {
                let one_process = order == ScanOrder::Overhead;
                DaemonAction::Scan(ScanAction::Rank { most: regions, one_process })
            }
        }
    }

    /// Returns the next action after a visit or the ranking.
    pub(crate) fn scanned(
        &mut self,
        action: ScanAction,
        result: Result,
        cost: u32,
        facts: &Facts,
    ) -> DaemonAction {
        let Some(scan) = &self.rules.mapping.scan else { return DaemonAction::Wait(Wait::Period) };
        match scan.order {
            ScanOrder::Address => self.visited(action, result, cost, facts),
            ScanOrder::Crossing => self.served(action, result, cost, facts),
            ScanOrder::Coverage | ScanOrder::Misses | ScanOrder::Overhead => match result {
                Result::NoMemory => self.after_failure(),
                Result::Nothing => DaemonAction::Wait(Wait::Period),
                _ if matches!(action, ScanAction::Visit(_)) && facts.machine.is_piece_done => {
                    DaemonAction::Wait(Wait::More)
                }
                _ => self.next_best(facts),
            },
        }
    }

    fn pass(&mut self) -> &mut Pass {
        &mut self.passes[Daemon::Scan as usize]
    }

    /// Visits the next region by address. A region costs 512 units of the budget whether or not it is collapsed; a
    /// skipped mapping costs one unit.
    fn next_by_address(&mut self, facts: &Facts) -> DaemonAction {
        if self.pass().budget < VISIT || self.is_spent(facts) {
            return DaemonAction::Wait(self.rest(facts));
        }
        if facts.machine.is_piece_done {
            return DaemonAction::Wait(Wait::More);
        }
        DaemonAction::Scan(ScanAction::Visit(Candidates::Next))
    }

    fn visited(
        &mut self,
        action: ScanAction,
        result: Result,
        cost: u32,
        facts: &Facts,
    ) -> DaemonAction {
        self.charge(action, result, cost);
        match result {
            Result::NoMemory => self.after_failure(),
            Result::Nothing if core::mem::replace(&mut self.pass().wrapped, true) => {
                DaemonAction::Wait(Wait::Period)
            }
            Result::Nothing => DaemonAction::Scan(ScanAction::Rewind),
            _ => self.next_by_address(facts),
        }
    }

    /// Charges a visit to the budget. An extent larger than a superpage costs as much as the superpages that fit in it
    /// (Trident: khugepaged_scan_mm_slot), whether visited whole or in parts.
    fn charge(&mut self, action: ScanAction, result: Result, cost: u32) {
        if let ScanAction::Visit(_) = action {
            let largest = self.scanned_sizes().above(self.scale.superpage).largest();
            let whole = VISIT << largest.map_or(0, |order| order - self.scale.superpage);
            let visit = if result == Result::Nothing { 0 } else { whole };
            let budget = &mut self.pass().budget;
            *budget = budget.saturating_sub(cost).saturating_sub(visit);
        }
    }

    /// Ingens: visits the regions whose population crossed the threshold, first come first served. The scan by address
    /// continues from each such region, so a region that no longer qualifies costs visits of the regions after it.
    ///
    /// Ingens' thread works until no candidate is left, then sleeps for the whole period. The fault path wakes the
    /// thread, but `khugepaged_wait_work` goes back to sleep unless the thread is being stopped. After a failed
    /// allocation there is no such check, so the next candidate ends the sleep (`khugepaged_alloc_sleep`). A second
    /// failure ends the round and clears the record of the first.
    fn serve(&mut self, budget: u32, facts: &Facts) -> DaemonAction {
        if self.is_spent(facts) {
            return DaemonAction::Wait(self.rest(facts));
        }
        let pass = self.pass();
        if pass.budget < VISIT {
            if pass.has_begun && facts.machine.waiting == 0 {
                return DaemonAction::Wait(Wait::Period);
            }
            (pass.budget, pass.wrapped, pass.failed) = (budget, false, false);
        }
        DaemonAction::Scan(ScanAction::Visit(Candidates::Listed))
    }

    fn served(
        &mut self,
        action: ScanAction,
        result: Result,
        cost: u32,
        facts: &Facts,
    ) -> DaemonAction {
        self.charge(action, result, cost);
        let is_spent = self.is_spent(facts);
        let after_failure = self.after_failure_ticks();
        let pass = self.pass();
        match result {
            Result::Nothing if !core::mem::replace(&mut pass.wrapped, true) => {
                return DaemonAction::Scan(ScanAction::Rewind);
            }
            Result::NoMemory if !core::mem::replace(&mut pass.failed, true) => {
                return DaemonAction::Wait(Wait::Pause(after_failure));
            }
            Result::Nothing | Result::NoMemory => pass.budget = 0,
            // A superpage was made.
            Result::Done { .. } if action != ScanAction::Rewind => {}
            _ if pass.budget < VISIT || is_spent => pass.budget = 0,
            _ if facts.machine.is_piece_done => {}
            _ => return DaemonAction::Scan(ScanAction::Visit(Candidates::Next)),
        }
        DaemonAction::Wait(Wait::More)
    }

    fn next_best(&self, facts: &Facts) -> DaemonAction {
        match self.is_spent(facts) {
            true => DaemonAction::Wait(self.rest(facts)),
            false => DaemonAction::Scan(ScanAction::Visit(Candidates::Best)),
        }
    }

    /// Whether the pass has used up its share of a CPU.
    fn is_spent(&self, facts: &Facts) -> bool {
        let Some(scan) = &self.rules.mapping.scan else { return true };
        let share = self.scale.ticks_of(scan.every) / 100 * u64::from(scan.cpu_percent);
        scan.cpu_percent > 0 && facts.machine.spent >= share
    }

    /// The rest after a pass that used more than its share of a CPU, as long as its share asks for: a superpage may take
    /// longer than the share of a period (HawkEye: ohp_sleep_iteration).
    fn rest(&self, facts: &Facts) -> Wait {
        let Some(scan) = &self.rules.mapping.scan else { return Wait::Period };
        let (spent, share) = (facts.machine.spent, u64::from(scan.cpu_percent));
        match spent.saturating_mul(100).checked_div(share) {
            Some(period) if period > self.scale.ticks_of(scan.every) => Wait::After(period - spent),
            _ => Wait::Period,
        }
    }

    /// Ends the pass because no superpage was available.
    fn after_failure(&self) -> DaemonAction {
        DaemonAction::Wait(match self.after_failure_ticks() {
            0 => Wait::Period,
            rest => Wait::After(rest),
        })
    }

    fn after_failure_ticks(&self) -> u64 {
        let scan = self.rules.mapping.scan.as_ref();
        scan.map_or(0, |scan| self.scale.ticks_of(scan.after_failure))
    }

    /// Decides whether to inspect a region: the checks of `hpage_collapse_scan_pmd` that need no
    /// page table.
    pub(crate) fn collapsible(&self, requested: bool, facts: &Facts) -> Action {
        let (least, referenced) = match &self.rules.mapping.scan {
            Some(scan) if !requested => (scan.least_present, scan.referenced && by_place(scan)),
            _ => (1, false),
        };
        let region = &facts.region;
        let order = facts.extent.order;
        let is_larger = order > self.scale.superpage;
        let populated =
            if is_larger { facts.extent.populated } else { u32::from(region.populated) };
        // An extent larger than a superpage may contain private superpages (Trident:
        // khugepaged_scan_pud).
        let is_smaller = match region.superpage {
            None => region.has_table,
            Some(page) => is_larger && self.size(page.order) < order && !page.zeros && !page.cow,
        };
        let fits = is_smaller
            && !region.has_cow
            && !region.is_protected
            && populated >= u32::from(least.max(1))
            && (region.accessed || !referenced)
            && region.inside
            && !region.is_pooled
            && facts.mapping.backing.is_anonymous()
            && self.is_eligible(&facts.mapping);
        match fits {
            true => Action::Inspect,
            false if is_larger => self.consider_below(order),
            false => Action::Nothing,
        }
    }

    /// Decides whether to collapse a region whose page table was read.
    pub(crate) fn collapse(&self, requested: bool, facts: &Facts) -> Action {
        let region = &facts.region;
        let order = self.size(facts.extent.order);
        let is_larger = order > self.scale.superpage;
        let (effort, exclusive, most_swapped) = match &self.rules.mapping.scan {
            // In an extent larger than a superpage, no page may be swapped out (Trident:
            // khugepaged_scan_pud).
            Some(scan) if !requested && is_larger => (scan.effort, scan.exclusive, 0),
            Some(scan) if !requested => (scan.effort, scan.exclusive, scan.most_swapped),
            _ => (Effort::DirectRetry, false, u16::MAX),
        };
        let fits = facts.mapping.writable
            && region.has_writable
            && !region.has_shared
            && region.swapped <= most_swapped;
        if !fits && !is_larger {
            return Action::Nothing;
        }
        if !fits || !self.has_size(order) || !requested && !self.worth_copying(order, facts) {
            return self.consider_below(order);
        }
        Action::MakeSuperpage { order, how: How::Copy { exclusive }, effort }
    }

    /// Clears accessed bits; at the end of the window, counts the bits that were set again.
    pub(crate) fn sample(&mut self) -> DaemonAction {
        match self.rules.mapping.sampling() {
            None => DaemonAction::Wait(Wait::Period),
            Some(sampling) if self.is_sampling => {
                let newest_percent = sampling.newest_percent.into();
                DaemonAction::Scan(ScanAction::CountAccessed { newest_percent })
            }
            Some(_) => DaemonAction::Scan(ScanAction::ClearAccessed),
        }
    }

    /// Returns the next action after accessed bits were cleared or counted.
    pub(crate) fn sampled(&mut self, facts: &Facts) -> DaemonAction {
        let Some(sampling) = self.rules.mapping.sampling() else {
            return DaemonAction::Wait(Wait::Period);
        };
        self.is_sampling = !self.is_sampling;
        let rest = if self.is_sampling {
            self.scale.ticks_of(sampling.window)
        } else {
            (SAMPLE_REST * facts.machine.spent_in_piece).max(self.scale.ticks_of(sampling.every))
        };
        DaemonAction::Wait(Wait::After(rest))
    }

    /// Rank of a region for a scan by recent access, or by TLB misses (Elastic Translations: most misses first).
    /// `None`: not a candidate.
    pub fn rank(&self, region: &Region, misses: u32) -> Option<u32> {
        let scan = self.rules.mapping.scan.as_ref();
        let by_misses = scan.is_some_and(|scan| scan.order == ScanOrder::Misses);
        let heat = if by_misses { misses } else { region.coverage.into() };
        let is_candidate = heat > 0 && region.has_table && region.superpage.is_none();
        is_candidate.then(|| if by_misses { misses } else { bin(region.coverage) })
    }

    /// Rank of a process whose candidates have these ranks. The process with the largest share of time in page-table
    /// walks comes first; among equals, the process served longest ago. `None`: the process has too few candidates.
    pub fn rank_process(
        &self,
        ranks: impl Iterator<Item = u32>,
        process: &Process,
    ) -> Option<(u64, Reverse<u64>, Reverse<u32>)> {
        let good = ranks.filter(|&rank| rank > 1).take(MIN_CANDIDATES).count();
        let Process { walks_permille, served, number } = *process;
        (good == MIN_CANDIDATES).then_some((walks_permille, Reverse(served), Reverse(number)))
    }
}

/// A process, for a scan that serves one process at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Share of its time spent waiting for page-table walks, per mille.
    pub walks_permille: u64,
    /// Time at which it was last served, in ticks; 0: never.
    pub served: u64,
    /// The process's number.
    pub number: u32,
}

/// Whether a scan takes candidates by address or by arrival, rather than by accesses.
pub(crate) fn by_place(scan: &Scan) -> bool {
    matches!(scan.order, ScanOrder::Address | ScanOrder::Crossing)
}

/// The bin of a coverage: its binary logarithm, rounded up. (This is HawkEye's code; HawkEye's paper has ten equal
/// bins.)
fn bin(coverage: u16) -> u32 {
    u32::from(coverage).next_power_of_two().ilog2()
}

// FreeBSD's conditions for mapping a superpage in place, as pure functions: those of `pmap_promote_pde` and
// `vm_fault_soft_fast`.

/// The base mappings under a virtual superpage, as `pmap_promote_pde` finds them.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    /// The reservation is fully populated.
    pub full: bool,
    /// All 512 entries of the page-table page are valid. In a full reservation they are contiguous.
    pub mapped: bool,
    /// All entries have the same protection, wiring, cache mode and so on.
    pub uniform: bool,
    /// All entries have their accessed bit set, or the design ignores accessed bits.
    pub accessed: bool,
    /// The mapping permits writes.
    pub writable: bool,
    /// The pages that were written through these entries.
    pub dirty: &'a Population,
}

/// A soft fault on a page whose physical superpage may be fully resident, as `vm_fault_soft_fast`
/// finds it.
#[derive(Debug, Clone, Copy)]
pub struct SoftFault<'a> {
    /// The reservation is fully populated.
    pub full: bool,
    /// All pages have their contents.
    pub valid: bool,
    /// The mapping holds the whole virtual superpage.
    pub inside: bool,
    /// Virtual and physical address have the same offset in a superpage.
    pub congruent: bool,
    /// The mapping is wired (locked in memory).
    pub wired: bool,
    /// The mapping permits writes.
    pub writable: bool,
    /// A page is busy.
    pub busy: bool,
    /// The pages that any mapping has dirtied.
    pub dirty: &'a Population,
    /// Index of the faulting page.
    pub slot: u16,
    /// The object is anonymous and has no backing object to copy from.
    pub anonymous: bool,
}

/// The resulting superpage mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promotion {
    /// Writable, and dirty from the start: FreeBSD has no writable clean superpage.
    ReadWrite,
    /// Read-only; if the mapping permits writes, the first write demotes it.
    ReadOnly,
    /// No superpage is mapped.
    None(Refused),
}

/// Why no superpage is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The reservation is not fully populated.
    NotFull,
    /// Not all base pages are mapped.
    NotMapped,
    /// The entries' attributes differ.
    NotUniform,
    /// A page that a fault on another page mapped has not been accessed since.
    NotAccessed,
    /// Some pages are dirty and some are clean. The clean pages are now write-protected, and the next write to one of
    /// them tries again.
    MixedDirty,
    /// A page has no contents yet.
    NotValid,
    /// The virtual superpage extends past the mapping.
    NotInside,
    /// Virtual and physical address have different offsets in a superpage.
    NotCongruent,
    /// The mapping is wired.
    Wired,
    /// A page is busy.
    Busy,
    /// A page other than the faulting one is clean.
    NotDirty,
}

/// Decides on in-place promotion after a base page was mapped (`pmap_promote_pde`).
///
/// FreeBSD first write-protects writable clean entries, so the entries must be all dirty or all clean to agree.
/// Quicksilver's relaxed rule changes [`direct`], not this function.
pub fn promotion(pages: &Pages) -> Promotion {
    let clean = pages.dirty == &[0; 8];
    let dirty = pages.dirty == &[!0; 8];
    match pages {
        Pages { full: false, .. } => Promotion::None(Refused::NotFull),
        Pages { mapped: false, .. } => Promotion::None(Refused::NotMapped),
        Pages { uniform: false, .. } => Promotion::None(Refused::NotUniform),
        Pages { accessed: false, .. } => Promotion::None(Refused::NotAccessed),
        // A read-only entry has no dirty bit.
        Pages { writable: false, .. } => Promotion::ReadOnly,
        _ if dirty => Promotion::ReadWrite,
        _ if clean => Promotion::ReadOnly,
        _ => Promotion::None(Refused::MixedDirty),
    }
}

/// Decides whether a soft fault maps a superpage at once, without mapping its base pages first (`vm_fault_soft_fast`,
/// `vm_page_ps_test`).
///
/// Under [`CleanPages::Relaxed`], clean pages of anonymous objects do not prevent the mapping. This is `vm.relax` in
/// Quicksilver's released code; the slides say that the rule is for file-backed memory.
pub fn direct(fault: &SoftFault, clean_pages: CleanPages) -> Promotion {
    let mut dirty = *fault.dirty;
    dirty[usize::from(fault.slot / 64)] |= 1 << (fault.slot % 64);
    let relaxed = clean_pages == CleanPages::Relaxed && fault.anonymous;
    match fault {
        SoftFault { full: false, .. } => Promotion::None(Refused::NotFull),
        SoftFault { inside: false, .. } => Promotion::None(Refused::NotInside),
        SoftFault { congruent: false, .. } => Promotion::None(Refused::NotCongruent),
        SoftFault { wired: true, .. } => Promotion::None(Refused::Wired),
        SoftFault { valid: false, .. } => Promotion::None(Refused::NotValid),
        SoftFault { writable: false, .. } => Promotion::ReadOnly,
        SoftFault { busy: true, .. } => Promotion::None(Refused::Busy),
        _ if relaxed || dirty == [!0; 8] => Promotion::ReadWrite,
        _ => Promotion::None(Refused::NotDirty),
    }
}

// The conditions and thresholds that decide *whether* a design makes or keeps a superpage. Rules about timing, number
// and effort are not included. See docs/decisions/live.md#15.

/// Value of `most_swapped` that sets no limit.
const NO_LIMIT: u16 = 512;

/// A condition or threshold of a scan, a fault or a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion<'a> {
    /// The condition of a rule.
    Condition(Rule, &'a Condition),
    /// Minimum number of populated pages of a scan's candidate.
    LeastPresent(u16),
    /// Maximum number of swapped-out pages of a scan's candidate.
    MostSwapped(u16),
    /// The scan takes only regions with recent accesses or TLB misses, in this order.
    Accessed(ScanOrder),
}

impl Criterion<'_> {
    /// The criterion's key in a design file.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Condition(rule, _) => rule.key(),
            Self::LeastPresent(_) => "mapping.scan.least-present",
            Self::MostSwapped(_) => "mapping.scan.most-swapped",
            Self::Accessed(_) => "mapping.scan.order",
        }
    }
}

impl Policy {
    /// Returns the criteria by which the policy makes superpages; free memory and fit are not
    /// included.
    pub fn criteria(&self) -> impl Iterator<Item = Criterion<'_>> {
        let rules = &self.rules;
        let scan = rules.mapping.scan.as_ref();
        let conditions = [
            (Rule::Fault, rules.allocation.when.as_ref()),
            (Rule::Scan, scan.and_then(|scan| scan.when.as_ref())),
            (Rule::Split, rules.unmapping.when.as_ref()),
        ];
        let conditions = conditions
            .into_iter()
            .filter_map(|(rule, condition)| Some(Criterion::Condition(rule, condition?)));
        let thresholds = scan.into_iter().flat_map(|scan| {
            let swapped = scan.most_swapped < NO_LIMIT;
            let is_by_place = by_place(scan);
            [
                Some(Criterion::LeastPresent(scan.least_present.max(1))),
                swapped.then_some(Criterion::MostSwapped(scan.most_swapped)),
                (!is_by_place).then_some(Criterion::Accessed(scan.order)),
            ]
        });
        conditions.chain(thresholds.flatten())
    }
}
