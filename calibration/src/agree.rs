//! Estimates are repeated until three agree, as libhugetlbfs' tlbmiss_cost.sh did; if they never do,
//! that is said.

use serde::{Deserialize, Serialize};

use crate::probe::ProbeError;
use crate::statistics::median;

/// A cost in cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Cycles: the median of the last three estimates.
    pub cycles: f64,
    /// Whether these agree within [`TOLERANCE`].
    pub agreed: bool,
    /// All estimates, in order.
    pub estimates: Vec<f64>,
}

/// How far apart three estimates may be that agree, as a share of their median.
pub const TOLERANCE: f64 = 0.05;
/// Cycles below which a difference is none: a third of a tick of most counters.
const NOTHING: f64 = 0.3;

/// Estimates until three agree, at most `attempts` times.
pub(crate) fn agree(
    attempts: usize,
    mut estimate: impl FnMut() -> Result<f64, ProbeError>,
) -> Result<Cost, ProbeError> {
    let mut estimates = Vec::new();
    loop {
        estimates.push(estimate()?);
        let last = &estimates[estimates.len().saturating_sub(3)..];
        let cycles = median(last);
        let apart = last.iter().fold(f64::MIN, |a, &b| a.max(b))
            - last.iter().fold(f64::MAX, |a, &b| a.min(b));
        let agreed = last.len() == 3 && apart <= (TOLERANCE * cycles.abs()).max(NOTHING);
        if agreed || estimates.len() >= attempts {
            return Ok(Cost { cycles, agreed, estimates });
        }
    }
}

/// Of so many estimates, each under other circumstances, the median of that half which lies closest together
/// (as Rousseeuw's least median of squares): what disturbs estimates makes them larger, often a third of them
/// (walks of 49 to 55 cycles, and of 66 to 102 among them), which moves the median of all. They agree if that
/// half does, within [`TOLERANCE`] on either side.
pub(crate) fn typical(
    count: usize,
    mut estimate: impl FnMut() -> Result<f64, ProbeError>,
) -> Result<Cost, ProbeError> {
    let estimates = (0..count).map(|_| estimate()).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = estimates.clone();
    sorted.sort_by(f64::total_cmp);
    let apart = |half: &[f64]| half[half.len() - 1] - half[0];
    let halves = sorted.windows(count / 2 + 1);
    let closest = halves.min_by(|a, b| apart(a).total_cmp(&apart(b))).expect("one at least");
    let (cycles, apart) = (median(closest), apart(closest));
    let agreed = apart <= (2.0 * TOLERANCE * cycles.abs()).max(NOTHING);
    Ok(Cost { cycles, agreed, estimates })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Cost {
        let mut values = values.iter().copied();
        agree(values.len(), || Ok(values.next().expect("no more than there are"))).unwrap()
    }

    #[test]
    fn three_that_agree_end_it() {
        let cost = of(&[30.0, 19.0, 19.2, 19.1, 7.0]);
        assert_eq!((cost.cycles, cost.agreed, cost.estimates.len()), (19.1, true, 4));
    }

    #[test]
    fn what_disturbs_some_moves_nothing() {
        let quiet = [49.3, 49.7, 49.9, 51.1, 52.6, 53.1, 53.9];
        let disturbed = [95.1, 70.9, 65.7, 89.4, 101.9];
        let mut values = disturbed.into_iter().chain(quiet);
        let cost = typical(12, || Ok(values.next().expect("no more than there are"))).unwrap();
        assert_eq!((cost.cycles, cost.agreed, cost.estimates.len()), (51.1, true, 12));
    }

    #[test]
    fn that_they_never_agree_is_said() {
        let cost = of(&[10.0, 20.0, 10.0, 20.0, 10.0]);
        assert_eq!((cost.agreed, cost.estimates.len()), (false, 5));
    }
}
