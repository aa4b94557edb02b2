//! Page walks: the cost of each further page-table entry, and the capacity of the page-walk caches.
//!
//! The measurement distributes a fixed set of pages over more and more regions. The pages are enough to miss every TLB
//! level, and form groups of eight whose leaf entries share a cache line. Up to the capacity of the walk cache the cost
//! is constant. Beyond it, a random access finds its region's entry in the walk cache with probability capacity /
//! regions, and otherwise reads one more entry.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::probe::{Place, ProbeError};

/// Cost of one more page-table level, and the capacity of the walk cache that avoids it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Number of page-table entries that a walk reads with this step; 2 if the step is the entry
    /// above the leaf table.
    pub reads: u32,
    /// Capacity of the walk cache for these entries; `None`: no bend found.
    #[serde(deserialize_with = "units::count")]
    pub entries: Option<u64>,
    /// Number of cycles that a miss in this walk cache costs; `None`: no bend found.
    #[serde(deserialize_with = "units::cycles")]
    pub cycles: Option<f64>,
    /// Pairs of a number of regions and the cycles per access.
    #[serde(deserialize_with = "units::cycles_more_or_less")]
    pub curve: Vec<(u64, f64)>,
}

/// Number of pages whose leaf entries share a cache line.
const GROUP: u64 = 8;
/// log2 of the number of entries of a page table.
const TABLE: u32 = 9;

/// Measures the steps above the leaf table, lowest first. `entries` is the number of entries of the
/// last TLB level.
pub(crate) fn steps(bench: &mut Bench, entries: u64) -> Result<Vec<Step>, ProbeError> {
    // Round down to a multiple of eight groups.
    let groups = (3 * entries).min(bench.offer.pages) / GROUP / GROUP * GROUP;
    let mut steps = Vec::new();
    for reads in 2..=4u32 {
        let region = 1u64 << (TABLE * (reads - 1));
        // At the lowest step a region has at most 64 groups. At other steps it has at most 512, assigned eight at a
        // time.
        let (parts, dealt) = if reads == 2 { (64, groups) } else { (64, groups / GROUP) };
        let least = dealt.div_ceil(parts).max(1);
        let most = dealt.min(bench.offer.span / region).min(512);
        if most < 4 * least {
            break;
        }
        let (first, second) = curves(bench, groups, reads, least..=most)?;
        // Report a bend only if it was found twice.
        let (entries, cycles) = match (bend(&first), bend(&second)) {
            (Some((a, up)), Some((b, _))) if 4 * a.abs_diff(b) <= a.max(b) => (Some(a), Some(up)),
            _ => (None, None),
        };
        let curve = first;
        steps.push(Step { reads, entries, cycles, curve });
    }
    Ok(steps)
}

/// Pairs of a number of regions and the cycles per access.
type Curve = Vec<(u64, f64)>;

/// Cycles per access against regions, in two curves measured alternately, because populating pages takes longer than
/// chasing them.
fn curves(
    bench: &mut Bench,
    groups: u64,
    reads: u32,
    range: RangeInclusive<u64>,
) -> Result<(Curve, Curve), ProbeError> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut regions = *range.start();
    while range.contains(&regions) {
        let places = places(bench, groups, regions, reads);
        first.push((regions, bench.least(&places)?));
        second.push((regions, bench.least(&places)?));
        regions = (regions + 1).max((regions as f64 * 1.2) as u64);
    }
    Ok((first, second))
}

/// Distributes the groups over `regions` regions of the level that a walk of `reads` entries reaches. Below this level
/// every group has its own tables. Except at the lowest step, eight groups at a time are adjacent, so that their
/// entries share a cache line and the cost of the lower entries stays constant.
pub(crate) fn places(bench: &Bench, groups: u64, regions: u64, reads: u32) -> Vec<Place> {
    let shape = bench.shape;
    let region = 1u64 << (TABLE * (reads - 1));
    let page = |index: u64| {
        let (group, within) = (index / GROUP, index % GROUP);
        let (at, part) = match reads {
            2 => (group % regions, group / regions),
            _ => {
                let (eight, within) = (group / GROUP, group % GROUP);
                (eight % regions, eight / regions * GROUP + within)
            }
        };
        // Rotate the position of a group in its leaf table, to use TLB sets evenly.
        let leaf = match reads {
            2 => (part + at * 37) % 64,
            _ => group * 37 % 64,
        };
        let part = if reads == 2 { 0 } else { part * (region >> TABLE) };
        at * region + part + leaf * GROUP + within
    };
    (0..groups * GROUP).map(|index| shape.place(page(index), index)).collect()
}

/// Finds the bend p of a + d · max(0, 1 - p / regions). Beyond four times the bend, the upper entries start to miss the
/// data caches, so the fit is repeated without that part until p is stable.
fn bend(curve: &[(u64, f64)]) -> Option<(u64, f64)> {
    let mut found = fit(curve)?;
    for _ in 0..4 {
        let near = curve.iter().take_while(|point| point.0 <= 4 * found.0).count();
        let Some(next) = fit(&curve[..near]) else { break };
        if next.0 == found.0 {
            break;
        }
        found = next;
    }
    Some(found)
}

/// Fits p and d by least squares, trying every p; `None` unless the Bayesian information criterion prefers the fit to a
/// constant, and d exceeds a cycle.
fn fit(curve: &[(u64, f64)]) -> Option<(u64, f64)> {
    let n = curve.len() as f64;
    let mean = curve.iter().map(|point| point.1).sum::<f64>() / n;
    let flat: f64 = curve.iter().map(|point| (point.1 - mean).powi(2)).sum();
    let (from, to) = (curve.first()?.0, curve.last()?.0);
    let fit = |p: u64| {
        let part = |regions: u64| (1.0 - p as f64 / regions as f64).max(0.0);
        let mx = curve.iter().map(|point| part(point.0)).sum::<f64>() / n;
        let sxx: f64 = curve.iter().map(|point| (part(point.0) - mx).powi(2)).sum();
        let sxy: f64 = curve.iter().map(|point| (part(point.0) - mx) * (point.1 - mean)).sum();
        (flat - sxy * sxy / sxx, p, sxy / sxx)
    };
    let best = (from..to * 9 / 10).map(fit).filter(|fit| fit.0.is_finite());
    let (left, entries, cycles) = best.min_by(|a, b| a.0.total_cmp(&b.0))?;
    // Readings are precise to half a cycle. Without this lower bound an exact curve would have no
    // noise.
    let noise = 0.25 * n;
    let better = n * ((flat + noise) / (left + noise)).ln() > 2.0 * n.ln();
    (better && cycles > 1.0 && entries > from).then_some((entries, cycles))
}
