//! Walks: what each further page-table entry costs, and how many the walk caches keep.
//!
//! The same pages, enough to miss every TLB level, in groups of eight whose leaf entries share a cache
//! line, are dealt to more and more regions. Up to the walk cache's size nothing changes; beyond it
//! accesses of a random order find their region's entry there with probability size / regions, and
//! otherwise read one entry more.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::probe::{Place, ProbeError};

/// What one step up the page table costs, and the cache that saves it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Page-table entries that a walk reads with this step: 2 for the entry above the leaf's table.
    pub reads: u32,
    /// What the walk caches keep of such entries; `None`: no change shows.
    #[serde(deserialize_with = "units::count")]
    pub entries: Option<u64>,
    /// Cycles of the step when it is not saved; `None`: no change shows.
    #[serde(deserialize_with = "units::cycles")]
    pub cycles: Option<f64>,
    /// Regions and cycles per access.
    #[serde(deserialize_with = "units::cycles_more_or_less")]
    pub curve: Vec<(u64, f64)>,
}

/// Pages whose leaf entries share a line.
const GROUP: u64 = 8;
/// log2 of the entries of a table.
const TABLE: u32 = 9;

/// The steps above the leaf's table, lowest first. `entries` are those of the last TLB level.
pub(crate) fn steps(bench: &mut Bench, entries: u64) -> Result<Vec<Step>, ProbeError> {
    // Whole eights of groups.
    let groups = (3 * entries).min(bench.offer.pages) / GROUP / GROUP * GROUP;
    let mut steps = Vec::new();
    for reads in 2..=4u32 {
        let region = 1u64 << (TABLE * (reads - 1));
        // At the lowest step a region has 64 groups at most, and 512 at the others, dealt by eights.
        let (parts, dealt) = if reads == 2 { (64, groups) } else { (64, groups / GROUP) };
        let least = dealt.div_ceil(parts).max(1);
        let most = dealt.min(bench.offer.span / region).min(512);
        if most < 4 * least {
            break;
        }
        let (first, second) = curves(bench, groups, reads, least..=most)?;
        // Told only if it is found twice.
        let (entries, cycles) = match (bend(&first), bend(&second)) {
            (Some((a, up)), Some((b, _))) if 4 * a.abs_diff(b) <= a.max(b) => (Some(a), Some(up)),
            _ => (None, None),
        };
        let curve = first;
        steps.push(Step { reads, entries, cycles, curve });
    }
    Ok(steps)
}

/// Regions and cycles per access.
type Curve = Vec<(u64, f64)>;

/// Cycles per access against regions, twice, in turn: to populate the pages takes longer than to chase them.
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

/// The groups dealt to `regions` regions of the level that a walk of `reads` entries reads up to. Below
/// that level every group has tables of its own, and above the lowest step eight groups at a time are
/// neighbours, their entries sharing a line: so what the lower entries cost does not change.
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
        // Where in its leaf table a group lies goes round, so that TLB sets are used evenly.
        let leaf = match reads {
            2 => (part + at * 37) % 64,
            _ => group * 37 % 64,
        };
        let part = if reads == 2 { 0 } else { part * (region >> TABLE) };
        at * region + part + leaf * GROUP + within
    };
    (0..groups * GROUP).map(|index| shape.place(page(index), index)).collect()
}

/// The bend of a + d · max(0, 1 - p / regions). Beyond four times the bend the upper entries begin to miss
/// the data caches, so it is looked for again without what lies there, until it stays.
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

/// p and d by least squares over all p, if that explains the curve better than a constant by the Bayesian
/// information criterion, and by a cycle.
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
    // Readings are good to half a cycle; without a floor an exact curve would have no noise at all.
    let noise = 0.25 * n;
    let better = n * ((flat + noise) / (left + noise)).ln() > 2.0 * n.ln();
    (better && cycles > 1.0 && entries > from).then_some((entries, cycles))
}
