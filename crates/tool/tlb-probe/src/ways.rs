//! Ways: pages a power of two apart fall into one set, and one more than it has ways drives one out.

use crate::bench::Bench;
use crate::probe::{Place, ProbeError};

/// The most ways that are looked for: with more pages in one set two would share a line of the first data
/// cache's sets, and pages 4 GiB apart drive each other out of it on processors that choose its way by a
/// hash of the address (Zen: bits 12 to 27; Lipp et al., Take A Way, AsiaCCS 2020).
const MAX_WAYS: u64 = 60;
/// Pages between those of one set of the first level, which has 64 sets at most (assumed). Two pages of one
/// line are then 128 MiB apart, which such a hash still tells.
const MIN_STRIDE: u64 = 1 << 9;
/// Pages between those of one set of the second level: beyond every bit that chooses a set; exclusive ors of
/// two groups of 7 to 9 bits end at bit 18.
const SECOND_STRIDE: u64 = 1 << 20;

/// Ways of the first level, if it shows them; as many as its entries: fully associative.
pub(crate) fn of_first(
    bench: &mut Bench,
    entries: u64,
    rise: f64,
) -> Result<Option<u64>, ProbeError> {
    let most = entries + 1;
    let Some(stride) = stride(bench, most, MIN_STRIDE) else { return Ok(None) };
    let shape = bench.shape;
    let places = |count| shape.strided(count, stride);
    let found = first_slower(bench, 1, most, rise, places)?;
    Ok(found.filter(|ways| *ways <= entries))
}

/// Ways of the second level, given the first's entries and ways. So that the first answers none of the
/// accesses, pages of other sets are walked along with those of the one that is filled.
pub(crate) fn of_second(
    bench: &mut Bench,
    first: (u64, Option<u64>),
    entries: u64,
    rise: f64,
) -> Result<Option<u64>, ProbeError> {
    if is_full(bench, entries, rise)? {
        return Ok(Some(entries));
    }
    let Some(stride) = stride(bench, MAX_WAYS + 1, SECOND_STRIDE) else { return Ok(None) };
    let shape = bench.shape;
    // Too many for the first level, and for each of its sets.
    let full = first.1 == Some(first.0);
    let fill = if full { first.0 + 8 } else { first.0 * 3 / 2 };
    // At least so many, less one, if there are 24 ways at most (Zen 4: most of all).
    let sets = (entries / 24).clamp(16, 128) - 1;
    let places = |count: u64| -> Vec<Place> {
        // Small numbers, zero aside: below the number of sets, none is the first set's, and an exclusive or
        // of it with higher bits, all of them zero, leaves it as it is.
        let others = (0..fill).map(|i| 1 + i % sets + i / sets * stride);
        let pages = (0..count).map(|i| i * stride).chain(others);
        pages.enumerate().map(|(index, page)| shape.place(page, index as u64)).collect()
    };
    // The set's pages must not be found in the first level either.
    let least = first.1.filter(|ways| *ways < first.0).map_or(1, |ways| ways + 1);
    first_slower(bench, least, MAX_WAYS, rise, places)
}

/// Whether a level keeps as many pages far apart as neighbours. Looked at only where the data of so many fit
/// the first data cache: nothing larger is fully associative.
fn is_full(bench: &mut Bench, entries: u64, rise: f64) -> Result<bool, ProbeError> {
    let room = stride(bench, entries, MIN_STRIDE);
    let (Some(stride), true) = (room, entries <= 256) else { return Ok(false) };
    let (all, few) = (bench.shape.strided(entries, stride), bench.shape.spread(entries));
    let least = rise / entries as f64;
    let apart = bench.surely(|bench| {
        bench.slower(|bench| bench.chase(&all), |bench| bench.chase(&few), least)
    })?;
    Ok(!apart)
}

/// The largest power of two of pages up to `most` that may lie between `count` pages.
fn stride(bench: &Bench, count: u64, most: u64) -> Option<u64> {
    let most = (bench.offer.span / count).min(most);
    (most >= MIN_STRIDE && bench.offer.pages >= count).then(|| 1 << most.ilog2())
}

/// The most pages of the set before accesses become slower: by bisection.
fn first_slower(
    bench: &mut Bench,
    least: u64,
    most: u64,
    rise: f64,
    places: impl Fn(u64) -> Vec<Place>,
) -> Result<Option<u64>, ProbeError> {
    let reference = places(least);
    let beyond = |bench: &mut Bench, count: u64| {
        let these = places(count);
        let least = rise / these.len() as f64;
        bench.slower(|bench| bench.chase(&these), |bench| bench.chase(&reference), least)
    };
    let bisect = |bench: &mut Bench| -> Result<Option<u64>, ProbeError> {
        if !beyond(bench, most)? {
            return Ok(None);
        }
        let (mut low, mut high) = (least, most);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if beyond(bench, middle)? { high = middle } else { low = middle }
        }
        Ok(Some(low))
    };
    // What others do may lead a bisection astray: of three, two have to agree.
    let (one, two) = (bisect(bench)?, bisect(bench)?);
    if one == two {
        return Ok(one);
    }
    let three = bisect(bench)?;
    Ok(if three == one || three == two { three } else { None })
}
