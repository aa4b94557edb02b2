//! Levels: a curve of latency against footprint, divided into plateaus, and where each ends to the page.
//! See docs/decisions/tlb.md#8.

use workload::rng::SplitMix64;

use crate::agree::Cost;
use crate::bench::{Bench, Reading, Side, combined};
use crate::end::{End, end};
use crate::probe::ProbeError;
use crate::statistics::{self, Point, Segment};

/// A plateau is at least this many points and spans at least this factor of pages; the first and the
/// curve of very few pages aside.
const PLATEAU_POINTS: usize = 3;
/// A point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub pages: u64,
    /// Cycles per access, one line in each page.
    pub spread: f64,
    /// Cycles per access, as many lines in few pages.
    pub packed: f64,
    /// How far the readings lie apart: from the low one to the median.
    pub apart: f64,
}

impl Sample {
    pub fn excess(&self) -> f64 {
        self.spread - self.packed
    }

    /// What to think of its precision: a clock's tick in a chase, what is left of disturbances, and how far the
    /// readings lie apart.
    fn sigma(&self) -> f64 {
        0.05 + 0.005 * self.spread + 0.5 * self.apart
    }
}

/// A stretch of the curve at one height.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plateau {
    pub first: u64,
    pub last: u64,
    /// Where its height is best read: before data caches ran out under it.
    pub middle: u64,
    pub height: f64,
    /// The middle of its last part, after data caches ran out: what its end is held against.
    pub reference: u64,
    /// The control's height: what steps from plateau to plateau are held against.
    packed: f64,
}

/// What one curve says.
#[derive(Debug, Clone)]
pub(crate) struct Staircase {
    pub curve: Vec<Sample>,
    /// Where each TLB level ends, first to last; `None` for the last if the curve ends before it does.
    pub ends: Vec<Option<End>>,
    /// What a hit in each costs beyond one in the first.
    pub hits: Vec<Cost>,
    /// The share of resamples of the curve's rounds that have the same levels.
    pub confidence: f64,
}

impl Staircase {
    /// Where the last level ends.
    pub fn last(&self) -> Option<End> {
        *self.ends.last()?
    }
}

/// Resamples of a curve's rounds.
const RESAMPLES: usize = 40;
/// More rounds are made while fewer resamples than this agree.
const CONFIDENT: f64 = 0.95;

/// Footprints of a curve.
fn grid(limit: u64, step: f64) -> Vec<u64> {
    let mut pages: Vec<u64> = (2..=16).collect();
    let mut at = 16.0f64;
    while at < limit as f64 {
        at *= step;
        pages.push(at.round() as u64);
    }
    pages.retain(|pages| *pages <= limit);
    pages.dedup();
    pages
}

/// Measures the curve, finds its levels and where they end. More rounds are made, over other memory, while
/// resamples of those there are would find other levels.
pub(crate) fn staircase(
    bench: &mut Bench,
    typical: Option<(f64, f64)>,
) -> Result<Staircase, ProbeError> {
    let limit = bench.offer.pages.min(bench.offer.span).min(bench.effort.most_pages);
    let grid = grid(limit, bench.effort.step);
    let (least, most) = bench.effort.rounds;
    let mut rounds: Vec<Vec<Reading>> = Vec::new();
    loop {
        // Readings are kept as they are.
        bench.first = None;
        rounds.push(bench.round(&grid)?);
        if rounds.len() < least {
            continue;
        }
        let mut curve = combined(&grid, &rounds);
        let plateaus = first_level(bench, &mut curve, limit)?;
        let mut known = tlb_levels(bench, plateaus, typical)?;
        if bench.side == Side::Jumps {
            known.truncate(1);
        }
        let confidence = confidence(bench, &grid, &rounds, &known);
        if confidence >= CONFIDENT || rounds.len() >= most || !bench.has_time() {
            let hits = hits(bench, &grid, &rounds, &known);
            let ends = ends(bench, &curve, &known, limit)?;
            return Ok(Staircase { curve, ends, hits, confidence });
        }
        bench.renew()?;
    }
}

/// The plateaus of the curve, freed of what the first level's misses cost the control, which is known only when
/// the first level is.
fn first_level(
    bench: &mut Bench,
    curve: &mut [Sample],
    limit: u64,
) -> Result<Vec<Plateau>, ProbeError> {
    let plateaus = plateaus(curve, bench.side.least_step());
    let [first, second, ..] = plateaus[..] else { return Ok(plateaus) };
    let rise = second.height - first.height;
    let lines = bench.shape.page_lines();
    // Footprints whose control has more pages than the first level has entries.
    if curve.last().is_none_or(|last| last.pages.div_ceil(lines) <= first.last) {
        return Ok(plateaus);
    }
    let Some(End { entries, .. }) = end(bench, &first, curve, limit, rise)? else {
        return Ok(plateaus);
    };
    bench.first = Some((entries, rise));
    relieve(bench, curve);
    Ok(self::plateaus(curve, bench.side.least_step()))
}

