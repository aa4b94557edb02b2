//! Where a level ends: by footprints around the place, read in turn, nearer and nearer. Nothing is decided by one
//! comparison alone, as a bisection does, which a neighbour's burst at one step leads astray for good.
//! See docs/decisions/tlb.md#2 and #7.

use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Side};
use crate::levels::{Plateau, Sample};
use crate::probe::ProbeError;
use crate::statistics::{ascending, median};

/// The pages that a level keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How many.
    pub entries: u64,
    /// Where it may as well lie. Of a level that ends with its first miss: what the noise allows. Of one that
    /// misses ever more (sets drawn by a hash): from the first misses to where half of the accesses miss.
    pub range: (u64, u64),
    /// Whether it ends with its first miss.
    pub sharp: bool,
}

/// Where [`REACHED`] of a step follows the first miss within this part of a level's entries, the first miss is its
/// end: a level of four ways takes a fortieth, a fully associative one that evicts at random a twentieth.
const STEEP: u64 = 16;
/// Where misses come slowly, a level ends where they cost this part of the next step.
const REACHED: f64 = 0.1;
/// What a level costs more than at its reference by this part of the next step, misses.
const MISSES: f64 = 0.02;
/// Up to here the cost of a level that overflows set after set grows in proportion.
const RAMP: f64 = 0.3;
/// Footprints of one survey, and surveys until an end is given up.
const POINTS: u64 = 16;
const SURVEYS: usize = 12;
/// Further surveys of a place where noise hides the end.
const AGAIN: usize = 2;

/// Cycles beyond the plateau's, against pages.
type Survey = Vec<(u64, f64)>;

/// The pages that a level holds; `None`: it does not end before `limit`. `rise` is the height of the next step.
///
/// A level of sets that evicts the least recently used answers a chase to its last entry, and then ever fewer:
/// it ends with the first miss. One whose sets are drawn by a hash misses a little long before (Zen 5's second:
/// 0.1 to 0.3 of 36 cycles from half of its 4,096 entries on), and where exactly is a matter of chance: it ends
/// where a tenth of the step is reached.
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
    // A footprint of the curve more on either side.
    let mut low = at(reached.saturating_sub(2)).max(plateau.first);
    let mut high = at(reached + 1).min(limit).max(low + 1);
    // What many pages cost without a miss is in both then.
    let reference = match bench.side {
        Side::Loads => plateau.reference,
        Side::Jumps => (at(reached) * 4 / 5).max(plateau.first),
    };
    let (mut sharp, mut coarse, mut feet) = (None, None, Vec::new());
    for _ in 0..SURVEYS {
        let step = (high - low).div_ceil(POINTS);
        let survey = survey(bench, reference, low, high, step)?;
        let width = high - low;
        match judge(&survey, rise, sharp) {
            // The curve misled.
            Found::Before if low <= plateau.first.max(2) => return Ok(None),
            Found::Before => {
                (low, high) =
                    (low.saturating_sub(width).max(plateau.first.min(low - 1)), low + step);
            }
            Found::Beyond if high >= limit => return Ok(None),
            Found::Beyond => (low, high) = (high - step, (high + width).min(limit)),
            // Noise may look so, once.
            Found::Gradual(entries) if sharp.is_none() && feet.is_empty() => feet.push(entries),
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
            Found::Sharp(entries, either) => {
                if sharp.is_none() {
                    feet.clear();
                }
                sharp = Some(true);
                coarse = coarse.or(Some((entries, step.max(either))));
                // Nearer than the noise allows there is nothing to see, but more often.
                if step > 1 && either >= 2 * step && feet.len() < AGAIN {
                    feet.push(entries);
                    continue;
                }
                if step == 1 || either >= 2 * step {
                    feet.push(entries);
                    feet.sort_unstable();
                    let entries = feet[feet.len() / 2];
                    let range = (entries.saturating_sub(either), entries + either);
                    return Ok(Some(End { entries, range, sharp: true }));
                }
                feet.clear();
                let around = step + either + 2;
                (low, high) =
                    (entries.saturating_sub(around).max(1), (entries + around).min(limit));
            }
        }
        if low >= high {
            break;
        }
    }
    // Nearer it was not found.
    Ok(coarse.map(|(entries, step)| {
        let range = (entries.saturating_sub(step), entries + step);
        End { entries, range, sharp: true }
    }))
}

