//! The same designs in the laboratory and live, side by side: how far simulated figures are from measured ones. Pure.
//!
//! A [`Validation`] is what was measured and simulated; speed-ups, errors and orders are computed from it again.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::Report;
use crate::analysis::{Account, most_superpages};
use crate::tables::typical;

/// The version of [`Validation`]'s layout.
pub const SCHEMA: &str = "superpage.validate/1";

/// Minimum ratio of two times to count as ordered.
const MIN_DIFFERENCE: f64 = 1.05;

/// Measured and simulated figures. `null` means unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// [`SCHEMA`].
    pub schema: String,
    /// The computer that the live runs were made on, in words.
    pub computer: String,
    /// The simulated machine.
    pub machine: String,
    /// Memory of the simulated machine, in bytes.
    #[serde(deserialize_with = "units::bytes")]
    pub memory_bytes: u64,
    /// Fragmentation, in both.
    pub fragmentation: String,
    /// The seed of both.
    pub seed: u64,
    /// Confidence of the intervals of live ratios.
    #[serde(deserialize_with = "units::share")]
    pub confidence: f64,
    /// By workload.
    pub workloads: Vec<Compared>,
}

/// One workload under several designs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Compared {
    /// As the laboratory had it.
    pub workload: String,
    /// The live command.
    pub command: Vec<String>,
    /// Live runs of each design.
    pub runs: u32,
    /// Designs; base pages first, as the reference.
    pub designs: Vec<Row>,
    /// Live ratios of designs to each other, by their places in `designs`.
    pub pairs: Vec<Pair>,
}

/// A design on a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Row {
    /// Its name.
    pub design: String,
    /// Measured.
    pub live: Side,
    /// Simulated, as it is written.
    pub lab: Side,
    /// Simulated as it was carried out live; `null` where that is as it is written.
    pub as_live: Option<AsLive>,
    /// What was done live about its rules.
    pub rules: Vec<String>,
    /// What is to be known of the live runs.
    pub notes: Vec<String>,
}

/// What carried a design out live, simulated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AsLive {
    /// What it does, in words.
    pub summary: String,
    /// The design that was simulated, as a file.
    pub design: String,
    /// Its figures.
    pub lab: Side,
}

/// Figures of a program, measured (medians) or simulated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Side {
    /// From its first allocation to the end of its timed phase.
    #[serde(deserialize_with = "units::elapsed")]
    pub seconds: f64,
    /// Of it, the timed phase.
    #[serde(deserialize_with = "units::seconds")]
    pub timed_seconds: Option<f64>,
    /// Its faults without I/O: live all of the process, with its start.
    #[serde(deserialize_with = "units::count")]
    pub faults: Option<f64>,
    /// Its time in the kernel: live all of the process.
    #[serde(deserialize_with = "units::seconds")]
    pub kernel_seconds: Option<f64>,
    /// CPU time of daemons that made superpages beside it; live only where superpage did.
    #[serde(deserialize_with = "units::seconds")]
    pub beside_seconds: Option<f64>,
    /// Maximum number of superpages.
    #[serde(deserialize_with = "units::count")]
    pub superpages: Option<f64>,
    /// When there were how many.
    pub steps: Vec<Step>,
}

/// The time from which there was this number of superpages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Time as a share of [`Side::seconds`].
    #[serde(deserialize_with = "units::share")]
    pub at: f64,
    /// Number of superpages.
    #[serde(deserialize_with = "units::count")]
    pub superpages: f64,
}

/// Live speed-up of a design over `than`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Pair {
    /// An index in [`Compared::designs`].
    pub than: usize,
    /// Another index.
    pub design: usize,
    /// The ratio of medians.
    #[serde(deserialize_with = "units::ratio")]
    pub ratio: f64,
    /// Confidence interval of the ratio.
    #[serde(deserialize_with = "units::ratio")]
    pub interval: Option<[f64; 2]>,
}

units::checked!(Compared, Row, Side, Pair);