/// Takes from the control what translation costs it.
fn relieve(bench: &Bench, curve: &mut [Sample]) {
    for sample in curve {
        sample.packed -= bench.control(sample.pages);
    }
}

/// Where the levels end.
fn ends(
    bench: &mut Bench,
    curve: &[Sample],
    known: &[Plateau],
    limit: u64,
) -> Result<Vec<Option<End>>, ProbeError> {
    let least = bench.side.least_step();
    // What lies beyond the last level: the curve at half as many pages again as where it has left it for good,
    // where page tables are still cached.
    let beyond = |level: &Plateau| {
        let above = |sample: &&Sample| sample.excess() > level.height + least;
        let left = curve.iter().rev().take_while(above).last();
        let far = left.map_or(u64::MAX, |sample| sample.pages / 2 * 3);
        curve.iter().find(|sample| sample.pages >= far).or(curve.last()).map_or(0.0, Sample::excess)
    };
    let mut ends = Vec::new();
    for (index, level) in known.iter().enumerate() {
        let next = known.get(index + 1).map_or_else(|| beyond(level), |next| next.height);
        let rise = next - level.height;
        let found = if rise < least { None } else { end(bench, level, curve, limit, rise)? };
        if let (0, Some(found)) = (index, found) {
            bench.first = Some((found.entries, rise));
        }
        ends.push(found);
    }
    Ok(ends)
}

/// Curves of rounds drawn with replacement (Efron's bootstrap).
fn resamples(bench: &Bench, grid: &[u64], rounds: &[Vec<Reading>]) -> Vec<Vec<Sample>> {
    let mut rng = SplitMix64::new(RESAMPLES as u64);
    let resample = |_| {
        let one = |_| &rounds[(rng.draw() % rounds.len() as u64) as usize];
        let mut curve = combined(grid, (0..rounds.len()).map(one));
        relieve(bench, &mut curve);
        curve
    };
    (0..RESAMPLES).map(resample).collect()
}

/// The share of resamples that begin with the same levels.
fn confidence(bench: &Bench, grid: &[u64], rounds: &[Vec<Reading>], known: &[Plateau]) -> f64 {
    let least = bench.side.least_step();
    let near = |a: f64, b: f64| (a - b).abs() <= least.max(0.15 * b.abs());
    let mut all = combined(grid, rounds);
    relieve(bench, &mut all);
    let whole = plateaus(&all, least);
    let same = |curve: &&Vec<Sample>| {
        let found = plateaus(curve, least);
        let agree = |(level, found): (&Plateau, &Plateau)| {
            let ends = found.last as f64 / level.last as f64;
            near(found.height, level.height) && (0.5..2.0).contains(&ends)
        };
        // Nor may there be a level more, which the whole curve's division overlooked.
        let top = curve.last().map_or(0.0, Sample::excess);
        let more = bench.side == Side::Loads
            && found.get(known.len()).is_some_and(|next| {
                next.height < top / 2.0
                    && whole.get(known.len()).is_none_or(|it| !near(it.height, next.height))
            });
        !more && found.len() >= known.len() && known.iter().zip(&found).all(agree)
    };
    resamples(bench, grid, rounds).iter().filter(same).count() as f64 / RESAMPLES as f64
}

/// What hits cost, by the heights of the plateaus. A curve's rounds lie further apart in time than readings made for
/// this alone would, and so do not share what disturbs for a while.
fn hits(bench: &Bench, grid: &[u64], rounds: &[Vec<Reading>], known: &[Plateau]) -> Vec<Cost> {
    let height = |curve: &[Sample], level: &Plateau| {
        let inside = curve.iter().filter(|s| (level.first..=level.last).contains(&s.pages));
        statistics::median(&inside.map(Sample::excess).collect::<Vec<_>>())
    };
    let steps = |curve: &[Sample]| -> Vec<f64> {
        known.iter().map(|level| height(curve, level) - height(curve, &known[0])).collect()
    };
    let curve = |rounds: &[Vec<Reading>]| {
        let mut curve = combined(grid, rounds);
        relieve(bench, &mut curve);
        curve
    };
    let whole = steps(&curve(rounds));
    let each: Vec<_> =
        rounds.iter().map(|round| steps(&curve(std::slice::from_ref(round)))).collect();
    let drawn: Vec<_> = resamples(bench, grid, rounds).iter().map(|curve| steps(curve)).collect();
    let of = |all: &[Vec<f64>], index: usize| all.iter().map(|steps| steps[index]).collect();
    let cost = |index| Cost::new(whole[index], of(&drawn, index), of(&each, index));
    (0..known.len()).map(cost).collect()
}

