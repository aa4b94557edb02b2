//! The end of a level: surveys of the footprints around it, read in turn and refined. No single comparison decides; a
//! bisection could be misled by one burst of load from a neighbour. See docs/decisions/tlb.md#2 and #7.

use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Side};
use crate::levels::{Plateau, Sample};
use crate::probe::ProbeError;
use crate::statistics::{ascending, median};

/// The capacity of a level in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Number of entries.
    pub entries: u64,
    /// Confidence range of `entries`. For a sharp end it reflects noise; for a gradual end (hashed sets) it reaches
    /// from the first misses to where half of the accesses miss.
    pub range: (u64, u64),
    /// Whether the level misses abruptly when it is full.
    pub sharp: bool,
}

/// An end is sharp if the cost reaches the share [`REACHED`] of the step within 1/STEEP of the level's entries after
/// the first miss. A level of four ways needs a fortieth of its entries; a fully associative level with random
/// replacement needs a twentieth.
const STEEP: u64 = 16;
/// A gradual end is the footprint at which misses reach this share of the next step.
const REACHED: f64 = 0.1;
/// A level misses at footprints whose cost exceeds the cost at its reference by this share of the
/// next step.
const MISSES: f64 = 0.02;
/// If the sets of a level overflow one after the other, the cost grows linearly up to this share of the step.
const RAMP: f64 = 0.3;
/// Number of footprints per survey.
const POINTS: u64 = 16;
/// Maximum number of surveys.
const SURVEYS: usize = 12;
/// Maximum number of repeated surveys if noise hides the end.
const MAX_REPEATS: usize = 2;

/// Pairs of a number of pages and the cycles above the plateau.
type Survey = Vec<(u64, f64)>;

/// Finds the end of a level; `None` if it is beyond `limit`. `rise` is the height of the next step.
///
/// In a cyclic chase an LRU level with indexed sets hits until it is full, and then less and less. Its end is the first
/// miss. A level with hashed sets has a few misses long before it is full, starting at a random footprint (Zen 5's
/// second level: 0.1 to 0.3 of 36 cycles from half of its 4,096 entries on). Its end is where the cost reaches a tenth
/// of the step.
pub(crate) fn end(
    bench: &mut Bench,
    plateau: &Plateau,
    curve: &[Sample],
    limit: u64,
    rise: f64,
) -> Result<Option<End>, ProbeError> {
    let after: Vec<&Sample> = curve.iter().filter(|s| s.pages >= plateau.first).collect();
    let excess: Vec<f64> = after.iter().map(|s| s.excess() - plateau.height).collect();
    let smooth = ascending(&undisturbed(&excess));
    let slack = bench.side.slack();
    let crossing = |part: f64| smooth.iter().position(|excess| *excess >= slack.max(part * rise));
    let Some(reached) = crossing(REACHED) else { return Ok(None) };
    let at = |index: usize| after[index.min(after.len() - 1)].pages;
    // Extend by one footprint of the curve on either side.
    let mut low = at(reached.saturating_sub(2)).max(plateau.first);
    let mut high = at(reached + 1).min(limit).max(low + 1);
    // For jumps, take a large reference, so that both footprints contain the cost of many pages
    // without a miss.
    let reference = match bench.side {
        Side::Loads => plateau.reference,
        Side::Jumps => (at(reached) * 4 / 5).max(plateau.first),
    };
    let (mut sharp, mut coarse, mut candidates) = (None, None, Vec::new());
    for _ in 0..SURVEYS {
        let step = (high - low).div_ceil(POINTS);
        let survey = survey(bench, reference, low, high, step)?;
        let width = high - low;
        match judge(&survey, rise, sharp) {
            // The curve misled: search further below.
            Found::Before if low <= plateau.first.max(2) => return Ok(None),
            Found::Before => {
                (low, high) =
                    (low.saturating_sub(width).max(plateau.first.min(low - 1)), low + step);
            }
            Found::Beyond if high >= limit => return Ok(None),
            Found::Beyond => (low, high) = (high - step, (high + width).min(limit)),
            // Noise may look like a gradual end, so require two surveys that find one.
            Found::Gradual(entries) if sharp.is_none() && candidates.is_empty() => {
                candidates.push(entries)
            }
            Found::Gradual(entries) if step <= (entries / 24).max(1) => {
                let first = crossing(MISSES).map_or(entries, |first| at(first.max(1) - 1));
                let half = crossing(0.5).map_or(limit, at);
                let range = (first.min(entries), half.max(entries));
                return Ok(Some(End { entries, range, sharp: false }));
            }
            Found::Gradual(entries) => {
                sharp = Some(false);
                (low, high) = (entries.saturating_sub(2 * step), (entries + 2 * step).min(limit));
            }
            Found::Sharp(entries, uncertainty) => {
                if sharp.is_none() {
                    candidates.clear();
                }
                sharp = Some(true);
                coarse = coarse.or(Some((entries, step.max(uncertainty))));
                // Noise limits the resolution, so repeat this survey instead of refining it.
                if step > 1 && uncertainty >= 2 * step && candidates.len() < MAX_REPEATS {
                    candidates.push(entries);
                    continue;
                }
                if step == 1 || uncertainty >= 2 * step {
                    candidates.push(entries);
                    candidates.sort_unstable();
                    let entries = candidates[candidates.len() / 2];
                    let range = (entries.saturating_sub(uncertainty), entries + uncertainty);
                    return Ok(Some(End { entries, range, sharp: true }));
                }
                candidates.clear();
                let around = step + uncertainty + 2;
                (low, high) =
                    (entries.saturating_sub(around).max(1), (entries + around).min(limit));
            }
        }
        if low >= high {
            break;
        }
    }
    // The finer surveys did not find the end, so use the coarse result.
    Ok(coarse.map(|(entries, step)| {
        let range = (entries.saturating_sub(step), entries + step);
        End { entries, range, sharp: true }
    }))
}

