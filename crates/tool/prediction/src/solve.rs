//! `predict`: computes the effect of superpages from demand, prices and a run on base pages.
//!
//! How much of a miss a program waits for depends on the dependence between its accesses, which page traces do not
//! contain. But the prices of both extremes are known (a pointer chase, and independent accesses), and so is the time
//! of the program. So the estimate is the mixture that explains that time. The extremes give the error bar; at the
//! lower end, walks overlap with instructions.
//! See docs/decisions/prediction.md#5 and docs/decisions/prediction.md#10.

use serde::{Deserialize, Serialize};

use crate::prices::{ByDistance, Faults};
use crate::{Demand, Prices, Sequential, Touches};

/// A run of the program on base pages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Native {
    /// CPU seconds of one thread in user mode.
    pub user_seconds: f64,
    /// CPU seconds in the kernel, if the predicted part includes first touches.
    pub system_seconds: f64,
    /// Number of instructions, if known.
    pub instructions: Option<f64>,
    /// Clock of the core in MHz.
    pub mhz: f64,
}

/// A value with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Range {
    /// Lower bound.
    #[serde(deserialize_with = "units::share_more_or_less")]
    pub low: f64,
    /// The best estimate.
    #[serde(deserialize_with = "units::share_more_or_less")]
    pub mid: f64,
    /// Upper bound.
    #[serde(deserialize_with = "units::share_more_or_less")]
    pub high: f64,
}

units::checked!(Range);

impl Range {
    fn check(&self) -> Result<(), String> {
        let ascend = self.low <= self.mid && self.mid <= self.high;
        ascend.then_some(()).ok_or("low, mid and high do not ascend".to_string())
    }
}

/// Parts of a run's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Seconds of everything except the following.
    #[serde(deserialize_with = "units::seconds_more_or_less")]
    pub rest: f64,
    /// Seconds of waiting for translations.
    #[serde(deserialize_with = "units::seconds")]
    pub translation: f64,
    /// Seconds of first touches of memory that superpages could back.
    #[serde(deserialize_with = "units::seconds")]
    pub faults: f64,
}

/// Predicted effect of superpages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Share of the run's time spent on translation, 0 to 1.
    pub translating: Range,
    /// Share of the run's time that superpages would save: translation and first touches.
    pub saved: Range,
    /// Parts of the run on base pages.
    pub base: Parts,
    /// Parts of the run on superpages.
    pub superpage: Parts,
    /// Dependence of the accesses, from 0 (independent) to 1 (a pointer chase).
    #[serde(deserialize_with = "units::share")]
    pub dependence: f64,
    /// Seconds of the memory accesses at the two extremes: independent, dependent.
    #[serde(deserialize_with = "units::seconds")]
    pub explained: (f64, f64),
}

/// Instructions per cycle outside stalls on memory, with bounds. (Inferred: three-wide and wider cores reach 2 to 4 on
/// code that hits its caches.)
const IPC: Range = Range { low: 1.0, mid: 2.5, high: 4.0 };

/// Instructions per access if they were not counted (assumed: one in 2.5 to 3 is a load or a store in SPEC CPU).
const INSTRUCTIONS_PER_ACCESS: f64 = 2.5;

#[derive(Debug, Clone, Copy, Default)]
struct Seconds {
    all: f64,
    translation: f64,
    translation_super: f64,
}

/// Predicts the effect of superpages on a program.
pub fn predict(demand: &Demand, prices: &Prices, native: &Native) -> Prediction {
    let chase = prices.dependent.by_distance();
    let dependent = random(demand, &chase, &chase);
    let independent = random(demand, &prices.reads.by_distance(), &prices.writes.by_distance());
    let instructions = native.instructions.unwrap_or(demand.accesses * INSTRUCTIONS_PER_ACCESS);
    let user = native.user_seconds;
    let executing = |ipc: f64| instructions / ipc / native.mhz / 1e6;
    let in_order = sequential(demand, prices).within(user);
    // Sequential accesses are prefetched while instructions execute, so the longer of the two counts.
    let budget = |ipc: f64| (user - executing(ipc).max(in_order.all)).max(0.1 * user);

    // Choose the dependence that explains the time that instructions do not.
    let between = dependent.all - independent.all;
    let dependence = match between > 0.0 {
        true => ((budget(IPC.mid) - independent.all) / between).clamp(0.0, 1.0),
        false => 0.0,
    };
    let together = |random: Seconds, ipc: f64| random.plus(in_order.shown_beside(executing(ipc)));
    let mid = match independent.all >= budget(IPC.mid) {
        // Independent accesses need not wait for instructions either.
        true => independent.with_data_near(user - in_order.all),
        false => mix(independent, dependent, dependence).within(budget(IPC.mid)),
    };
    let mid = together(mid, IPC.mid);
    let low = together(independent.within(budget(IPC.low)), IPC.low);
    // An out-of-order core walks while it executes, so it waits only for the excess.
    let beside = independent.walked_beside(executing(IPC.mid));
    let beside = together(beside.within(user), IPC.mid);
    let ends = [beside, low, together(dependent.within(budget(IPC.high)), IPC.high), mid];
    let faults = faults(demand, prices, native.system_seconds);
    let total = user + native.system_seconds;
    let range = |value: &dyn Fn(Seconds) -> f64| {
        let values = ends.map(value);
        Range {
            low: values.into_iter().fold(f64::INFINITY, f64::min),
            mid: value(mid),
            high: values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    };
    let part = |seconds: f64| if total > 0.0 { seconds / total } else { 0.0 };
    let rest = total - mid.translation - faults.0;
    Prediction {
        translating: range(&|s| part(s.translation)),
        saved: range(&|s| part(s.translation - s.translation_super + faults.0 - faults.1)),
        base: Parts { rest, translation: mid.translation, faults: faults.0 },
        superpage: Parts { rest, translation: mid.translation_super, faults: faults.1 },
        dependence,
        explained: (independent.all + in_order.all, dependent.all + in_order.all),
    }
}

impl Prediction {
    /// Extends the bounds to those of `others`, which predict the same program with the prices of one measurement or
    /// the time of one run. An estimate is not known better than its inputs.
    /// See docs/decisions/prediction.md#10.
    pub fn widened(mut self, others: impl IntoIterator<Item = Self>) -> Self {
        for other in others {
            self.translating = self.translating.widened(other.translating);
            self.saved = self.saved.widened(other.saved);
        }
        self
    }
}

impl Range {
    fn widened(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high), ..self }
    }
}

