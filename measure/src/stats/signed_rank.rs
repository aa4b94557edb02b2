//! The interval that Wilcoxon's signed-rank test leaves: every shift it would not reject. In
//! logarithms of ratios.

use super::interval::Interval;
use super::student::Confidence;

/// Beyond this many blocks the normal approximation is exact to more digits than are printed.
const EXACT_UP_TO: usize = 200;

/// The means of all pairs, each value with itself included, ascending.
pub(crate) fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let mut walsh: Vec<f64> = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, a) in values.iter().enumerate() {
        walsh.extend(values[index..].iter().map(|b| (a + b) / 2.0));
    }
    walsh.sort_unstable_by(f64::total_cmp);
    walsh
}

/// Exact for values symmetric about the truth, whatever their distribution; `None` where so few
/// values cannot reach the confidence (under 8 for 99 %).
pub(crate) fn signed_rank(values: &[f64], confidence: Confidence) -> Option<Interval> {
    let cut = rejected_ranks(values.len(), confidence.tail())?;
    let walsh = walsh_averages(values);
    Some(Interval { low: walsh[cut], high: walsh[walsh.len() - 1 - cut] })
}

/// The largest `k` with `P(W <= k) <= tail` for the signed-rank statistic of `n` values.
fn rejected_ranks(n: usize, tail: f64) -> Option<usize> {
    if n > EXACT_UP_TO {
        let n = n as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let t = super::student::t_quantile(Confidence::new(1.0 - 2.0 * tail)?, 10_000);
        return Some((n * (n + 1.0) / 4.0 - t * deviation).max(0.0) as usize);
    }
    // Each rank is added with probability a half: the distribution by convolution.
    let mut chances = vec![1.0];
    for rank in 1..=n {
        let mut next = vec![0.0; chances.len() + rank];
        for (sum, chance) in chances.iter().enumerate() {
            next[sum] += chance / 2.0;
            next[sum + rank] += chance / 2.0;
        }
        chances = next;
    }
    let mut below = 0.0;
    let within = chances.iter().take_while(|chance| {
        below += **chance;
        below <= tail
    });
    within.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hollander and Wolfe, Nonparametric Statistical Methods, table A.4: the largest sum whose
    /// lower tail is at most 0.005.
    #[test]
    fn critical_values_are_the_published_ones() {
        let published = [(8, 0), (9, 1), (10, 3), (11, 5), (12, 7), (13, 9), (15, 15), (20, 37)];
        for (n, critical) in published {
            assert_eq!(rejected_ranks(n, 0.005), Some(critical), "{n}");
        }
        assert_eq!(rejected_ranks(7, 0.005), None);
        // The approximation meets the exact values where it takes over.
        let exact = rejected_ranks(EXACT_UP_TO, 0.005).unwrap() as f64;
        let near = rejected_ranks(EXACT_UP_TO + 1, 0.005).unwrap() as f64;
        assert!((near / exact - 1.0).abs() < 0.03, "{exact} {near}");
    }

    #[test]
    fn a_wild_value_does_not_move_it() {
        let mut values: Vec<f64> = (0..20).map(|index| f64::from(index - 10) * 1e-3).collect();
        let before = signed_rank(&values, Confidence::P99).unwrap();
        values[19] = 1e6;
        let after = signed_rank(&values, Confidence::P99).unwrap();
        assert!(before.low <= after.low && after.high < 0.02, "{before:?} {after:?}");
    }
}
