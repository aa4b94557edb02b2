//! Compares the same designs in the laboratory and live. Pure.
//!
//! A [`Validation`] contains measured and simulated figures; speed-ups, errors and orders are computed from them.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::Report;
use crate::analysis::{Account, most_superpages};
use crate::tables::typical;

/// The version of [`Validation`]'s layout.
pub const SCHEMA: &str = "superpage.validate/1";

/// Minimum ratio of two times for a defined order.
const MIN_DIFFERENCE: f64 = 1.05;

/// Measured and simulated figures. `null` means unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// [`SCHEMA`].
    pub schema: String,
    /// Description of the computer of the live runs.
    pub computer: String,
    /// The simulated machine.
    pub machine: String,
    /// Memory of the simulated machine, in bytes.
    #[serde(deserialize_with = "units::bytes")]
    pub memory_bytes: u64,
    /// Fragmentation, live and simulated.
    pub fragmentation: String,
    /// Seed, live and simulated.
    pub seed: u64,
    /// Confidence level of the intervals of live ratios.
    #[serde(deserialize_with = "units::share")]
    pub confidence: f64,
    /// By workload.
    pub workloads: Vec<Compared>,
}

/// One workload under several designs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Compared {
    /// Workload in the laboratory.
    pub workload: String,
    /// Fragmentation, live and simulated; `None`: the one of the [`Validation`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragmentation: Option<String>,
    /// The live command.
    pub command: Vec<String>,
    /// Live runs of each design.
    pub runs: u32,
    /// Designs; base pages first, as the reference.
    pub designs: Vec<Row>,
    /// Live ratios between designs, by their indices in `designs`.
    pub pairs: Vec<Pair>,
}

/// A design on a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Row {
    /// Its name.
    pub design: String,
    /// Measured figures.
    pub live: Side,
    /// Figures simulated from the design as written.
    pub lab: Side,
    /// Figures simulated from the design as it ran live; `null` if it ran as written.
    pub as_live: Option<AsLive>,
    /// How the live run applied each rule.
    pub rules: Vec<String>,
    /// Notes on the live runs.
    pub notes: Vec<String>,
}

/// Simulation of the design as it ran live.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AsLive {
    /// Description.
    pub summary: String,
    /// The simulated design, as a file.
    pub design: String,
    /// Simulated figures.
    pub lab: Side,
}

/// Figures of a program, measured (medians) or simulated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Side {
    /// Seconds from the first allocation to the end of the timed phase.
    #[serde(deserialize_with = "units::elapsed")]
    pub seconds: f64,
    /// Seconds of the timed phase.
    #[serde(deserialize_with = "units::seconds")]
    pub timed_seconds: Option<f64>,
    /// Page faults without I/O. The live number covers the whole process, including its start.
    #[serde(deserialize_with = "units::count")]
    pub faults: Option<f64>,
    /// Seconds in the kernel. The live number covers the whole process.
    #[serde(deserialize_with = "units::seconds")]
    pub kernel_seconds: Option<f64>,
    /// CPU seconds of daemons that made superpages for the program. Live, only `superpage`'s own daemon is counted.
    #[serde(deserialize_with = "units::seconds")]
    pub beside_seconds: Option<f64>,
    /// Maximum number of superpages.
    #[serde(deserialize_with = "units::count")]
    pub superpages: Option<f64>,
    /// Number of superpages over time.
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
    /// Index of the reference in [`Compared::designs`].
    pub than: usize,
    /// Index of the design.
    pub design: usize,
    /// The ratio of medians.
    #[serde(deserialize_with = "units::ratio")]
    pub ratio: f64,
    /// Confidence interval of the ratio.
    #[serde(deserialize_with = "units::ratio")]
    pub interval: Option<[f64; 2]>,
}

units::checked!(Compared, Row, Side, Pair);

fn holds(condition: bool, why: impl Into<String>) -> Result<(), String> {
    if condition { Ok(()) } else { Err(why.into()) }
}

impl Side {
    fn check(&self) -> Result<(), String> {
        let steps = self.steps.iter().map(|step| step.at);
        holds(steps.is_sorted(), "steps are not in the order of `at`")
    }

    /// Checks of simulated figures. Live steps come from one run and `superpages` is a median, so these need not agree.
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
        // Tolerates rounding: both are exponentials of logarithms.
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

/// Agreement on the order of pairs of designs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Pairs whose simulated times differ by more than 5 %.
    pub pairs: usize,
    /// Pairs in the same order in the live runs.
    pub agree: usize,
    /// Pairs in the opposite order.
    pub disagree: usize,
    /// Undecided pairs: the interval of the ratio contains 1.
    pub undecided: usize,
}