/// Reads the footprints from `low` to `high` with distance `step`, in turn.
fn survey(
    bench: &mut Bench,
    reference: u64,
    low: u64,
    high: u64,
    step: u64,
) -> Result<Survey, ProbeError> {
    let mut pages = vec![reference];
    pages.extend((low..=high).step_by(step as usize));
    let excess = bench.translation_costs(&pages)?;
    let base = excess[0];
    Ok(pages
        .into_iter()
        .zip(excess)
        .skip(1)
        .map(|(pages, excess)| (pages, excess - base))
        .collect())
}

/// The result of a survey.
enum Found {
    /// The end lies below the survey.
    Before,
    /// The end lies above the survey.
    Beyond,
    /// Number of entries before the first miss, and its uncertainty in pages.
    Sharp(u64, u64),
    /// Number of entries of a gradual end.
    Gradual(u64),
}

fn judge(survey: &Survey, rise: f64, known: Option<bool>) -> Found {
    let raw: Vec<f64> = survey.iter().map(|(_, excess)| *excess).collect();
    let raw = undisturbed(&raw);
    let survey: Survey = survey.iter().zip(&raw).map(|((pages, _), raw)| (*pages, *raw)).collect();
    let smooth = ascending(&raw);
    let pages = |index: usize| survey[index].0;
    let crossing = |least: f64| smooth.iter().position(|excess| *excess >= least);
    if known != Some(true) {
        let Some(reached) = crossing(REACHED * rise) else { return Found::Beyond };
        if reached == 0 {
            return Found::Before;
        }
        let first = crossing((MISSES * rise).max(noise(&raw[..reached]))).unwrap_or(reached);
        let last = pages(reached) - 1;
        if known == Some(false) || pages(first.max(1) - 1) < last - last / STEEP && first < reached
        {
            return Found::Gradual(crossing_of(&survey, &smooth, rise, reached));
        }
    }
    // Fit the linear ramp and find its foot.
    let ramp = smooth.iter().take_while(|excess| **excess < RAMP * rise).count();
    if ramp == 0 {
        return Found::Before;
    }
    let (foot, slope) = hinge(&survey[..ramp]);
    // If all sets overflow at once there is no ramp, and the next value is far above the fit.
    let steep = |(next, excess): &(u64, f64)| 4.0 * slope * ((next - foot) as f64) < *excess;
    if survey.get(ramp).is_some_and(steep) {
        return Found::Sharp(pages(ramp - 1), 0);
    }
    // The height of the flat part may differ slightly from the reference.
    let flats: Vec<f64> =
        raw[..ramp].iter().zip(&survey).filter(|(_, at)| at.0 <= foot).map(|(e, _)| *e).collect();
    let height = if flats.len() >= 3 { median(&flats) } else { 0.0 };
    let left = residuals(&survey[..ramp], foot, slope);
    let sigma = noise(if flats.len() >= 4 { &flats } else { &left });
    // The first excess page evicts another page, so at least two pages miss.
    let first = rise / foot as f64;
    if slope <= 0.0 || smooth[smooth.len() - 1] - height < first.max(4.0 * sigma) {
        return Found::Beyond;
    }
    // If noise hides the first miss, use the whole ramp. With tree-PLRU replacement, a set with one excess page still
    // hits for some of its pages: in the best order it costs only a third of a set. (One run in twelve found 97 entries
    // instead of 96.)
    let uncertainty = (2.5 * sigma / slope).ceil() as u64;
    let least = if sigma > 0.0 { slope / 4.0 } else { first.min(slope / 4.0) };
    match smooth.iter().position(|excess| *excess - height > least) {
        _ if foot == pages(0) => Found::Before,
        Some(over) if over > 0 && 2.5 * sigma <= least => {
            Found::Sharp(foot.clamp(pages(over - 1), pages(over) - 1), 0)
        }
        _ => Found::Sharp(foot, uncertainty),
    }
}

