//! Associativity: pages at a power-of-two distance share a set, and if they exceed the number of ways by one, they
//! evict each other.

use crate::bench::Bench;
use crate::probe::{Place, ProbeError};

/// Maximum number of ways to test. With more pages in one set, two pages would share a set of the L1 data cache. Then
/// pages 4 GiB apart evict each other on CPUs that predict the cache way by a hash of the address (Zen: bits 12 to 27;
/// Lipp et al., Take A Way, AsiaCCS 2020).
const MAX_WAYS: u64 = 60;
/// Distance in pages between pages of one set of the first level, which has at most 64 sets (assumed). Two pages with
/// the same line are then 128 MiB apart, so Zen's hash still distinguishes them.
const MIN_STRIDE: u64 = 1 << 9;
/// Distance in pages between pages of one set of the second level. It is beyond every index bit: exclusive ors of two
/// groups of 7 to 9 bits end at bit 18.
const SECOND_STRIDE: u64 = 1 << 20;

/// Number of ways of the first level, if found. Equal to the number of entries if fully
/// associative.
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

/// Number of ways of the second level, given the first level's entries and ways. The chase includes pages of other
/// sets, so that the first level never hits.
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
    // More pages than the first level holds, and more than each of its sets holds.
    let full = first.1 == Some(first.0);
    let fill = if full { first.0 + 8 } else { first.0 * 3 / 2 };
    // A lower bound of the number of sets, minus one, assuming at most 24 ways (Zen 4 has the
    // most).
    let sets = (entries / 24).clamp(16, 128) - 1;
    let places = |count: u64| -> Vec<Place> {
        // The low bits of the other pages' numbers are nonzero and below the number of sets, so these pages are never
        // in the tested set.
        let others = (0..fill).map(|i| 1 + i % sets + i / sets * stride);
        let pages = (0..count).map(|i| i * stride).chain(others);
        pages.enumerate().map(|(index, page)| shape.place(page, index as u64)).collect()
    };
    // The pages of the tested set must not hit in the first level either.
    let least = first.1.filter(|ways| *ways < first.0).map_or(1, |ways| ways + 1);
    first_slower(bench, least, MAX_WAYS, rise, places)
}

/// Whether a level holds as many distant pages as adjacent pages. Tests only levels whose data fit the L1 data cache;
/// no larger level is fully associative.
fn is_full(bench: &mut Bench, entries: u64, rise: f64) -> Result<bool, ProbeError> {
    let room = stride(bench, entries, MIN_STRIDE);
    let (Some(stride), true) = (room, entries <= 256) else { return Ok(false) };
    let (all, few) = (bench.shape.strided(entries, stride), bench.shape.spread(entries));
    let least = rise / entries as f64;
    let differ = bench.majority(|bench| {
        bench.slower(|bench| bench.chase(&all), |bench| bench.chase(&few), least)
    })?;
    Ok(!differ)
}

/// The largest power-of-two distance up to `most` for `count` pages in the address range.
fn stride(bench: &Bench, count: u64, most: u64) -> Option<u64> {
    let most = (bench.offer.span / count).min(most);
    (most >= MIN_STRIDE && bench.offer.pages >= count).then(|| 1 << most.ilog2())
}

/// Finds by bisection the largest number of pages in the tested set before accesses become slower.
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
    // Other load may mislead a bisection, so two of three must agree.
    let (one, two) = (bisect(bench)?, bisect(bench)?);
    if one == two {
        return Ok(one);
    }
    let three = bisect(bench)?;
    Ok(if three == one || three == two { three } else { None })
}