/// Errors of the laboratory over all workloads and designs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Agreement {
    /// The order of designs.
    pub order: Order,
    /// Geometric mean of the factors by which speed-ups over base pages are wrong, minus one.
    pub error: Option<f64>,
    /// As `error`, for the times on base pages.
    pub base_error: Option<f64>,
    /// As `error`, for the speed-ups of [`Compared::anchored`].
    pub anchored_error: Option<f64>,
    /// The largest of these errors, as a factor minus one.
    pub worst: Option<f64>,
}

/// What a simulated saving differs by from the live one, as shares of the live time on base pages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    /// Saved in the kernel: faults, zeroing, making superpages. Laboratory minus live.
    pub kernel: f64,
    /// Saved in user mode: address translation. Laboratory minus live.
    pub translation: f64,
    /// Maximum numbers of superpages: in the laboratory, and live.
    pub superpages: Option<[f64; 2]>,
}

/// The part of a simulation that is the most likely cause of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program got another number of superpages.
    Superpages,
    /// What faults, zeroing and making superpages cost.
    Kernel,
    /// What address translation costs.
    Translation,
}

/// Numbers of superpages that differ by more than this share are another number.
const SAME_SUPERPAGES: f64 = 0.1;

impl Gap {
    /// Returns the most likely cause.
    pub fn cause(&self) -> Cause {
        let differ = |[lab, live]: [f64; 2]| {
            let most = lab.max(live);
            most >= 8.0 && (lab - live).abs() > SAME_SUPERPAGES * most
        };
        if self.superpages.is_some_and(differ) {
            Cause::Superpages
        } else if self.kernel.abs() > self.translation.abs() {
            Cause::Kernel
        } else {
            Cause::Translation
        }
    }
}

impl Side {
    /// Computes the figures of a report. `times_mappings`: the live time includes making and removing mappings, most of
    /// which is freeing memory. Built-in workloads do not time it.
    pub fn from_report(report: &Report, times_mappings: bool) -> Self {
        let seconds = |cycles: u64| cycles as f64 / (f64::from(report.mhz) * 1e6);
        let kernel = [Account::Faults, Account::Upkeep];
        let kernel: u64 = kernel.iter().map(|account| account.cycles(&report.ledger)).sum();
        let of_mappings = seconds(report.ledger[mm_sim::Cause::Map]);
        let untimed = if times_mappings { 0.0 } else { of_mappings };
        let total = report.seconds() - untimed;
        let step = |moment: &mm_sim::Moment| Step {
            at: (moment.microseconds as f64 / 1e6 / total).min(1.0),
            superpages: moment.superpages as f64,
        };
        let moments = match report.timeline.split_last() {
            // Memory is freed at the program's end.
            Some((last, before)) if last.resident_pages == 0 => before,
            _ => &report.timeline,
        };
        let timed = report.phases.iter().find(|phase| phase.name == "run");
        Self {
            seconds: total,
            timed_seconds: timed.map(|phase| seconds(phase.wall_cycles).min(total)),
            faults: Some(report.counters.faults as f64),
            kernel_seconds: Some(seconds(kernel)),
            beside_seconds: Some(seconds(report.background.total())),
            superpages: Some(most_superpages(report) as f64),
            steps: moments.iter().map(step).collect(),
        }
    }

    /// Returns the speed-up over `base`: the ratio of times.
    pub fn speedup(&self, base: &Self) -> Option<f64> {
        (self.seconds > 0.0 && base.seconds > 0.0).then(|| base.seconds / self.seconds)
    }

    /// Returns the share of the run's time at which half of the maximum number of superpages was reached. `None`: no
    /// superpages, or unknown.
    pub fn half_at(&self) -> Option<f64> {
        let most = self.steps.iter().map(|step| step.superpages).fold(0.0, f64::max);
        let there = |step: &&Step| step.superpages >= most / 2.0;
        (most > 0.0).then(|| self.steps.iter().find(there).map(|step| step.at))?
    }
}

impl Row {
    /// Returns the simulated figures that are closest to what ran live.
    pub fn simulated(&self) -> &Side {
        self.as_live.as_ref().map_or(&self.lab, |as_live| &as_live.lab)
    }
}

