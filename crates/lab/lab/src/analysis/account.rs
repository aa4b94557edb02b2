//! Groups of causes for tables, and figures of a run.

use mm_sim::{Cause, CycleCounts, Moment};
use serde::Serialize;

use crate::{Cell, End, Report};

/// A group of causes. Every cause is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Account {
    /// The program's own work.
    Work,
    /// Address translation: hits in the second-level TLB, and page walks.
    Translation,
    /// Faults, including preparing and mapping their pages.
    Faults,
    /// The cost of having free superpages: migration, reclaim, scanning, and waiting for them.
    Upkeep,
}

impl Account {
    /// All accounts, in display order.
    pub const ALL: [Self; 4] = [Self::Work, Self::Translation, Self::Faults, Self::Upkeep];

    /// Returns the account of a cause.
    pub const fn from_cause(cause: Cause) -> Self {
        match cause {
            Cause::Work => Self::Work,
            Cause::SecondTlb | Cause::WalkBase | Cause::WalkLarge => Self::Translation,
            Cause::Fault | Cause::Zero | Cause::Map | Cause::Read => Self::Faults,
            Cause::Copy
            | Cause::Compact
            | Cause::Reclaim
            | Cause::Shootdown
            | Cause::Lock
            | Cause::Scan => Self::Upkeep,
        }
    }

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Translation => "translation",
            Self::Faults => "faults",
            Self::Upkeep => "upkeep",
        }
    }

    /// Returns the account's cycles.
    pub fn cycles(self, ledger: &CycleCounts) -> u64 {
        Cause::ALL
            .iter()
            .filter(|one| Self::from_cause(**one) == self)
            .map(|one| ledger[*one])
            .sum()
    }

    /// Returns the account's share of all cycles, or `None` if there are no cycles.
    pub fn share(self, ledger: &CycleCounts) -> Option<f64> {
        let total = ledger.total();
        (total > 0).then(|| self.cycles(ledger) as f64 / total as f64)
    }
}

/// Figures of a run. Relative figures are computed against a base run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The design.
    pub design: String,
    /// Whether the program ended normally. Otherwise the figures cover the run up to the program's end.
    pub finished: bool,
    /// The program's wall-clock time.
    pub seconds: f64,
    /// Speed-up over the base run; above 1 is faster. `None` unless both runs finished.
    pub speedup: Option<f64>,
    /// Share of the program's cycles in translation.
    pub translation: Option<f64>,
    /// Share of the program's cycles in faults.
    pub faults: Option<f64>,
    /// Share of the program's cycles in upkeep.
    pub upkeep: Option<f64>,
    /// Maximum number of superpage mappings.
    pub superpages: u64,
    /// Superpages made in the run, by kind.
    pub made: Made,
    /// Share of resident memory on superpages, averaged over time.
    pub coverage: Option<f64>,
    /// Share of resident pages that the program touched, at the memory peak.
    pub utilisation: Option<f64>,
    /// Resident pages per touched page, at the memory peak; 1 means no waste.
    pub bloat: Option<f64>,
    /// CPU time of the daemons per second of the program.
    pub daemons: Option<f64>,
    /// 99th percentile of request latency, in microseconds.
    pub p99_microseconds: Option<f64>,
}

/// Superpages made, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Made {
    /// Mapped by a fault at once.
    pub at_fault: u64,
    /// Promoted in place when all their base pages were present.
    pub in_place: u64,
    /// Made by copying.
    pub by_copy: u64,
}

impl Made {
    /// Reads the counters of a report.
    pub fn from_report(report: &Report) -> Self {
        let counters = &report.counters;
        Self {
            at_fault: counters.made_at_fault,
            in_place: counters.made_in_place,
            by_copy: counters.made_by_copy,
        }
    }
    /// Returns the number of superpages of all kinds.
    pub fn total(self) -> u64 {
        self.at_fault + self.in_place + self.by_copy
    }
}

