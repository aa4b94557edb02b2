//! Statistics: a rank test, segmentation of a curve, medians.

/// Significance level of the rank test. It is low because a bisection makes a dozen tests.
const ALPHA: f64 = 0.001;

/// Whether `higher` comes from a distribution with greater values than `lower`: the one-sided test of Mann and Whitney
/// (Annals of Mathematical Statistics 18, 1947) with its exact distribution; ties count half.
pub fn above(higher: &[f64], lower: &[f64]) -> bool {
    let wins = |h: &f64| -> f64 {
        let win = |l: &f64| match h.partial_cmp(l) {
            Some(std::cmp::Ordering::Greater) => 1.0,
            Some(std::cmp::Ordering::Equal) => 0.5,
            _ => 0.0,
        };
        lower.iter().map(win).sum()
    };
    let u: f64 = higher.iter().map(wins).sum();
    tail(higher.len(), lower.len(), u.floor() as usize) < ALPHA
}

/// Probability that the statistic U of `m` and `n` values is at least `u` if all values come from
/// one distribution.
fn tail(m: usize, n: usize, u: usize) -> f64 {
    // `ways[u]` is the number of orders of m and n values with U = u: the coefficients of the
    // Gaussian binomial.
    let most = m * n;
    let mut ways = vec![0.0f64; most + 1];
    ways[0] = 1.0;
    for k in 1..=m {
        for at in (n + k..=most).rev() {
            ways[at] -= ways[at - n - k];
        }
        for at in k..=most {
            ways[at] += ways[at - k];
        }
    }
    let all: f64 = ways.iter().sum();
    ways[u.min(most)..].iter().sum::<f64>() / all
}

/// The median; NaN for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => f64::NAN,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Mean of the n/4 + 1 lowest values: the lowest of three values, the lowest two of seven. Disturbances make readings
/// slower, so low values are best; but the single lowest of many may come from a misread clock.
pub fn low_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let lower = &sorted[..sorted.len().min(sorted.len() / 4 + 1)];
    lower.iter().sum::<f64>() / lower.len() as f64
}

/// Isotonic regression: returns the ascending values nearest to `values` by least squares, computed by pooling adjacent
/// violators (Ayer et al., Annals of Mathematical Statistics 26, 1955).
pub fn ascending(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values {
        let (mut mean, mut count) = (*value, 1);
        while let Some((before, many)) = pools.pop_if(|(before, _)| *before > mean) {
            mean = (before * many as f64 + mean * count as f64) / (many + count) as f64;
            count += many;
        }
        pools.push((mean, count));
    }
    pools.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count)).collect()
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Abscissa.
    pub x: f64,
    /// Ordinate.
    pub y: f64,
    /// The standard error of `y`.
    pub sigma: f64,
}

/// A segment of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Index of the segment's first point.
    pub first: usize,
    /// Index of the segment's last point.
    pub last: usize,
    /// Height of the segment if it is level; `None` if it slopes.
    pub level: Option<f64>,
}

impl Segment {
    /// Number of its points.
    pub fn points(&self) -> usize {
        self.last - self.first + 1
    }
}

/// Divides a curve into level and sloping segments by dynamic programming (Jackson et al., IEEE Signal Processing
/// Letters 12, 2005). Minimizes the sum of squared residuals, in standard errors, plus a penalty per parameter: that of
/// the Bayesian information criterion (Yao, Statistics & Probability Letters 6, 1988). A level segment has two
/// parameters (height and end), a sloping segment three.
pub fn segments(points: &[Point]) -> Vec<Segment> {
    let n = points.len();
    let penalty = (n.max(2) as f64).ln();
    let mut best = vec![(0.0, 0, None); n + 1];
    for end in 1..=n {
        best[end].0 = f64::INFINITY;
        let mut sums = Sums::default();
        for start in (0..end).rev() {
            sums.add(points[start]);
            let (level, flat) = sums.flat();
            let before = best[start].0;
            let mut offer = |cost: f64, level| {
                if cost < best[end].0 {
                    best[end] = (cost, start, level);
                }
            };
            offer(before + flat + 2.0 * penalty, Some(level));
            if end - start > 2 {
                offer(before + sums.sloping() + 3.0 * penalty, None);
            }
        }
    }
    let mut found = Vec::new();
    let mut end = n;
    while end > 0 {
        let (_, first, level) = best[end];
        found.push(Segment { first, last: end - 1, level });
        end = first;
    }
    found.reverse();
    found
}