impl Compared {
    /// Returns the relative error of a simulated speed-up over base pages: 0.1 is 10 % too high.
    pub fn error(&self, row: &Row, of: fn(&Row) -> &Side) -> Option<f64> {
        let base = self.designs.first()?;
        let (lab, live) = (of(row).speedup(of(base))?, row.live.speedup(&base.live)?);
        Some(lab / live - 1.0)
    }

    /// Returns the relative error of the design at an index: of the time for base pages, of the speed-up for others.
    pub fn off(&self, place: usize, of: fn(&Row) -> &Side) -> Option<f64> {
        let row = self.designs.get(place)?;
        match place {
            0 => of(row).speedup(&row.live).map(|ratio| 1.0 / ratio - 1.0),
            _ => self.error(row, of),
        }
    }

    /// Returns the simulated speed-up over base pages if the program's own work took as long as live: the live run says
    /// how long the program runs in user mode on base pages, the laboratory how long in the kernel, and what a design
    /// saves of both. `None`: it saves more than all, or the kernel's time is unknown. See docs/decisions/lab.md#10.
    pub fn anchored(&self, row: &Row, of: fn(&Row) -> &Side) -> Option<f64> {
        let base = self.designs.first()?;
        let (live, lab) = (&base.live, of(base));
        let own = (live.seconds - live.kernel_seconds?).max(0.0);
        let whole = own + lab.kernel_seconds?.min(lab.seconds);
        let left = whole - (lab.seconds - of(row).seconds);
        (whole > 0.0 && left > 0.0).then(|| whole / left)
    }

    /// Returns the relative error of [`Compared::anchored`], as a ratio.
    pub fn anchored_error(&self, row: &Row, of: fn(&Row) -> &Side) -> Option<f64> {
        let live = row.live.speedup(&self.designs.first()?.live)?;
        Some(self.anchored(row, of)? / live - 1.0)
    }

    /// Returns what the simulated saving differs by from the live one.
    pub fn gap(&self, row: &Row, of: fn(&Row) -> &Side) -> Option<Gap> {
        let base = self.designs.first()?;
        let whole = Some(base.live.seconds).filter(|whole| *whole > 0.0)?;
        let kernel = |base: &Side, side: &Side| Some(base.kernel_seconds? - side.kernel_seconds?);
        let (lab, live) = (of(row), &row.live);
        let all = (of(base).seconds - lab.seconds) - (base.live.seconds - live.seconds);
        let in_kernel = kernel(of(base), lab)? - kernel(&base.live, live)?;
        Some(Gap {
            kernel: in_kernel / whole,
            translation: (all - in_kernel) / whole,
            superpages: lab.superpages.zip(live.superpages).map(|(lab, live)| [lab, live]),
        })
    }

    /// Returns the live ratio of a design to base pages.
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
            // Inverts the interval if the simulated ratio is below 1.
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
    /// Returns the fragmentation of a workload's runs.
    pub fn fragmentation_of<'a>(&'a self, one: &'a Compared) -> &'a str {
        one.fragmentation.as_deref().unwrap_or(&self.fragmentation)
    }

    /// Returns the agreement of designs as written.
    pub fn as_written(&self) -> Agreement {
        self.agreement(|row| &row.lab)
    }

    /// Returns the agreement of designs as they ran live.
    pub fn as_live(&self) -> Agreement {
        self.agreement(Row::simulated)
    }

    fn agreement(&self, of: fn(&Row) -> &Side) -> Agreement {
        let mut order = Order::default();
        self.workloads.iter().for_each(|one| one.order(of, &mut order));
        let rows = || {
            let of_one = |one| self::rows(one).map(move |row| (one, row));
            self.workloads.iter().flat_map(of_one)
        };
        let errors = rows().filter_map(|(one, row)| Some(1.0 + one.error(row, of)?));
        let anchored = || rows().filter_map(|(one, row)| Some(1.0 + one.anchored_error(row, of)?));
        let bases = self.workloads.iter().filter_map(|one| {
            let base = one.designs.first()?;
            of(base).speedup(&base.live)
        });
        Agreement {
            order,
            error: typical(errors),
            base_error: typical(bases),
            anchored_error: typical(anchored()),
            worst: anchored().map(|factor| factor.max(1.0 / factor) - 1.0).reduce(f64::max),
        }
    }
}

/// Returns the designs except base pages.
fn rows(of: &Compared) -> impl Iterator<Item = &Row> {
    of.designs.iter().skip(1)
}
