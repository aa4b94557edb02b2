//! What published rows say without the model: how fast they could be if faults took no time, and in which order the
//! patches stand. See docs/decisions/faults.md#8 and #13.

use serde::Serialize;

use super::Line;

/// Of one set of patches and amount of memory, at its largest numbers of threads.
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
    /// Published pages by the clock.
    pub pages_per_wall_second: f64,
    /// Published CPU time over time by the clock: CPUs that were busy on average.
    pub busy_cpus: f64,
    /// Pages by the clock if all CPU time of the threads had been nothing: what is left are starting, waiting and unmapping.
    pub at_most: f64,
}

/// Pairs of patches at the same number of threads and amount of memory that the published rows separate by more than
/// 5 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Order {
    /// All.
    pub pairs: u32,
    /// Those whose simulated rows are in the published order.
    pub right: u32,
}

/// Two published rates are apart by more than this factor.
const MIN_DIFFERENCE: f64 = 1.05;
/// Threads from which a bound says something: with fewer, nearly all of the time is CPU time.
const MIN_THREADS: u32 = 32;

/// The bounds of every row with many threads.
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

/// How many pairs of patches are in their published order; `None` without any.
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
            if published > MIN_DIFFERENCE {
                order.pairs += 1;
                let is_right = higher.row.pages_per_wall_second > lower.row.pages_per_wall_second;
                order.right += u32::from(is_right);
            }
        }
    }
    (order.pairs > 0).then_some(order)
}