/// Reads the footprints from `low` to `high`, `step` apart, in turn.
fn survey(
    bench: &mut Bench,
    reference: u64,
    low: u64,
    high: u64,
    step: u64,
) -> Result<Survey, ProbeError> {
    let mut pages = vec![reference];
    pages.extend((low..=high).step_by(step as usize));
    let excess = bench.in_turn(&pages)?;
    let base = excess[0];
    Ok(pages
        .into_iter()
        .zip(excess)
        .skip(1)
        .map(|(pages, excess)| (pages, excess - base))
        .collect())
}

/// What a survey says of the end.
enum Found {
    /// It lies before.
    Before,
    /// It lies beyond.
    Beyond,
    /// So many entries and the first miss, give or take so many.
    Sharp(u64, u64),
    /// So many entries, and misses long before.
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
    // The ramp, up to where it leaves proportion, and its foot.
    let ramp = smooth.iter().take_while(|excess| **excess < RAMP * rise).count();
    if ramp == 0 {
        return Found::Before;
    }
    let (foot, slope) = hinge(&survey[..ramp]);
    // Where all sets overflow at once there is no ramp: what follows is far above it.
    let steep = |(next, excess): &(u64, f64)| 4.0 * slope * ((next - foot) as f64) < *excess;
    if survey.get(ramp).is_some_and(steep) {
        return Found::Sharp(pages(ramp - 1), 0);
    }
    // Flat parts need not be quite at the reference's height.
    let flats: Vec<f64> =
        raw[..ramp].iter().zip(&survey).filter(|(_, at)| at.0 <= foot).map(|(e, _)| *e).collect();
    let height = if flats.len() >= 3 { median(&flats) } else { 0.0 };
    let left = left_by(&survey[..ramp], foot, slope);
    let sigma = noise(if flats.len() >= 4 { &flats } else { &left });
    // The first translation too many drives out another: two pages miss at least.
    let first = rise / foot as f64;
    if slope <= 0.0 || smooth[smooth.len() - 1] - height < first.max(4.0 * sigma) {
        return Found::Beyond;
    }
    // Where noise hides the first miss, the ramp as a whole tells. A set that evicts by a tree of bits, given one page too
    // many, may answer some of them: in the order in which the fewest miss, a third of what the next set costs (one run
    // in twelve found 97 entries of 96).
    let either = (2.5 * sigma / slope).ceil() as u64;
    let least = if sigma > 0.0 { slope / 4.0 } else { first.min(slope / 4.0) };
    match smooth.iter().position(|excess| *excess - height > least) {
        _ if foot == pages(0) => Found::Before,
        Some(over) if over > 0 && 2.5 * sigma <= least => {
            Found::Sharp(foot.clamp(pages(over - 1), pages(over) - 1), 0)
        }
        _ => Found::Sharp(foot, either),
    }
}

/// What a ramp leaves of the values.
fn left_by(points: &[(u64, f64)], foot: u64, slope: f64) -> Vec<f64> {
    let left = |(pages, excess): &(u64, f64)| excess - slope * pages.saturating_sub(foot) as f64;
    points.iter().map(left).collect()
}

/// Where a level that misses ever more has [`REACHED`]: by the line through the footprints around it, and no further
/// than these reach.
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

/// The values, without those that lie far above the second least of all that follow: what descends again was a
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

/// How far neighbouring values lie apart where nothing changes: the median of their differences.
fn noise(values: &[f64]) -> f64 {
    let apart: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    if apart.is_empty() { 0.0 } else { median(&apart) }
}

/// The foot and the slope of max(0, s · (pages - foot)), by least squares; without a slope the last point.
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
    // Of equals, the last.
    let best =
        (first..=last).rev().map(fit).min_by(|a, b| a.0.total_cmp(&b.0)).expect("one at least");
    (best.1, best.2)
}