/// Weighted sums over a segment.
#[derive(Default)]
struct Sums {
    w: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn add(&mut self, Point { x, y, sigma }: Point) {
        let w = sigma.powi(-2);
        self.w += w;
        self.x += w * x;
        self.y += w * y;
        self.xx += w * x * x;
        self.xy += w * x * y;
        self.yy += w * y * y;
    }

    /// Returns the best height, and the sum of its squared residuals.
    fn flat(&self) -> (f64, f64) {
        let height = self.y / self.w;
        (height, (self.yy - height * self.y).max(0.0))
    }

    /// Sum of the squared residuals of the best line.
    fn sloping(&self) -> f64 {
        let (sxx, sxy) = (self.xx - self.x * self.x / self.w, self.xy - self.x * self.y / self.w);
        let syy = self.yy - self.y * self.y / self.w;
        if sxx > 0.0 { (syy - sxy * sxy / sxx).max(0.0) } else { syy.max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rank_test_has_its_published_bounds() {
        // All values greater: probability 1 in 252 for 5 against 5, 1 in 12870 for 8 against 8.
        assert!((tail(5, 5, 25) - 1.0 / 252.0).abs() < 1e-12);
        assert!((tail(8, 8, 64) - 1.0 / 12870.0).abs() < 1e-12);
        // Critical values of U for 8 and 8, one-sided 0.05 and 0.01 (Mann and Whitney): 15 and 9.
        assert!(tail(8, 8, 64 - 15) <= 0.05 && tail(8, 8, 64 - 16) > 0.05);
        assert!(tail(8, 8, 64 - 9) <= 0.01 && tail(8, 8, 64 - 10) > 0.01);
    }

    #[test]
    fn equal_values_are_not_above_one_another() {
        assert!(!above(&[1.0; 8], &[1.0; 8]));
        assert!(above(&[1.1; 8], &[1.0; 8]));
        assert!(!above(&[0.9; 8], &[1.0; 8]));
    }

    #[test]
    fn a_staircase_is_divided_at_its_steps() {
        let height = |x: usize| {
            if x < 20 {
                0.0
            } else if x < 45 {
                7.0
            } else {
                x as f64 - 20.0
            }
        };
        let noise = |x: usize| (x * 7919 % 13) as f64 / 13.0 - 0.5;
        let points: Vec<Point> = (0..60)
            .map(|x| Point { x: x as f64, y: height(x) + 0.2 * noise(x), sigma: 0.1 })
            .collect();
        let found = segments(&points);
        let ends: Vec<usize> = found.iter().map(|one| one.last).collect();
        assert_eq!(ends, [19, 44, 59]);
        assert!(found[1].level.is_some_and(|level| (level - 7.0).abs() < 0.1));
        assert_eq!(found[2].level, None);
    }

    #[test]
    fn what_descends_is_pooled() {
        assert_eq!(ascending(&[1.0, 3.0, 2.0, 4.0]), [1.0, 2.5, 2.5, 4.0]);
        assert_eq!(ascending(&[3.0, 2.0, 1.0]), [2.0; 3]);
    }

    #[test]
    fn most_disturbances_do_not_move_the_low_value() {
        assert!((low_mean(&[5.0, 9.0, 5.1, 70.0, 8.0, 5.2, 40.0, 9.0]) - 5.1).abs() < 1e-9);
        assert_eq!(low_mean(&[3.0, 2.0, 1.0]), 1.0);
    }

    proptest! {
        #[test]
        fn segments_cover_the_curve(values in prop::collection::vec(-10.0f64..10.0, 1..40)) {
            let points: Vec<Point> = values
                .iter()
                .enumerate()
                .map(|(x, &y)| Point { x: x as f64, y, sigma: 1.0 })
                .collect();
            let found = segments(&points);
            prop_assert_eq!(found[0].first, 0);
            prop_assert_eq!(found[found.len() - 1].last, values.len() - 1);
            for pair in found.windows(2) {
                prop_assert_eq!(pair[0].last + 1, pair[1].first);
            }
        }
    }
}
