//! Computes how much equal runs vary. Pure.

use crate::sample::{Purpose, Sample};
use crate::stats::describe;

/// Standard deviation, as a share of the mean, above which equal runs differ too much.
pub const MAX_DEVIATION: f64 = 0.05;

/// The arm and the metric whose measured runs vary most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Widest {
    /// Index of the arm.
    pub arm: u32,
    /// Index of the metric, as in [`Sample::metric_at`].
    pub metric: usize,
    /// The standard deviation as a share of the mean.
    pub deviation: f64,
}

/// Returns the largest standard deviation of an arm's values; `None` if no arm has two runs with values.
pub fn widest(samples: &[Sample], arms: u32, metrics: usize) -> Option<Widest> {
    let pairs = (0..arms).flat_map(|arm| (0..metrics).map(move |metric| (arm, metric)));
    let all = pairs.filter_map(|(arm, metric)| {
        let is_measured = |one: &&Sample| one.arm == arm && one.purpose == Purpose::Measured;
        let runs = samples.iter().filter(is_measured);
        let values: Vec<f64> = runs.filter_map(|one| one.metric_at(metric)).collect();
        let deviation = describe::variance(&values).sqrt() / describe::mean(&values);
        deviation.is_finite().then_some(Widest { arm, metric, deviation })
    });
    all.max_by(|a, b| a.deviation.total_cmp(&b.deviation))
}