/// `Ok` if it holds, else why not.
fn holds(condition: bool, why: impl Into<String>) -> Result<(), String> {
    if condition { Ok(()) } else { Err(why.into()) }
}

impl Side {
    fn check(&self) -> Result<(), String> {
        let steps = self.steps.iter().map(|step| step.at);
        holds(steps.is_sorted(), "steps are not in the order of `at`")
    }

    /// What a simulation says of itself. A live side's steps are those of one run, and `superpages` is a median.
    fn check_simulated(&self) -> Result<(), String> {
        let most = self.steps.iter().map(|step| step.superpages).reduce(f64::max);
        let has_most = most.is_none_or(|most| self.superpages == Some(most));
        holds(has_most, "superpages are not the most of any step")
    }
}

impl Row {
    fn check(&self) -> Result<(), String> {
        self.lab.check_simulated().map_err(|why| format!("lab: {why}"))?;
        let mut as_live = self.as_live.iter().map(|as_live| &as_live.lab);
        let why = |why| format!("as_live.lab: {why}");
        as_live.try_for_each(Side::check_simulated).map_err(why)
    }
}

impl Pair {
    fn check(&self) -> Result<(), String> {
        // Both are exponentials of logarithms.
        let has = |[low, high]: [f64; 2]| {
            low <= self.ratio * (1.0 + 1e-9) && self.ratio <= high * (1.0 + 1e-9)
        };
        holds(self.interval.is_none_or(has), "ratio is not inside interval")
    }
}

impl Compared {
    fn check(&self) -> Result<(), String> {
        holds(!self.designs.is_empty(), "designs is empty")?;
        for (place, row) in self.designs.iter().enumerate() {
            let same = self.designs[..place].iter().position(|other| other.design == row.design);
            let why = || format!("designs[{place}] has the name of designs[{}]", same.unwrap_or(0));
            holds(same.is_none(), why())?;
        }
        for (place, pair) in self.pairs.iter().enumerate() {
            let is_pair = pair.than < pair.design && pair.design < self.designs.len();
            let why = || {
                let (than, design, of) = (pair.than, pair.design, self.designs.len());
                format!("pairs[{place}] is of designs {than} and {design} of {of}")
            };
            holds(is_pair, why())?;
            let is_second = |other: &Pair| (other.than, other.design) == (pair.than, pair.design);
            let why = format!("pairs[{place}] is there twice");
            holds(!self.pairs[..place].iter().any(is_second), why)?;
        }
        Ok(())
    }
}

/// Agreement on the order of designs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Pairs whose simulated times differ by more than 5 %.
    pub pairs: usize,
    /// Pairs in the same order in the live runs.
    pub agree: usize,
    /// Pairs in the opposite order.
    pub disagree: usize,
    /// Pairs undecided: the interval of the ratio contains 1.
    pub undecided: usize,
}

/// How far the laboratory is off, over all workloads and designs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// The order of designs.
    pub order: Order,
    /// By what factor speed-ups over base pages are off, less one: the geometric mean, whichever way.
    pub error: Option<f64>,
    /// The same of base pages' times.
    pub base_error: Option<f64>,
}

impl Side {
    /// Of a report.
    pub fn from_report(report: &Report) -> Self {
        let seconds = |cycles: u64| cycles as f64 / (f64::from(report.mhz) * 1e6);
        let kernel = [Account::Faults, Account::Upkeep];
        let kernel: u64 = kernel.iter().map(|account| account.cycles(&report.ledger)).sum();
        let total = report.seconds();
        let step = |moment: &mm_sim::Moment| Step {
            at: (moment.microseconds as f64 / 1e6 / total).min(1.0),
            superpages: moment.superpages as f64,
        };
        let moments = match report.timeline.split_last() {
            // At its end its memory is freed.
            Some((last, before)) if last.resident_pages == 0 => before,
            _ => &report.timeline,
        };
        let timed = report.phases.iter().find(|phase| phase.name == "run");
        Self {
            seconds: total,
            timed_seconds: timed.map(|phase| seconds(phase.wall_cycles)),
            faults: Some(report.counters.faults as f64),
            kernel_seconds: Some(seconds(kernel)),
            beside_seconds: Some(seconds(report.background.total())),
            superpages: Some(most_superpages(report) as f64),
            steps: moments.iter().map(step).collect(),
        }
    }