/// The plateaus of a curve, those apart by less than `least` cycles, or only through the data caches, taken together.
fn plateaus(curve: &[Sample], least: f64) -> Vec<Plateau> {
    let points: Vec<Point> = curve
        .iter()
        .map(|s| Point { x: (s.pages as f64).ln(), y: s.excess(), sigma: s.sigma() })
        .collect();
    let mut found: Vec<Plateau> = Vec::new();
    for segment in statistics::segments(&points) {
        let Some(plateau) = plateau(curve, segment, least) else { continue };
        let Some(before) = found.last_mut() else {
            found.push(plateau);
            continue;
        };
        let step = plateau.height - before.height;
        // Where the data moved from one cache to the next, spread lines and packed lines do not
        // overlap their misses with translation alike. That changes the excess by a part of the
        // control's step (on Zen 4: 1 of 10 cycles); a level of the TLB does not come with one.
        let data = (plateau.packed - before.packed).abs();
        if step < least.max(data / 4.0) {
            (before.last, before.reference) = (plateau.last, plateau.middle);
        } else {
            found.push(plateau);
        }
    }
    found
}

fn plateau(curve: &[Sample], segment: Segment, least: f64) -> Option<Plateau> {
    let inside = &curve[segment.first..=segment.last];
    let height = segment.level.or_else(|| nearly_level(inside, least))?;
    let (first, last) = (curve[segment.first].pages, curve[segment.last].pages);
    let wide = last as f64 >= 1.25 * first as f64;
    if segment.first > 0 && (segment.points() < PLATEAU_POINTS || !wide) {
        return None;
    }
    let middle = (first as f64 * last as f64).sqrt().round() as u64;
    let packed: Vec<f64> = inside.iter().map(|sample| sample.packed).collect();
    let packed = statistics::median(&packed);
    Some(Plateau { first, last, middle, height, reference: middle, packed })
}

/// The height of a sloping stretch whose ends lie apart less than half of what levels do: where readings are good to
/// a hundredth of a cycle, a plateau's own slope shows (one run in ten took the second level for a slope).
fn nearly_level(inside: &[Sample], least: f64) -> Option<f64> {
    let height =
        |part: &[Sample]| statistics::median(&part.iter().map(Sample::excess).collect::<Vec<_>>());
    let third = inside.len() / 3;
    let apart = height(&inside[inside.len() - third..]) - height(&inside[..third]);
    (apart.abs() < least / 2.0).then(|| height(inside))
}

/// The plateaus that are TLB levels: up to the first on which translations are walked for.
fn tlb_levels(
    bench: &mut Bench,
    plateaus: Vec<Plateau>,
    typical: Option<(f64, f64)>,
) -> Result<Vec<Plateau>, ProbeError> {
    let mut levels: Vec<Plateau> = Vec::new();
    for plateau in plateaus {
        if !levels.is_empty() && walks(bench, &plateau, typical)? {
            break;
        }
        levels.push(plateau);
    }
    Ok(levels)
}

/// Cycles that a walk costs more at least when its tables lie apart: more than data caches do by chance.
const MIN_WALK: f64 = 0.5;
/// Base pages whose page tables share an entry of the third level.
const THIRD: u64 = 1 << 18;

/// Whether translations are walked for at this footprint. A hit in a TLB costs the same wherever the page
/// tables lie; a walk costs more when each page's entry hangs on upper entries of its own. So the pages
/// are moved apart, each keeping the low bits of its number and with them its set.
fn walks(
    bench: &mut Bench,
    plateau: &Plateau,
    typical: Option<(f64, f64)>,
) -> Result<bool, ProbeError> {
    let (pages, shape) = (plateau.middle, bench.shape);
    let size = (THIRD / shape.parts).max(512);
    let regions = bench.offer.span / size;
    if regions.min(pages) < 8 {
        // There is no room: what base pages cost decides.
        let (hit, miss) = typical.unwrap_or((0.0, f64::INFINITY));
        return Ok((plateau.height - hit).abs() > (plateau.height - miss).abs());
    }
    let scattered = shape.scattered(pages, regions, size);
    let spread = shape.spread(pages);
    let least = (0.05 * plateau.height).max(MIN_WALK);
    bench.surely(|bench| Ok(bench.apart(&scattered, &spread)? >= least))
}
