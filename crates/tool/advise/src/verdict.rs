//! `Verdict`: what superpages would bring, as an interval, from the samples of a process.
//!
//! See docs/decisions/advise.md#4.

use std::collections::BTreeMap;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use services::AddressSpace;

use crate::code::{Attribution, Code};
use crate::memory::{On, Seen, Shifts};
use crate::model::{Costs, Estimate, Model, Replayed};
use crate::replay::Window;
use crate::sampler::Sampled;
use crate::streams::Orders;

/// Fewest samples for an estimate.
pub const MIN_SAMPLES: usize = 300;
/// Largest share of samples whose accesses are lost for an estimate.
pub const MAX_LOST: f64 = 0.5;
/// Resamplings of the samples, whose estimates show the error of sampling.
const RESAMPLINGS: usize = 24;
/// Consecutive samples that are resampled together: neighbours are alike.
const TOGETHER: usize = 20;
/// Relative error of the model and of the prices. Fitted to `scripts/advise-check`'s programs: docs/decisions/advise.md#4.
const MODEL_ERROR: f64 = 0.12;
/// Error of the gain by the prices of data, times the share of samples on pages that are rarely used, if there are more
/// than [`LITTLE`].
const EXPOSED_ERROR: f64 = 0.07;
/// Base pages that the second-level TLB of every known processor holds.
const LITTLE: f64 = 512.0;
/// Error where nothing is saved, as a share of the time.
const LEAST_ERROR: f64 = 0.015;
/// Gains below this are none.
pub const NONE: f64 = 0.01;

/// A change of speed as a share: 0.09 is 9 % more work in the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// Lower bound.
    #[serde(deserialize_with = "units::gain")]
    pub low: f64,
    /// Best estimate.
    #[serde(deserialize_with = "units::gain")]
    pub mid: f64,
    /// Upper bound.
    #[serde(deserialize_with = "units::gain")]
    pub high: f64,
}

/// What superpages would bring.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Verdict {
    /// This much more speed.
    Gain(Range),
    /// Nothing that is worth it.
    None(Range),
    /// Not known.
    Unknown(Why),
}

impl Verdict {
    /// The verdict of an interval.
    pub fn new(range: Range) -> Self {
        match range.mid < NONE {
            true => Self::None(range),
            false => Self::Gain(range),
        }
    }

    /// The interval; `None`: unknown.
    pub fn range(&self) -> Option<Range> {
        match self {
            Self::Gain(range) | Self::None(range) => Some(*range),
            Self::Unknown(_) => None,
        }
    }

    /// The same with the lower bound of another verdict, if that is lower.
    pub(crate) fn down_to(self, other: &Self) -> Self {
        let (Self::Gain(lower) | Self::None(lower)) = other else { return self };
        let down = |range: Range| Range { low: range.low.min(lower.low), ..range };
        match self {
            Self::Gain(range) => Self::Gain(down(range)),
            Self::None(range) => Self::None(down(range)),
            Self::Unknown(why) => Self::Unknown(why),
        }
    }
}

/// Why a gain is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Why {
    /// The process used too little CPU time in user mode.
    FewSamples,
    /// Too many accesses have addresses that could not be computed.
    Lost,
}

/// The samples of a process, each with what it tells.
pub struct Accesses {
    pub seen: Vec<Seen>,
    pub windows: Vec<Replayed>,
    pub lost: usize,
    pub without: usize,
    pub unreadable: usize,
    pub counts: BTreeMap<u64, u32>,
    pub shifts: Shifts,
}

/// What the accesses say about superpages.
pub struct Found {
    pub verdict: Verdict,
    pub estimate: Estimate,
}