    /// Speed-up over `base`: how many times as fast.
    pub fn speedup(&self, base: &Self) -> Option<f64> {
        (self.seconds > 0.0 && base.seconds > 0.0).then(|| base.seconds / self.seconds)
    }

    /// From which share of its time on it had half of the most superpages; `None` if it had none, or nobody saw.
    pub fn half_at(&self) -> Option<f64> {
        let most = self.steps.iter().map(|step| step.superpages).fold(0.0, f64::max);
        let there = |step: &&Step| step.superpages >= most / 2.0;
        (most > 0.0).then(|| self.steps.iter().find(there).map(|step| step.at))?
    }
}

impl Row {
    /// The figures of the laboratory that are nearest to what ran: as it was carried out live.
    pub fn simulated(&self) -> &Side {
        self.as_live.as_ref().map_or(&self.lab, |as_live| &as_live.lab)
    }
}

impl Compared {
    /// How far a simulated speed-up over base pages is from the measured one: 0.1 is 10 % more.
    pub fn error(&self, row: &Row, of: fn(&Row) -> &Side) -> Option<f64> {
        let base = self.designs.first()?;
        let (lab, live) = (of(row).speedup(of(base))?, row.live.speedup(&base.live)?);
        Some(lab / live - 1.0)
    }

    /// How far a simulation of the design at a place is off: base pages in their time, others in their speed-up.
    pub fn off(&self, place: usize, of: fn(&Row) -> &Side) -> Option<f64> {
        let row = self.designs.get(place)?;
        match place {
            0 => of(row).speedup(&row.live).map(|ratio| 1.0 / ratio - 1.0),
            _ => self.error(row, of),
        }
    }

    /// Live ratio of a design to base pages.
    pub fn against_base(&self, place: usize) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.than == 0 && pair.design == place)
    }

    fn order(&self, of: fn(&Row) -> &Side, order: &mut Order) {
        for pair in &self.pairs {
            let (Some(than), Some(design)) =
                (self.designs.get(pair.than), self.designs.get(pair.design))
            else {
                continue;
            };
            let Some(lab) = of(design).speedup(of(than)) else { continue };
            if lab.max(1.0 / lab) <= MIN_DIFFERENCE {
                continue;
            }
            order.pairs += 1;
            // Turned so that the laboratory's is above 1.
            let live = pair.interval.map(|[low, high]| match lab > 1.0 {
                true => [low, high],
                false => [1.0 / high, 1.0 / low],
            });
            match live {
                Some([low, _]) if low > 1.0 => order.agree += 1,
                Some([_, high]) if high < 1.0 => order.disagree += 1,
                _ => order.undecided += 1,
            }
        }
    }
}

impl Validation {
    /// How well designs as they are written agree.
    pub fn as_written(&self) -> Agreement {
        self.agreement(|row| &row.lab)
    }

    /// How well designs as they were carried out live agree.
    pub fn as_live(&self) -> Agreement {
        self.agreement(Row::simulated)
    }

    fn agreement(&self, of: fn(&Row) -> &Side) -> Agreement {
        let mut order = Order::default();
        self.workloads.iter().for_each(|one| one.order(of, &mut order));
        let errors = self
            .workloads
            .iter()
            .flat_map(|one| one.designs.iter().skip(1).filter_map(move |row| one.error(row, of)));
        let errors: Vec<f64> = errors.map(|error| 1.0 + error).collect();
        let bases = self.workloads.iter().filter_map(|one| {
            let base = one.designs.first()?;
            of(base).speedup(&base.live)
        });
        Agreement { order, error: typical(errors.into_iter()), base_error: typical(bases) }
    }
}
