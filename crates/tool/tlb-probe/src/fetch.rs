//! The instruction TLB: how many pages of code the first level holds, measured by the cycles of jumps between pages.
//! See docs/decisions/tlb.md#3.

use std::time::Instant;

use units::PageSize;

use crate::agree::{Cost, estimate_cost};
use crate::bench::{Bench, Effort, Side};
use crate::calibrate::{Options, curve};
use crate::document::{LevelReport, SizeReport};
use crate::doubts::DOUBTFUL;
use crate::levels::staircase;
use crate::probe::{Probe, ProbeError};

/// Ratio of successive footprints, which are closer than those for data.
const STEP: f64 = 1.07;
/// Maximum number of pages of a footprint. No known first level holds more than half of them.
const MAX_PAGES: u64 = 1 << 10;

/// Measures every page size that `probe` offers. Adds failures to `notes`.
pub(crate) fn sizes(
    probe: &mut dyn Probe,
    options: &Options,
    until: Option<Instant>,
    notes: &mut Vec<String>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<SizeReport>, ProbeError> {
    let effort = Effort {
        step: STEP,
        most_pages: MAX_PAGES.min(options.effort.most_pages),
        ..options.effort
    };
    let mut done = Vec::new();
    for offer in probe.offers() {
        progress(&format!("code in pages of {}", offer.page));
        match size(probe, offer.page, effort, options.seed, until) {
            Ok(report) => done.extend(reject_doubtful(report, notes)),
            Err(ProbeError::NotGot { page, why }) => {
                notes.push(format!("code in pages of {page}: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Returns the report, or adds a note if resamples of its readings disagree.
fn reject_doubtful(report: SizeReport, notes: &mut Vec<String>) -> Option<SizeReport> {
    let sure = report.confidence.is_none_or(|share| share >= DOUBTFUL);
    if !sure {
        notes.push(format!(
            "code in pages of {}: not found, other programs disturb the measurement; try again, or on \
             another CPU with `taskset`",
            report.page
        ));
    }
    sure.then_some(report)
}

fn size(
    probe: &mut dyn Probe,
    page: PageSize,
    effort: Effort,
    seed: u64,
    until: Option<Instant>,
) -> Result<SizeReport, ProbeError> {
    let mut bench = Bench::new(probe, page, effort, seed, until)?;
    bench.side = Side::Jumps;
    let stairs = staircase(&mut bench, None)?;
    let mut levels = Vec::new();
    if let Some(end) = stairs.last() {
        let (entries, range) = (Some(end.entries), Some(end.range));
        levels.push(LevelReport { entries, range, sharp: end.sharp, ways: None, hit: None });
        let hit = second_level_cost(&mut bench, end.entries)?;
        let next = LevelReport { entries: None, range: None, sharp: true, ways: None, hit };
        levels.extend(next.hit.is_some().then_some(next));
    }
    Ok(SizeReport {
        page,
        means: bench.offer.means.clone(),
        levels,
        miss: None,
        miss_pages: None,
        confidence: Some(stairs.confidence),
        curve: curve(&stairs),
    })
}

/// Cost of a jump that misses the first level and hits in the next. Compares jumps over twice as many pages as the
/// first level has entries with jumps over three quarters as many.
fn second_level_cost(bench: &mut Bench, entries: u64) -> Result<Option<Cost>, ProbeError> {
    let (many, few) = (2 * entries, entries - entries / 4);
    if many > bench.offer.pages {
        return Ok(None);
    }
    let shape = bench.shape;
    estimate_cost(bench.effort.attempts, || {
        bench.renew()?;
        let beyond = bench.difference(&shape.spread(many), &shape.packed(many))?;
        Ok(beyond - bench.difference(&shape.spread(few), &shape.packed(few))?)
    })
    .map(Some)
}
