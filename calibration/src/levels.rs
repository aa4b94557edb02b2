//! Levels: a curve of latency against footprint, divided into plateaus, and where each ends to the page.

use crate::bench::Bench;
use crate::probe::ProbeError;
use crate::statistics::{self, Point, Segment};

/// A plateau is at least this many points and spans at least this factor of pages; the first and the
/// curve of very few pages aside.
const PLATEAU_POINTS: usize = 3;
/// A translation is cheaper to find than this at no level below the first (cycles). The least published
/// cost of a hit in a second level is 5 (Arm). Steps of 1.0 come of data caches (one run in twenty took the
/// second level for two, and found no end of the first of them).
const LEAST_STEP: f64 = 1.5;

/// A point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub pages: u64,
    /// Cycles per access, one line in each page.
    pub spread: f64,
    /// Cycles per access, as many lines in few pages.
    pub packed: f64,
}

impl Sample {
    pub fn excess(&self) -> f64 {
        self.spread - self.packed
    }

    /// What to think of its precision: a clock's tick in a chase, and what is left of disturbances.
    fn sigma(&self) -> f64 {
        0.05 + 0.005 * self.spread
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
    reference: u64,
    /// The control's height: what steps from plateau to plateau are held against.
    packed: f64,
}

/// What one curve says.
#[derive(Debug, Clone)]
pub(crate) struct Staircase {
    pub curve: Vec<Sample>,
    /// TLB levels, first to last, and what lies beyond, if it is reached.
    pub levels: Vec<Plateau>,
    /// Entries of each, by the page; `None` for the last if the curve ends before it does.
    pub entries: Vec<Option<u64>>,
}

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

/// Measures the curve, finds its levels and where they end.
pub(crate) fn staircase(
    bench: &mut Bench,
    typical: Option<(f64, f64)>,
) -> Result<Staircase, ProbeError> {
    let limit = bench.offer.pages.min(bench.offer.span).min(bench.effort.most_pages);
    let mut curve = Vec::new();
    for pages in grid(limit, bench.effort.step) {
        let best = bench.best(pages)?;
        curve.push(Sample { pages, spread: best.spread, packed: best.packed });
    }
    // The control beyond the first level's reach is known only when the first level is.
    let mut plateaus = plateaus(&curve);
    if bench.first.is_none()
        && let [first, second, ..] = plateaus[..]
    {
        let rise = second.height - first.height;
        let entries = end(bench, &first, limit, rise)?;
        if let Some(entries) = entries {
            let lines = bench.shape.page_lines();
            for sample in &mut curve {
                let pages = sample.pages.div_ceil(lines);
                if pages > entries {
                    sample.packed -= rise * (1.0 - entries as f64 / pages as f64);
                }
            }
            bench.first = Some((entries, rise));
            plateaus = self::plateaus(&curve);
        }
    }
    let known = tlb_levels(bench, plateaus, typical)?;
    // What lies beyond the last level: the curve at half as many pages again as where it has left it for good,
    // where page tables are still cached.
    let beyond = |level: &Plateau| {
        let above = |sample: &&Sample| sample.excess() > level.height + LEAST_STEP;
        let left = curve.iter().rev().take_while(above).last();
        let far = left.map_or(u64::MAX, |sample| sample.pages / 2 * 3);
        curve.iter().find(|sample| sample.pages >= far).or(curve.last()).map_or(0.0, Sample::excess)
    };
    let mut entries = Vec::new();
    for (index, level) in known.iter().enumerate() {
        let next = known.get(index + 1).map_or_else(|| beyond(level), |next| next.height);
        let found = match (index, bench.first) {
            (0, Some((entries, _))) => Some(entries),
            _ if next - level.height < LEAST_STEP => None,
            _ => end(bench, level, limit, next - level.height)?,
        };
        entries.push(found);
    }
    Ok(Staircase { curve, levels: known, entries })
}

/// The plateaus of a curve, those apart only through the data caches taken together.
fn plateaus(curve: &[Sample]) -> Vec<Plateau> {
    let points: Vec<Point> = curve
        .iter()
        .map(|s| Point { x: (s.pages as f64).ln(), y: s.excess(), sigma: s.sigma() })
        .collect();
    let mut found: Vec<Plateau> = Vec::new();
    for segment in statistics::segments(&points) {
        let Some(plateau) = plateau(curve, segment) else { continue };
        let Some(before) = found.last_mut() else {
            found.push(plateau);
            continue;
        };
        let step = plateau.height - before.height;
        // Where the data moved from one cache to the next, spread lines and packed lines do not
        // overlap their misses with translation alike. That changes the excess by a part of the
        // control's step (on Zen 4: 1 of 10 cycles); a level of the TLB does not come with one.
        let data = (plateau.packed - before.packed).abs();
        if step < LEAST_STEP.max(data / 4.0) {
            (before.last, before.reference) = (plateau.last, plateau.middle);
        } else {
            found.push(plateau);
        }
    }
    found
}

fn plateau(curve: &[Sample], segment: Segment) -> Option<Plateau> {
    let height = segment.level?;
    let (first, last) = (curve[segment.first].pages, curve[segment.last].pages);
    let wide = last as f64 >= 1.25 * first as f64;
    if segment.first > 0 && (segment.points() < PLATEAU_POINTS || !wide) {
        return None;
    }
    let middle = (first as f64 * last as f64).sqrt().round() as u64;
    let inside = &curve[segment.first..=segment.last];
    let packed: Vec<f64> = inside.iter().map(|sample| sample.packed).collect();
    let packed = statistics::median(&packed);
    Some(Plateau { first, last, middle, height, reference: middle, packed })
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
    let regions = (bench.offer.span / size).min(pages);
    if regions < 8 {
        // There is no room: what base pages cost decides.
        let (hit, miss) = typical.unwrap_or((0.0, f64::INFINITY));
        return Ok((plateau.height - hit).abs() > (plateau.height - miss).abs());
    }
    let scattered = shape.scattered(pages, regions, size);
    let spread = shape.spread(pages);
    let least = 0.1 * plateau.height;
    bench.slower(|bench| bench.chase(&scattered), |bench| bench.chase(&spread), least)
}

/// Where [`REACHED`] of a step follows the first miss within this part of a level's entries, the first miss is its
/// end: a level of four ways takes a fortieth, a fully associative one that evicts at random a twentieth.
const STEEP: u64 = 16;
/// Where misses come slowly, a level ends where they cost this part of the next step.
const REACHED: f64 = 0.1;

/// The pages that a level holds. `rise` is the height of the next step.
///
/// A level of sets that evicts the least recently used answers a chase to its last entry, and then ever fewer:
/// it ends with the first miss. One whose sets are drawn by a hash misses a little long before (Zen 5's second:
/// 0.1 to 0.3 of 36 cycles from half of its 4,096 entries on), and where exactly is a matter of chance: it ends
/// where a tenth of the step is reached.
fn end(
    bench: &mut Bench,
    plateau: &Plateau,
    limit: u64,
    rise: f64,
) -> Result<Option<u64>, ProbeError> {
    let reached = onset(bench, plateau, limit, &|_| REACHED * rise)?;
    let Some(reached) = reached else { return Ok(None) };
    // Where the first translation too many falls out, two pages miss at least (it and the one that it drove
    // out): half of that is the least that counts.
    let first = onset(bench, plateau, reached + 1, &|pages| rise / pages as f64)?;
    Ok(first.filter(|first| reached - first <= reached / STEEP).or(Some(reached)))
}

/// The most pages, below `limit`, that are still on the plateau or less than `least` above it: found by doubling
/// and bisecting with a rank test.
fn onset(
    bench: &mut Bench,
    plateau: &Plateau,
    limit: u64,
    least: &dyn Fn(u64) -> f64,
) -> Result<Option<u64>, ProbeError> {
    let beyond = |bench: &mut Bench, pages: u64| {
        let excess = |pages| move |bench: &mut Bench| Ok(bench.best(pages)?.excess());
        bench.slower(excess(pages), excess(plateau.reference), least(pages))
    };
    let mut low = plateau.reference;
    let mut high = plateau.last.max(low + 1).min(limit);
    let further = |high: u64| (high + high / 8 + 1).min(limit);
    loop {
        if beyond(bench, high)? {
            while high - low > 1 {
                let middle = low.midpoint(high);
                if beyond(bench, middle)? { high = middle } else { low = middle }
            }
            // What others do is slow for a while; the first page too many is slow again. (Once in ten times
            // 60 of 72 entries were found.)
            if beyond(bench, high)? {
                return Ok(Some(low));
            }
        }
        if high >= limit {
            return Ok(None);
        }
        (low, high) = (high, further(high));
    }
}
