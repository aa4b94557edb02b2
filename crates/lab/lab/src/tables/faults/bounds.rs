//! Conclusions from the published rows without the model: the possible speed if faults took no time, and the order of
//! the patches. See docs/decisions/faults.md#8 and #13.

use serde::Serialize;

use super::super::{Separation, separation};
use super::Line;

/// Bound of a set of patches and an amount of memory, at a large number of threads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// The patches.
    pub patches: String,
    /// Memory touched in each repetition.
    pub bytes: u64,
    /// Repetitions.
    pub repetitions: u32,
    /// Threads.
    pub threads: u32,
    /// Published pages per wall-clock second.
    pub pages_per_wall_second: f64,
    /// Published CPU time per wall-clock time: the average number of busy CPUs.
    pub busy_cpus: f64,
    /// Pages per wall-clock second if the threads needed no CPU time, only starting, waiting and unmapping.
    pub at_most: f64,
}

/// Agreement on pairs of patches under the same conditions whose published rates differ by more than 5 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Number of pairs.
    pub pairs: u32,
    /// Number of pairs whose simulated rows have the published order, at least half as far apart (of the logarithm of
    /// the ratio).
    pub right: u32,
}

/// Minimum number of threads for a bound: with fewer, nearly all of the time is CPU time.
const MIN_THREADS: u32 = 32;

/// Computes the bounds of every row with many threads.
pub(super) fn of(lines: &[Line]) -> Vec<Bound> {
    let bound = |line: &Line| {
        let published = &line.published;
        let (wall, cpu) = (published.pages_per_wall_second, published.pages_per_cpu_second);
        let idle = 1.0 / wall - 1.0 / cpu / f64::from(published.threads);
        (published.threads >= MIN_THREADS && idle > 0.0).then(|| Bound {
            patches: published.patches.clone(),
            bytes: published.bytes,
            repetitions: published.repetitions,
            threads: published.threads,
            pages_per_wall_second: wall,
            busy_cpus: wall / cpu,
            at_most: 1.0 / idle,
        })
    };
    lines.iter().filter_map(bound).collect()
}

/// Returns the agreement on the order of pairs, or `None` without pairs.
pub(super) fn order<'a>(lines: impl Iterator<Item = &'a Line> + Clone) -> Option<Order> {
    let condition = |line: &Line| {
        let published = &line.published;
        (published.bytes, published.repetitions, published.threads, published.cache_lines)
    };
    let mut order = Order { pairs: 0, right: 0 };
    for higher in lines.clone() {
        for lower in lines.clone().filter(|lower| condition(lower) == condition(higher)) {
            let published =
                higher.published.pages_per_wall_second / lower.published.pages_per_wall_second;
            let simulated = higher.row.pages_per_wall_second / lower.row.pages_per_wall_second;
            if let Some(separation) = separation(published, simulated) {
                order.pairs += 1;
                order.right += u32::from(separation == Separation::Right);
            }
        }
    }
    (order.pairs > 0).then_some(order)
}
