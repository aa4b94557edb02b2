//! Causes in groups, as tables show them. Every cause is in exactly one.

use mm_sim::{Cause, CycleCounts, Moment};
use serde::Serialize;

use crate::{Cell, End, Report};

/// A group of causes. Every cause is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Account {
    /// The program's own work.
    Work,
    /// Address translation: the second TLB and page walks.
    Translation,
    /// Faults, with the preparation and mapping of what they ask for.
    Faults,
    /// What it takes to have free superpages: moving, reclaiming, scanning, and waiting for it.
    Upkeep,
}

impl Account {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Work, Self::Translation, Self::Faults, Self::Upkeep];

    /// The account that a cause belongs to.
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

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Translation => "translation",
            Self::Faults => "faults",
            Self::Upkeep => "upkeep",
        }
    }

    /// Its cycles in these counts.
    pub fn cycles(self, ledger: &CycleCounts) -> u64 {
        Cause::ALL
            .iter()
            .filter(|one| Self::from_cause(**one) == self)
            .map(|one| ledger[*one])
            .sum()
    }

    /// Its share of these counts; `None` where they are 0.
    pub fn share(self, ledger: &CycleCounts) -> Option<f64> {
        let total = ledger.total();
        (total > 0).then(|| self.cycles(ledger) as f64 / total as f64)
    }
}

// One run's figures, as a line of a table shows them.

/// A run in figures; everything that needs a base is computed against the run it was given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// The design.
    pub design: String,
    /// Whether the program came to its end; figures of a run that did not are of its part.
    pub finished: bool,
    /// The program's time.
    pub seconds: f64,
    /// How many times as fast as the base: above 1 is faster. `None` without two finished runs.
    pub speedup: Option<f64>,
    /// The share of the program's cycles in each account.
    pub translation: Option<f64>,
    /// The same, faults.
    pub faults: Option<f64>,
    /// The same, upkeep.
    pub upkeep: Option<f64>,
    /// Superpage mappings, at their most.
    pub superpages: u64,
    /// Those made in the run, by kind.
    pub made: Made,
    /// The share of resident memory on superpages, averaged over time.
    pub coverage: Option<f64>,
    /// The share of the resident pages that the program touched, at the peak.
    pub utilisation: Option<f64>,
    /// Resident pages for each page touched, at the peak: 1 wastes nothing.
    pub bloat: Option<f64>,
    /// CPU time of the daemons, for each second of the program.
    pub daemons: Option<f64>,
    /// 99 of 100 requests took at most this, in microseconds.
    pub p99_microseconds: Option<f64>,
}

/// Superpages that were made, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Made {
    /// Mapped by a fault at once.
    pub at_fault: u64,
    /// Mapped in place when their pages were prepared.
    pub in_place: u64,
    /// By copying into them.
    pub by_copy: u64,
}

impl Made {
    /// Of a report.
    pub fn from_report(report: &Report) -> Self {
        let counters = &report.counters;
        Self {
            at_fault: counters.made_at_fault,
            in_place: counters.made_in_place,
            by_copy: counters.made_by_copy,
        }
    }
    /// How many superpages of any kind.
    pub fn total(self) -> u64 {
        self.at_fault + self.in_place + self.by_copy
    }
}

/// The figures of `report`, beside `base` if there is one.
pub fn figures(report: &Report, base: Option<&Report>) -> Figures {
    let resident = report.counters.resident_pages;
    // Pages that were only read stand on the shared page of zeros: they are touched, and take nothing.
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

/// How many times as fast as `base` a run was. `None` if one of them did not come to its end, or took
/// no time, or if they ran different programs or machines: such times do not compare.
pub fn speedup(report: &Report, base: &Report) -> Option<f64> {
    let both = report.end == End::Done
        && base.end == End::Done
        && incomparable(&report.cell, &base.cell).is_none();
    let (time, base) = (report.seconds(), base.seconds());
    (both && time > 0.0 && base > 0.0).then(|| base / time)
}

/// What of two runs is so different that their times do not compare, whatever the designs.
pub fn incomparable(a: &Cell, b: &Cell) -> Option<&'static str> {
    let differs = [("workload", a.workload != b.workload), ("machine", a.machine != b.machine)];
    differs.into_iter().find_map(|(name, differs)| differs.then_some(name))
}

fn ratio(upper: u64, lower: u64) -> Option<f64> {
    (lower > 0).then(|| upper as f64 / lower as f64)
}

// What a run's moments tell: how many superpages there were at most, when they came, and how much of
// the resident memory they covered over time.

/// Base pages in a superpage where a report says nothing else (trace::SLOTS).
pub(crate) const PAGES: u64 = trace::SLOTS as u64;

/// The most superpages at any moment.
pub fn most_superpages(report: &Report) -> u64 {
    report.timeline.iter().map(|moment| moment.superpages).max().unwrap_or(0)
}

/// Microseconds until a share of the most superpages was there for the first time. `None` if there
/// never was one.
pub fn time_until(report: &Report, share: f64) -> Option<u64> {
    let most = most_superpages(report);
    let wanted = (most as f64 * share).ceil() as u64;
    let there = |moment: &&Moment| moment.superpages >= wanted;
    (most > 0).then(|| report.timeline.iter().find(there).map(|moment| moment.microseconds))?
}

/// The share of resident memory that superpages covered, averaged over time. `None` if nothing was
/// resident at any moment.
pub fn mean_coverage(report: &Report) -> Option<f64> {
    let moments = &report.timeline;
    // Each moment holds until the next, the last one until the run's end.
    let end = (report.seconds() * 1e6) as u64;
    let lasted = |index: usize| {
        let next = moments.get(index + 1).map_or(end, |next| next.microseconds);
        // A run of one moment is that moment, however short.
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