fn residuals(points: &[(u64, f64)], foot: u64, slope: f64) -> Vec<f64> {
    let left = |(pages, excess): &(u64, f64)| excess - slope * pages.saturating_sub(foot) as f64;
    points.iter().map(left).collect()
}

/// Interpolates where a gradual end reaches [`REACHED`], by a line through the footprints around it, clamped to these
/// footprints.
fn crossing_of(survey: &Survey, smooth: &[f64], rise: f64, reached: usize) -> u64 {
    let near = |excess: f64| (REACHED / 4.0 * rise..2.5 * REACHED * rise).contains(&excess);
    let mut points: Vec<(u64, f64)> = Vec::new();
    points.extend(survey.iter().zip(smooth).filter(|(_, s)| near(**s)).map(|(point, _)| *point));
    if points.len() < 4 {
        points = survey[reached - 1..=reached].to_vec();
    }
    let n = points.len() as f64;
    let mx = points.iter().map(|point| point.0 as f64).sum::<f64>() / n;
    let my = points.iter().map(|point| point.1).sum::<f64>() / n;
    let sxy: f64 = points.iter().map(|(x, y)| (*x as f64 - mx) * (y - my)).sum();
    let sxx: f64 = points.iter().map(|(x, _)| (*x as f64 - mx).powi(2)).sum();
    let at = if sxy > 0.0 { mx + (REACHED * rise - my) * sxx / sxy } else { mx };
    at.clamp(points[0].0 as f64, points[points.len() - 1].0 as f64) as u64
}

/// Replaces values that are far above the second lowest of all later values: if a cost falls again, it was a
/// disturbance.
fn undisturbed(values: &[f64]) -> Vec<f64> {
    let (mut least, mut second) = (f64::INFINITY, f64::INFINITY);
    let far = 4.0 * noise(values);
    let mut kept = values.to_vec();
    for value in kept.iter_mut().rev() {
        let read = *value;
        if read > second + far {
            *value = second;
        }
        (least, second) = if read < least { (read, least) } else { (least, second.min(read)) };
    }
    kept
}

/// Noise: the median difference of adjacent values.
fn noise(values: &[f64]) -> f64 {
    let apart: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    if apart.is_empty() { 0.0 } else { median(&apart) }
}

/// Fits max(0, s · (pages - foot)) by least squares, and returns foot and slope. If there is no slope, the foot is the
/// last point.
fn hinge(points: &[(u64, f64)]) -> (u64, f64) {
    let (first, last) = (points[0].0, points[points.len() - 1].0);
    let fit = |foot: u64| {
        let x = |pages: u64| pages.saturating_sub(foot) as f64;
        let xx: f64 = points.iter().map(|(pages, _)| x(*pages).powi(2)).sum();
        let xy: f64 = points.iter().map(|(pages, excess)| x(*pages) * excess).sum();
        let slope = if xx > 0.0 { (xy / xx).max(0.0) } else { 0.0 };
        let left: f64 = points.iter().map(|(p, excess)| (excess - slope * x(*p)).powi(2)).sum();
        (left, foot, slope)
    };
    // Among equal fits, take the largest foot.
    let best =
        (first..=last).rev().map(fit).min_by(|a, b| a.0.total_cmp(&b.0)).expect("one at least");
    (best.1, best.2)
}
