//! Computes mean, variance, median and quantile of a few numbers. The input must be finite.

/// Returns the arithmetic mean; NaN when empty.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the unbiased sample variance (divisor n - 1); NaN for fewer than two values. Uses two passes, because the
/// textbook one-pass formula cancels catastrophically for 1 % noise on a large mean.
pub fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre) * (v - centre)).sum();
    squares / (values.len() as f64 - 1.0)
}

/// Returns the middle value, or the mean of the two middle values; `None` when empty. Reorders `values`.
pub fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(midpoint(lower, upper))
}

/// Returns the quantile `q` of ascending values by linear interpolation (Hyndman and Fan type 7, as R and numpy).
/// Symmetric: the q-quantile of `-x` is minus the (1-q)-quantile of `x`. `None` when empty.
pub fn quantile_sorted(ascending: &[f64], q: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    let part = position - low as f64;
    Some(ascending[low] * (1.0 - part) + ascending[high] * part)
}

/// Returns the mean of two values without overflow.
pub fn midpoint(a: f64, b: f64) -> f64 {
    a / 2.0 + b / 2.0
}
