//! Levels: divides a curve of latency against footprint into plateaus, and locates the end of each plateau exactly to
//! the page. See docs/decisions/tlb.md#8.

use workload::rng::SplitMix64;

use crate::agree::Cost;
use crate::bench::{Bench, Reading, Side, combined};
use crate::end::{End, end};
use crate::probe::ProbeError;
use crate::statistics::{self, Point, Segment};

/// Minimum number of points of a plateau. The first plateau, and plateaus of very small curves, may
/// have fewer.
const PLATEAU_POINTS: usize = 3;
/// A point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub pages: u64,
    /// Cycles per access with one line in each page.
    pub spread: f64,
    /// Cycles per access with the same number of lines in few pages.
    pub packed: f64,
    /// Spread of the readings: median minus low value.
    pub deviation: f64,
}

impl Sample {
    pub fn excess(&self) -> f64 {
        self.spread - self.packed
    }

    /// Estimated standard error: resolution of the clock, residual disturbances, and spread of the readings.
    fn sigma(&self) -> f64 {
        0.05 + 0.005 * self.spread + 0.5 * self.deviation
    }
}

/// A part of the curve with constant height.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plateau {
    pub first: u64,
    pub last: u64,
    /// Footprint at which the height is read best: before data caches overflow.
    pub middle: u64,
    pub height: f64,
    /// Footprint in the middle of the plateau's last part, after data caches overflow. The
    /// reference for finding the end.
    pub reference: u64,
    /// Height of the packed chase: the reference for steps between plateaus.
    packed: f64,
}

/// The levels found in a curve.
#[derive(Debug, Clone)]
pub(crate) struct Staircase {
    pub curve: Vec<Sample>,
    /// Ends of the TLB levels, first to last; `None` for the last level if it extends beyond the curve.
    pub ends: Vec<Option<End>>,
    /// For each level, cycles by which a hit is slower than a first-level hit.
    pub hits: Vec<Cost>,
    /// Share of resamples of the curve's rounds in which the same levels are found.
    pub confidence: f64,
}

impl Staircase {
    /// The end of the last level.
    pub fn last(&self) -> Option<End> {
        *self.ends.last()?
    }
}

/// Number of resamples of a curve's rounds.
const RESAMPLES: usize = 40;
/// Rounds are added while a smaller share of resamples agrees.
const CONFIDENT: f64 = 0.95;

/// Returns the footprints of a curve, as numbers of pages.
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

