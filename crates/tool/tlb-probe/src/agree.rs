//! Costs: representative values of repeated estimates, each on different memory, with confidence intervals.

use serde::{Deserialize, Serialize};
use workload::rng::SplitMix64;

use crate::probe::ProbeError;
use crate::statistics::median;

/// A cost in cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Cost {
    /// Cycles.
    #[serde(deserialize_with = "units::cycles")]
    pub cycles: f64,
    /// The 95 % confidence interval of `cycles`, lower and upper end.
    #[serde(default, deserialize_with = "units::cycles_more_or_less")]
    pub interval: Option<(f64, f64)>,
    /// Whether both ends of the interval are within [`TOLERANCE`] of `cycles`.
    pub agreed: bool,
    /// All estimates, in order.
    #[serde(deserialize_with = "units::cycles_more_or_less")]
    pub estimates: Vec<f64>,
}

/// Maximum half width of a cost's confidence interval, as a share of the cost.
pub const TOLERANCE: f64 = 0.10;
/// Smaller differences in cycles count as no difference: about a third of a tick of most counters.
const MIN_DIFFERENCE: f64 = 0.3;
const RESAMPLES: usize = 400;

/// Makes `count` estimates, each on different memory, and returns their representative value.
pub(crate) fn estimate_cost(
    count: usize,
    mut estimate: impl FnMut() -> Result<f64, ProbeError>,
) -> Result<Cost, ProbeError> {
    let estimates = (0..count).map(|_| estimate()).collect::<Result<Vec<_>, _>>()?;
    let mut rng = SplitMix64::new(estimates.len() as u64);
    let resample = |_| {
        let draw = |_| estimates[(rng.draw() % estimates.len() as u64) as usize];
        center(&estimates.iter().map(draw).collect::<Vec<_>>())
    };
    let resamples = (0..RESAMPLES).map(resample).collect();
    Ok(Cost::new(center(&estimates), resamples, estimates))
}

units::checked!(Cost);

impl Cost {
    fn check(&self) -> Result<(), String> {
        let is_inside =
            self.interval.is_none_or(|(low, high)| low <= self.cycles && self.cycles <= high);
        is_inside.then_some(()).ok_or("cycles are not inside interval".to_string())
    }

    /// Makes a cost whose interval is the percentiles 2.5 and 97.5 of `resamples` (Efron's
    /// bootstrap).
    pub(crate) fn new(cycles: f64, mut resamples: Vec<f64>, estimates: Vec<f64>) -> Self {
        resamples.sort_by(f64::total_cmp);
        let tail = resamples.len() / 40;
        let (low, high) = (resamples[tail], resamples[resamples.len() - 1 - tail]);
        let (low, high) = (low.min(cycles), high.max(cycles));
        let agreed = high - low <= (2.0 * TOLERANCE * cycles.abs()).max(MIN_DIFFERENCE);
        Self { cycles, interval: Some((low, high)), agreed, estimates }
    }
}

/// The median of the shortest half of the sorted estimates (as in Rousseeuw's least median of squares). Disturbances
/// only enlarge estimates, often a third of them, which would shift the median of all. (For example, most walks took 49
/// to 55 cycles, and some 66 to 102.)
fn center(estimates: &[f64]) -> f64 {
    let mut sorted = estimates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let apart = |half: &&[f64]| half[half.len() - 1] - half[0];
    let halves = sorted.windows(sorted.len() / 2 + 1);
    halves.min_by(|a, b| apart(a).total_cmp(&apart(b))).map_or(f64::NAN, median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Cost {
        let mut values = values.iter().copied();
        estimate_cost(values.len(), || Ok(values.next().expect("no more than there are"))).unwrap()
    }

    #[test]
    fn what_disturbs_some_moves_nothing() {
        let cost = of(&[95.1, 70.9, 65.7, 89.4, 49.3, 49.7, 49.9, 51.1, 52.6, 53.1, 53.9, 101.9]);
        assert_eq!((cost.cycles, cost.estimates.len()), (51.1, 12));
        let (low, high) = cost.interval.unwrap();
        assert!(low <= 49.9 && (53.0..102.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn estimates_that_agree_are_known_well() {
        let cost = of(&[19.0, 19.2, 19.1, 19.0, 19.3, 25.0, 19.1]);
        let (low, high) = cost.interval.unwrap();
        assert!(cost.agreed && low >= 19.0 && high <= 19.3, "{cost:?}");
    }

    #[test]
    fn that_they_do_not_agree_is_said() {
        let cost = of(&[10.0, 20.0, 12.0, 25.0, 14.0, 31.0]);
        assert!(!cost.agreed, "{cost:?}");
    }
}
