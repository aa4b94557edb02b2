//! The whole calibration, one page size after the other. Base pages come first, because their costs help to interpret
//! other sizes.

use std::time::{Duration, Instant};

use units::PageSize;

use crate::agree::{Cost, estimate_cost};
use crate::backing::{self, Backing};
use crate::bench::{Bench, Effort};
use crate::document::{
    Calibration, ClockReport, CurvePoint, LevelReport, Processor, SCHEMA, SizeReport,
};
use crate::end::End;
use crate::levels::{Sample, Staircase, staircase};
use crate::probe::{Probe, ProbeError};
use crate::{fetch, walks, ways};

/// Options of a calibration.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of repetitions.
    pub effort: Effort,
    /// Page sizes to measure; empty: all offered sizes.
    pub pages: Vec<PageSize>,
    /// The seed of all random orders.
    pub seed: u64,
    /// Time after which optional repetitions are skipped; `None`: unlimited.
    pub limit: Option<Duration>,
    /// The CPU's self-description, for the document and for comparison.
    pub processor: Processor,
}

/// Calibrates the machine behind `probe`, and instruction fetches behind `code`; calls `progress` with the name of each
/// step.
///
/// # Errors
/// A size of `options` or the base page is not available, or a system call failed.
pub fn calibrate(
    probe: &mut dyn Probe,
    code: Option<&mut dyn Probe>,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Calibration, ProbeError> {
    let start = Instant::now();
    let until = options.limit.map(|limit| start + limit);
    let offers = probe.offers();
    let base_page = offers.first().expect("every machine has base pages").page;
    if let Some(missing) =
        options.pages.iter().find(|page| !offers.iter().any(|offer| offer.page == **page))
    {
        return Err(ProbeError::NotOffered(*missing));
    }
    let mut notes = Vec::new();
    let mut done: Vec<SizeReport> = Vec::new();
    let (mut steps, mut backing) = (Vec::new(), None);
    let mut load_cycles = f64::NAN;
    for offer in offers {
        let page = offer.page;
        // Base pages are always measured: other sizes are compared with them.
        if page != base_page && !options.pages.is_empty() && !options.pages.contains(&page) {
            continue;
        }
        let base = done.first();
        let base_costs = base.and_then(|base| {
            let second = base.levels.get(1)?.hit.as_ref()?.cycles;
            Some((second, base.miss.as_ref()?.cycles))
        });
        let mut bench = Bench::new(probe, page, options.effort, options.seed, until)?;
        let outcome = one_size(&mut bench, base_costs, progress);
        let (report, stairs) = match outcome {
            Ok(found) => found,
            // Pages of other sizes may be impossible to allocate. Completed measurements stay
            // valid.
            Err(error @ ProbeError::NotGot { .. }) if page != base_page => {
                notes.push(error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        if page == base_page {
            load_cycles = stairs.curve.first().map_or(f64::NAN, |sample| sample.spread);
            if let Some(last) = stairs.last() {
                progress("page-table walks of base pages");
                steps = walks::steps(&mut bench, last.entries)?;
            }
        } else if backing.is_none() && page.bytes() / base_page.bytes() == 512 {
            progress("whether superpages reach the TLB");
            backing = host_backing(probe, base_page, page, &done[0], options)?;
        }
        done.push(report);
    }
    let instructions = match code {
        Some(code) => fetch::sizes(code, options, until, &mut notes, progress)?,
        None => Vec::new(),
    };
    let clock = probe.clock();
    let mut found = Calibration {
        schema: SCHEMA.to_string(),
        seed: options.seed,
        seconds: start.elapsed().as_secs_f64(),
        processor: options.processor.clone(),
        clock: ClockReport {
            core_mhz: clock.core_mhz,
            counter_mhz: clock.counter_mhz,
            seen_mhz: clock.seen_mhz,
            retried: clock.retried,
        },
        base_page,
        load_cycles,
        sizes: done,
        instructions,
        walk_steps: steps,
        backing,
        accesses: None,
        nearer_accesses: Vec::new(),
        warnings: Vec::new(),
        notes,
    };
    found.warnings = found.doubts();
    Ok(found)
}

fn one_size(
    bench: &mut Bench,
    base_costs: Option<(f64, f64)>,
    progress: &mut dyn FnMut(&str),
) -> Result<(SizeReport, Staircase), ProbeError> {
    let page = bench.offer.page;
    progress(&format!("the staircase of {page} pages"));
    let stairs = staircase(bench, base_costs)?;
    progress(&format!("what misses of {page} pages cost"));
    let mut levels = Vec::new();
    for (index, end) in stairs.ends.iter().enumerate() {
        let hit = match index {
            0 => None,
            _ => Some(stairs.hits[index].clone()),
        };
        let entries = end.map(|end| end.entries);
        let (range, sharp) = (end.map(|end| end.range), end.is_none_or(|end| end.sharp));
        levels.push(LevelReport { entries, range, sharp, ways: None, hit });
    }
    let hit = levels.last().and_then(|level| level.hit.as_ref());
    let (miss, miss_pages) = miss(bench, &stairs, hit)?;
    progress(&format!("ways of {page} pages"));
    ways_of(bench, &mut levels, miss.as_ref())?;
    let report = SizeReport {
        page,
        means: bench.offer.means.clone(),
        levels,
        miss,
        miss_pages,
        confidence: Some(stairs.confidence),
        curve: curve(&stairs),
    };
    Ok((report, stairs))
}

pub(crate) fn curve(stairs: &Staircase) -> Vec<CurvePoint> {
    let point = |s: &Sample| CurvePoint { pages: s.pages, spread: s.spread, packed: s.packed };
    stairs.curve.iter().map(point).collect()
}

/// Footprint for measuring misses, as a multiple of the last level's entries. At twice the entries, an LRU level never
/// hits, and a level with random replacement hits in 20 % of accesses. With a larger footprint the data would exceed a
/// second-level data cache of 256 KiB.
const MISS_FOOTPRINT_FACTOR: u64 = 2;

/// Number of pages that the last level can hold. If the level has no sharp end, half of the accesses miss only at the
/// end of its range. This end is one of the curve's footprints, which vary between runs, so five sixths of it are
/// rounded up to a power of two. (Over 3,662 pages a miss cost 20.2 cycles, over 3,990 pages 21.6.)
fn capacity(end: &End) -> u64 {
    match end.sharp {
        true => end.entries,
        false => (5 * end.range.1).div_ceil(6).next_power_of_two(),
    }
}

/// Cost of missing all levels. Compares a footprint well beyond the last level with the same number of lines in half as
/// many pages as the last level holds. Lines of that many pages fall into data-cache sets as randomly as those of the
/// footprint; lines of a few pages do not.
fn miss(
    bench: &mut Bench,
    stairs: &Staircase,
    hit: Option<&Cost>,
) -> Result<(Option<Cost>, Option<u64>), ProbeError> {
    let Some(end) = stairs.last() else { return Ok((None, None)) };
    let last = end.entries;
    let pages = (MISS_FOOTPRINT_FACTOR * capacity(&end)).min(bench.offer.pages);
    if pages <= last + last / 2 || last < 4 {
        return Ok((None, None));
    }
    let few = last / 2;
    let saved = match (hit, bench.first) {
        (Some(hit), Some((entries, _))) if few > entries => {
            hit.cycles * (1.0 - entries as f64 / few as f64)
        }
        _ => 0.0,
    };
    let (spread, shared) = (bench.shape.spread(pages), bench.shape.shared(pages, few));
    let cost = estimate_cost(bench.effort.attempts, || {
        bench.renew()?;
        Ok(bench.difference(&spread, &shared)? + saved)
    })?;
    Ok((Some(cost), Some(pages)))
}

fn ways_of(
    bench: &mut Bench,
    levels: &mut [LevelReport],
    miss: Option<&Cost>,
) -> Result<(), ProbeError> {
    let cost = |cost: &Option<Cost>| cost.as_ref().map(|cost| cost.cycles);
    let miss = miss.map(|miss| miss.cycles);
    let second = levels.get(1).and_then(|level| cost(&level.hit));
    let [first, rest @ ..] = levels else { return Ok(()) };
    let (Some(entries), Some(rise)) = (first.entries, second.or(miss)) else { return Ok(()) };
    first.ways = ways::of_first(bench, entries, rise)?.filter(|ways| make_sets(entries, *ways));
    if let Some(level) = rest.first_mut()
        && let (Some(held), Some(hit), Some(miss)) = (level.entries, cost(&level.hit), miss)
    {
        let ways = ways::of_second(bench, (entries, first.ways), held, miss - hit)?;
        level.ways = ways.filter(|ways| make_sets(held, *ways));
    }
    Ok(())
}

/// Whether the number of sets is a power of two, as set-index bits require. If not, the ways or entries found are an
/// artefact of a hash (Zen 4's second level) or of other TLB contents (in Zen 4's first level, 47 and 66 of 72 entries
/// were found).
fn make_sets(entries: u64, ways: u64) -> bool {
    entries.is_multiple_of(ways) && (entries / ways).is_power_of_two()
}

fn host_backing(
    probe: &mut dyn Probe,
    base_page: PageSize,
    page: PageSize,
    base: &SizeReport,
    options: &Options,
) -> Result<Option<Backing>, ProbeError> {
    let first = base.levels.first().and_then(|level| level.entries);
    let Some(entries) = first else { return Ok(None) };
    let lines = backing::lines(entries).min(page.bytes() / base_page.bytes());
    let mut small = Bench::new(probe, base_page, options.effort, options.seed, None)?;
    let places = small.shape.spread(lines);
    let apart = small.least(&places)?;
    let mut large = Bench::new(probe, page, options.effort, options.seed, None)?;
    backing::look(&mut large, entries, lines, apart).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbouring_footprint_of_the_curve_moves_no_miss() {
        let end = |last, sharp| End { entries: 1536, range: (1000, last), sharp };
        for last in [1679, 1831, 1995, 2175] {
            assert_eq!(capacity(&end(last, false)), 2048, "{last}");
        }
        assert_eq!(capacity(&end(1600, true)), 1536);
    }
}