impl Accesses {
    pub fn new(
        sampled: &Sampled,
        windows: Vec<Window>,
        code: &mut Code<'_>,
        space: &AddressSpace,
    ) -> Self {
        let shifts = Shifts::of(space);
        let replayed = |window: Window| {
            let on = window.steps.iter().map(|step| On::at(space, step.address)).collect();
            Replayed { window, on }
        };
        let mut found = Self {
            seen: Vec::new(),
            windows: windows.into_iter().map(replayed).collect(),
            lost: 0,
            without: 0,
            unreadable: 0,
            counts: BTreeMap::new(),
            shifts,
        };
        for sample in &sampled.samples {
            let Some(registers) = &sample.registers else {
                found.unreadable += 1;
                continue;
            };
            *found.counts.entry(sample.instruction).or_default() += 1;
            match code.attribute(sample.instruction, registers) {
                Attribution::Access(access) => match On::at(space, access.address) {
                    Some(on) => found.seen.push(Seen {
                        access,
                        thread: sample.thread,
                        time: sample.time,
                        on,
                    }),
                    // The end of a chase, or memory unmapped meanwhile.
                    None => found.lost += 1,
                },
                Attribution::Lost => found.lost += 1,
                Attribution::None => found.without += 1,
                Attribution::Unreadable => found.unreadable += 1,
            }
        }
        found
    }

    pub fn total(&self) -> usize {
        self.seen.len() + self.lost + self.without + self.unreadable
    }

    pub fn estimate(
        &self,
        prices: &Costs,
        user_share: f64,
        faults_per_second: Option<f64>,
    ) -> Found {
        let total = self.total() as f64;
        let orders = Orders::new(&self.seen, &self.counts);
        // Lost accesses are taken to be like the others: to the same memory, as far as accesses go.
        let known = self.seen.len() as f64;
        let scale = if known > 0.0 { (known + self.lost as f64) / known } else { 1.0 };
        let model = Model::new(&self.seen, &self.windows, total, prices, self.shifts, &orders);
        let mut mid = model.estimate(&self.seen, model.windows());
        mid.saved *= scale;
        mid.by_page.values_mut().for_each(|saved| *saved *= scale);
        let fault = prices.accesses.faults;
        let per_fault = (fault.base - fault.superpage / 512.0).max(0.0) * 1e-9;
        let by_faults = (faults_per_second.unwrap_or(0.0) * per_fault).min(1.0 - user_share);
        let gain = |saved: f64| {
            let saved = (saved * user_share + by_faults).clamp(-0.5, 0.95);
            1.0 / (1.0 - saved) - 1.0
        };
        let is_lost =
            self.lost as f64 > MAX_LOST * total || self.unreadable as f64 > MAX_LOST * total;
        let verdict = match () {
            () if self.total() < MIN_SAMPLES => Verdict::Unknown(Why::FewSamples),
            () if is_lost => Verdict::Unknown(Why::Lost),
            () => {
                let mut resampled: Vec<f64> = (0..RESAMPLINGS as u64)
                    .map(|seed| {
                        let windows: Vec<usize> = model.windows().collect();
                        let windows = resampled(&windows, 1, seed).into_iter();
                        scale
                            * model.estimate(&resampled(&self.seen, TOGETHER, seed), windows).saved
                    })
                    .collect();
                resampled.sort_by(f64::total_cmp);
                let sampling = (resampled[RESAMPLINGS - 1 - 1] - resampled[1]) / 2.0;
                let lost = mid.saved * self.lost as f64 / total;
                let exposed = match mid.pages > LITTLE {
                    true => EXPOSED_ERROR * mid.exposed * (1.0 - mid.saved).max(0.0).powi(2),
                    false => 0.0,
                };
                let model = (MODEL_ERROR * mid.saved).hypot(exposed);
                let error = model.hypot(sampling).hypot(lost) + LEAST_ERROR;
                let range = Range {
                    low: gain(mid.saved - error),
                    mid: gain(mid.saved),
                    high: gain(mid.saved + error),
                };
                Verdict::new(range)
            }
        };
        Found { verdict, estimate: mid }
    }
}