/// Returns the seconds of translation if the program waited for every use: the maximum cost of instruction fetches.
pub fn dependent_seconds(demand: &Demand, prices: &Prices) -> f64 {
    let chase = prices.dependent.by_distance();
    random(demand, &chase, &chase).translation
}

impl Seconds {
    fn plus(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            translation: self.translation + other.translation,
            translation_super: self.translation_super + other.translation_super,
        }
    }

    fn scaled(self, by: f64) -> Self {
        Self {
            all: self.all * by,
            translation: self.translation * by,
            translation_super: self.translation_super * by,
        }
    }

    /// Keeps the part of translation that takes longer than the work at the same time.
    fn shown_beside(self, working: f64) -> Self {
        let shown = (self.all - working.max(self.all - self.translation)).max(0.0);
        Self { translation: shown, translation_super: 0.0, ..self }
    }

    /// Keeps the part of translation that takes longer than the work at the same time, and scales the translation on
    /// superpages likewise.
    fn walked_beside(self, working: f64) -> Self {
        let shown = self.shown_beside(working);
        let by = if self.translation > 0.0 { shown.translation / self.translation } else { 1.0 };
        Self { translation_super: self.translation_super * by, ..shown }
    }

    /// Limits the time to `seconds`, assuming that the data was nearer than its page. A page reused after many others
    /// needs a translation, but a frequently used line (of a vertex with many edges) is still in a cache. Otherwise
    /// lines cost as much as with uniformly random use, which is their maximum.
    fn with_data_near(self, seconds: f64) -> Self {
        let translation = self.translation.min(seconds);
        let by = if self.translation > 0.0 { translation / self.translation } else { 1.0 };
        Self {
            all: self.all.min(seconds),
            translation,
            translation_super: self.translation_super * by,
        }
    }

    /// Limits the time to `seconds`: costs beyond the available time overlapped with other work.
    fn within(self, seconds: f64) -> Self {
        if self.all > seconds { self.scaled(seconds / self.all) } else { self }
    }
}

fn mix(a: Seconds, b: Seconds, of_b: f64) -> Seconds {
    a.scaled(1.0 - of_b).plus(b.scaled(of_b))
}

fn random(demand: &Demand, reads: &ByDistance, writes: &ByDistance) -> Seconds {
    let mut sum = Seconds::default();
    let mut add = |pages: usize, regions: usize, count: f64, prices: &ByDistance| {
        let translation = prices.translation[pages] * count * 1e-9;
        sum.all += prices.data[pages] * demand.lines_per_use * count * 1e-9 + translation;
        sum.translation += translation;
        sum.translation_super += (prices.translation[regions] * count * 1e-9).min(translation);
    };
    for (pages, regions, cell) in demand.random() {
        add(pages, regions, cell.reads, reads);
        add(pages, regions, cell.writes, writes);
    }
    for (pages, cell) in demand.others() {
        add(pages, pages, cell.reads, reads);
        add(pages, pages, cell.writes, writes);
    }
    sum
}

fn sequential(demand: &Demand, prices: &Prices) -> Seconds {
    let add = |count: f64, price: &Sequential| {
        let translation = (price.base - price.superpage).max(0.0) * count * 1e-9;
        Seconds { all: price.base * count * 1e-9, translation, translation_super: 0.0 }
    };
    add(demand.sequential.reads, &prices.sequential_reads)
        .plus(add(demand.sequential.writes, &prices.sequential_writes))
}

/// Returns the seconds of first touches on base pages and on superpages. First touches are in the kernel, so on base
/// pages they take at most the time spent there.
fn faults(demand: &Demand, prices: &Prices, system_seconds: f64) -> (f64, f64) {
    let Touches { eligible, superpages, .. } = demand.touches;
    faults_seconds(eligible, superpages, &prices.faults, system_seconds)
}

/// Returns the seconds of first touches of `pages` base pages, at most `system_seconds`, and of the `superpages`
/// superpages instead of them.
pub fn faults_seconds(
    pages: f64,
    superpages: f64,
    price: &Faults,
    system_seconds: f64,
) -> (f64, f64) {
    let base = pages * price.base * 1e-9;
    let superpage = superpages * price.superpage * 1e-9;
    let scale = if base > system_seconds { system_seconds / base } else { 1.0 };
    (base * scale, superpage * scale)
}