/// Measures the curve and finds its levels and their ends. Adds rounds on other memory while resamples of the rounds
/// disagree about the levels.
pub(crate) fn staircase(
    bench: &mut Bench,
    base_costs: Option<(f64, f64)>,
) -> Result<Staircase, ProbeError> {
    let limit = bench.offer.pages.min(bench.offer.span).min(bench.effort.most_pages);
    let grid = grid(limit, bench.effort.step);
    let (least, most) = bench.effort.rounds;
    let mut rounds: Vec<Vec<Reading>> = Vec::new();
    loop {
        // Store readings without correction.
        bench.first = None;
        rounds.push(bench.round(&grid)?);
        if rounds.len() < least {
            continue;
        }
        let mut curve = combined(&grid, &rounds);
        let plateaus = first_level(bench, &mut curve, limit)?;
        let mut known = tlb_levels(bench, plateaus, base_costs)?;
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

/// Corrects the packed chase for first-level misses, and returns the plateaus of the curve. The correction needs the
/// end of the first level.
fn first_level(
    bench: &mut Bench,
    curve: &mut [Sample],
    limit: u64,
) -> Result<Vec<Plateau>, ProbeError> {
    let plateaus = plateaus(curve, bench.side.least_step());
    let [first, second, ..] = plateaus[..] else { return Ok(plateaus) };
    let rise = second.height - first.height;
    let lines = bench.shape.page_lines();
    // Skip if no packed chase has more pages than the first level has entries.
    if curve.last().is_none_or(|last| last.pages.div_ceil(lines) <= first.last) {
        return Ok(plateaus);
    }
    let Some(End { entries, .. }) = end(bench, &first, curve, limit, rise)? else {
        return Ok(plateaus);
    };
    bench.first = Some((entries, rise));
    correct_control(bench, curve);
    Ok(self::plateaus(curve, bench.side.least_step()))
}

/// Subtracts the translation cost from the packed chase.
fn correct_control(bench: &Bench, curve: &mut [Sample]) {
    for sample in curve {
        sample.packed -= bench.control(sample.pages);
    }
}

/// Finds the ends of the levels.
fn ends(
    bench: &mut Bench,
    curve: &[Sample],
    known: &[Plateau],
    limit: u64,
) -> Result<Vec<Option<End>>, ProbeError> {
    let least = bench.side.least_step();
    // Height beyond the last level: the curve at 1.5 times the footprint at which it finally leaves the level. There
    // page tables are still cached.
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

/// Makes curves from rounds drawn with replacement (Efron's bootstrap).
fn resamples(bench: &Bench, grid: &[u64], rounds: &[Vec<Reading>]) -> Vec<Vec<Sample>> {
    let mut rng = SplitMix64::new(RESAMPLES as u64);
    let resample = |_| {
        let one = |_| &rounds[(rng.draw() % rounds.len() as u64) as usize];
        let mut curve = combined(grid, (0..rounds.len()).map(one));
        correct_control(bench, &mut curve);
        curve
    };
    (0..RESAMPLES).map(resample).collect()
}

/// Share of resamples that start with the same levels.
fn confidence(bench: &Bench, grid: &[u64], rounds: &[Vec<Reading>], known: &[Plateau]) -> f64 {
    let least = bench.side.least_step();
    let near = |a: f64, b: f64| (a - b).abs() <= least.max(0.15 * b.abs());
    let mut all = combined(grid, rounds);
    correct_control(bench, &mut all);
    let whole = plateaus(&all, least);
    let same = |curve: &&Vec<Sample>| {
        let found = plateaus(curve, least);
        let agree = |(level, found): (&Plateau, &Plateau)| {
            let ends = found.last as f64 / level.last as f64;
            near(found.height, level.height) && (0.5..2.0).contains(&ends)
        };
        // A resample also disagrees if it has one more level, which the division of the whole curve
        // missed.
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

/// Costs of hits, from the heights of the plateaus. The rounds of a curve are spread over more time than dedicated
/// readings, so a temporary disturbance affects fewer of them.
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
        correct_control(bench, &mut curve);
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

/// Returns the plateaus of a curve. Merges plateaus that differ by less than `least` cycles, or that differ only
/// because of the data caches.
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
        // Where the data no longer fit a cache level, spread and packed lines overlap cache misses with translation
        // differently. This changes the excess by a fraction of the packed chase's step (on Zen 4: 1 of 10 cycles). A
        // TLB level does not change the packed chase.
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

/// Height of a sloping segment whose ends differ by less than half of a level's step. If readings are precise to a
/// hundredth of a cycle, even a plateau has a visible slope. (One run in ten took the second level for a slope.)
fn nearly_level(inside: &[Sample], least: f64) -> Option<f64> {
    let height =
        |part: &[Sample]| statistics::median(&part.iter().map(Sample::excess).collect::<Vec<_>>());
    let third = inside.len() / 3;
    let apart = height(&inside[inside.len() - third..]) - height(&inside[..third]);
    (apart.abs() < least / 2.0).then(|| height(inside))
}

/// Returns the plateaus that are TLB levels: all plateaus before the first one with page walks.
fn tlb_levels(
    bench: &mut Bench,
    plateaus: Vec<Plateau>,
    base_costs: Option<(f64, f64)>,
) -> Result<Vec<Plateau>, ProbeError> {
    let mut levels: Vec<Plateau> = Vec::new();
    for plateau in plateaus {
        if !levels.is_empty() && walks(bench, &plateau, base_costs)? {
            break;
        }
        levels.push(plateau);
    }
    Ok(levels)
}

/// Minimum number of cycles by which distant page tables make a walk slower. Random effects of data caches are smaller.
const MIN_WALK: f64 = 0.5;
/// Number of base pages below one third-level page-table entry.
const THIRD: u64 = 1 << 18;

/// Whether accesses at this footprint walk the page table. A TLB hit costs the same wherever the page tables lie, but a
/// walk costs more if each page has separate upper page-table entries. So this test moves the pages apart. They keep
/// the low bits of their numbers, and thus their TLB sets.
fn walks(
    bench: &mut Bench,
    plateau: &Plateau,
    base_costs: Option<(f64, f64)>,
) -> Result<bool, ProbeError> {
    let (pages, shape) = (plateau.middle, bench.shape);
    let size = (THIRD / shape.parts).max(512);
    let regions = bench.offer.span / size;
    if regions.min(pages) < 8 {
        // The address range is too small: decide by the costs of base pages.
        let (hit, miss) = base_costs.unwrap_or((0.0, f64::INFINITY));
        return Ok((plateau.height - hit).abs() > (plateau.height - miss).abs());
    }
    let scattered = shape.scattered(pages, regions, size);
    let spread = shape.spread(pages);
    let least = (0.05 * plateau.height).max(MIN_WALK);
    bench.majority(|bench| Ok(bench.difference(&scattered, &spread)? >= least))
}