/// Computes the figures of `report`, relative to `base` if given.
pub fn figures(report: &Report, base: Option<&Report>) -> Figures {
    let resident = report.counters.resident_pages;
    // Pages that were only read map the shared zero page: they are touched but not resident.
    let touched = report.counters.touched_pages.map(|touched| touched.min(resident));
    Figures {
        design: report.cell.design.clone(),
        finished: report.end == End::Done,
        seconds: report.seconds(),
        speedup: base.and_then(|base| speedup(report, base)),
        translation: Account::Translation.share(&report.ledger),
        faults: Account::Faults.share(&report.ledger),
        upkeep: Account::Upkeep.share(&report.ledger),
        superpages: report.counters.superpages,
        made: Made::from_report(report),
        coverage: mean_coverage(report),
        utilisation: touched.and_then(|touched| ratio(touched, resident)),
        bloat: touched.and_then(|touched| ratio(resident, touched)),
        daemons: ratio(report.background.total(), report.wall_cycles),
        p99_microseconds: report.requests.as_ref().map(|requests| requests.p99),
    }
}

/// Returns the speed-up of a run over `base`, a ratio. `None` if either run did not end normally or took no time, or if
/// workloads or machines differ.
pub fn speedup(report: &Report, base: &Report) -> Option<f64> {
    let both = report.end == End::Done
        && base.end == End::Done
        && incomparable(&report.cell, &base.cell).is_none();
    let (time, base) = (report.seconds(), base.seconds());
    (both && time > 0.0 && base > 0.0).then(|| base / time)
}

/// Returns the difference in settings, other than the design, that makes the times of two runs incomparable.
pub fn incomparable(a: &Cell, b: &Cell) -> Option<&'static str> {
    let differs = [("workload", a.workload != b.workload), ("machine", a.machine != b.machine)];
    differs.into_iter().find_map(|(name, differs)| differs.then_some(name))
}

fn ratio(upper: u64, lower: u64) -> Option<f64> {
    (lower > 0).then(|| upper as f64 / lower as f64)
}

// Figures from a run's timeline: maximum number of superpages, time until they appeared, average coverage.

/// Base pages per superpage if a report gives no other number (trace::SLOTS).
pub(crate) const PAGES: u64 = trace::SLOTS as u64;

/// Returns the maximum number of superpages at any time of the run.
pub fn most_superpages(report: &Report) -> u64 {
    report.timeline.iter().map(|moment| moment.superpages).max().unwrap_or(0)
}

/// Returns the microseconds until `share` of the maximum number of superpages was first reached. `None` without
/// superpages.
pub fn time_until(report: &Report, share: f64) -> Option<u64> {
    let most = most_superpages(report);
    let wanted = (most as f64 * share).ceil() as u64;
    let there = |moment: &&Moment| moment.superpages >= wanted;
    (most > 0).then(|| report.timeline.iter().find(there).map(|moment| moment.microseconds))?
}

/// Returns the share of resident memory on superpages, averaged over time. `None` if no memory was ever resident.
pub fn mean_coverage(report: &Report) -> Option<f64> {
    let moments = &report.timeline;
    // Each sample of the time line (a moment) holds until the next; the last one holds until the run's end.
    let end = (report.seconds() * 1e6) as u64;
    let lasted = |index: usize| {
        let next = moments.get(index + 1).map_or(end, |next| next.microseconds);
        // If there is only one sample, it counts even if the run ended at the same microsecond.
        let least = u64::from(moments.len() == 1);
        next.saturating_sub(moments[index].microseconds).max(least)
    };
    let (mut covered, mut resident) = (0.0, 0.0);
    for (index, moment) in moments.iter().enumerate() {
        let time = lasted(index) as f64;
        let pages = report.superpage_pages.unwrap_or(PAGES);
        let smaller = moment.smaller_superpages;
        let on_superpages = moment.superpages.saturating_sub(smaller) * pages + smaller * PAGES;
        let superpages = on_superpages.min(moment.resident_pages);
        covered += superpages as f64 * time;
        resident += moment.resident_pages as f64 * time;
    }
    (resident > 0.0).then(|| covered / resident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_together_are_the_ledger() {
        let mut ledger = CycleCounts::default();
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            ledger.charge(cause, 1 << index);
        }
        let sum: u64 = Account::ALL.iter().map(|account| account.cycles(&ledger)).sum();
        assert_eq!(sum, ledger.total());
        assert_eq!(Account::Work.share(&CycleCounts::default()), None);
    }
}