/// Random runs of `together` consecutive elements of `all`, as many elements as there are.
fn resampled<T: Clone>(all: &[T], together: usize, seed: u64) -> Vec<T> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let runs: Vec<&[T]> = all.chunks(together).collect();
    let mut result = Vec::with_capacity(all.len() + together);
    while result.len() < all.len() {
        let place = (random.next_u64() % runs.len() as u64) as usize;
        result.extend_from_slice(runs[place]);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{prices, samples};

    fn accesses(seen: Vec<Seen>, lost: usize) -> Accesses {
        let counts = BTreeMap::from([(0x1004, seen.len() as u32)]);
        let shifts = Shifts { base: 12, superpage: 21 };
        Accesses { seen, windows: Vec::new(), lost, without: 0, unreadable: 0, counts, shifts }
    }

    fn uniform(count: usize, seed: u64) -> Vec<Seen> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        samples(count, On::Base { resident: 512 }, |_| random.next_u64() % (1 << 17))
    }

    fn verdict(accesses: &Accesses) -> Verdict {
        accesses.estimate(&prices(), 1.0, None).verdict
    }

    #[test]
    fn the_interval_holds_the_gain_of_uniform_use() {
        // 154 ns become 104.
        let truth = 154.0 / 104.0 - 1.0;
        for seed in 0..6 {
            let Verdict::Gain(range) = verdict(&accesses(uniform(600, seed), 0)) else {
                panic!("no gain with seed {seed}");
            };
            assert!(range.low <= range.mid && range.mid <= range.high, "{range:?}");
            assert!(range.low < truth && truth < range.high, "{range:?} {truth}");
        }
    }

    #[test]
    fn few_samples_and_many_lost_ones_are_unknown() {
        let few = verdict(&accesses(uniform(MIN_SAMPLES - 1, 1), 0));
        assert_eq!(few, Verdict::Unknown(Why::FewSamples));
        let lost = verdict(&accesses(uniform(600, 1), 700));
        assert_eq!(lost, Verdict::Unknown(Why::Lost));
        assert!(matches!(verdict(&accesses(uniform(600, 1), 100)), Verdict::Gain(_)));
    }

    #[test]
    fn no_gain_is_none_and_time_in_the_kernel_is_not_saved() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let on = On::Base { resident: 512 };
        let small = samples(2000, on, |_| random.next_u64() % 32);
        assert!(matches!(verdict(&accesses(small, 0)), Verdict::None(_)));
        let all = accesses(uniform(2000, 2), 0);
        let mid = |user| match all.estimate(&prices(), user, None).verdict {
            Verdict::Gain(range) | Verdict::None(range) => range.mid,
            other => panic!("{other:?}"),
        };
        assert!(mid(0.1) < mid(1.0) / 5.0);
    }

    #[test]
    fn page_faults_that_superpages_save_count() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let on = On::Base { resident: 512 };
        let small = accesses(samples(2000, on, |_| random.next_u64() % 32), 0);
        // 200,000 a second at 800 ns more each than their part of a superpage: 16 % of the time.
        let Verdict::Gain(range) = small.estimate(&prices(), 0.7, Some(200_000.0)).verdict else {
            panic!("no gain");
        };
        assert!((range.mid - (1.0 / (1.0 - 0.161) - 1.0)).abs() < 0.01, "{range:?}");
    }

    #[test]
    fn an_interval_goes_down_to_that_of_other_prices() {
        let range = |low| Range { low, mid: 0.2, high: 0.3 };
        let gain = Verdict::Gain(range(0.1));
        assert_eq!(gain.down_to(&Verdict::None(range(-0.1))), Verdict::Gain(range(-0.1)));
        assert_eq!(gain.down_to(&Verdict::Gain(range(0.15))), gain);
        assert_eq!(gain.down_to(&Verdict::Unknown(Why::Lost)), gain);
    }

    #[test]
    fn resamples_are_of_the_samples() {
        let all: Vec<u32> = (0..1000).collect();
        let again = resampled(&all, TOGETHER, 1);
        assert!(again.len() >= all.len() && again.iter().all(|one| all.contains(one)));
        assert_ne!(again, resampled(&all, TOGETHER, 2));
        assert!(resampled::<u32>(&[], TOGETHER, 1).is_empty());
    }
}
