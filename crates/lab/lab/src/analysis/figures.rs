//! One run's figures, as a line of a table shows them.

use serde::Serialize;

use super::account::Account;
use super::timeline::mean_coverage;
use crate::{Cell, End, Report};

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
