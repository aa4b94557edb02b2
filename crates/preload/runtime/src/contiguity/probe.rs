//! Tests whether superpages are available quickly: populates a few and unmaps them.
//!
//! # Safety
//! New own memory, unmapped before any other code learns its address.

use advisor::Outcome;

use crate::executor::advice;
use crate::{limits, raw};

/// A probe takes at most 1/TRIED_SHARE of the cgroup's remaining memory: more could reclaim memory of its other
/// processes.
const TRIED_SHARE: usize = 4;

/// Populates `count` superpages, all held at once, until one takes more than `limit` microseconds. Succeeds if none
/// took more than two faults; returns the time of the slowest.
pub fn superpages(count: u64, limit: u32, superpage: u64) -> (Outcome, u32) {
    let (count, superpage) = (count as usize, superpage as usize);
    let Some(length) = count.checked_add(1).and_then(|it| it.checked_mul(superpage)) else {
        return (Outcome::Unavailable, 0);
    };
    if limits::cgroup_headroom().is_some_and(|left| length > left / TRIED_SHARE) {
        return (Outcome::Unavailable, 0);
    }
    let Ok(start) = raw::map(length, libc::MAP_NORESERVE) else { return (Outcome::Unavailable, 0) };
    // SAFETY: see "Safety" of this module.
    unsafe {
        let result = timed(start.next_multiple_of(superpage), count, limit, superpage);
        let _ = raw::munmap(start, length);
        result.unwrap_or((Outcome::Unavailable, 0))
    }
}

/// As [`superpages`], on mapped memory; `None`: the probe could not be made.
///
/// # Safety
/// `count` superpages from `first` on are ours.
unsafe fn timed(
    first: usize,
    count: usize,
    limit: u32,
    superpage: usize,
) -> Option<(Outcome, u32)> {
    let mut slowest = 0;
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        advice::superpages(first, count * superpage).then_some(())?;
        for number in 0..count {
            let (ns, faults) = populate(first + number * superpage, superpage)?;
            // No fault: mmap has populated the memory, as under mlockall(MCL_FUTURE).
            (faults > 0).then_some(())?;
            slowest = slowest.max(ns.div_ceil(1000).try_into().unwrap_or(u32::MAX));
            if faults > 2 {
                return Some((Outcome::NoMemory, slowest));
            }
            if slowest > limit {
                return Some((Outcome::Done { pages: number as u32 + 1 }, slowest));
            }
        }
    }
    Some((Outcome::Done { pages: count as u32 }, slowest))
}

/// Populates the range; returns nanoseconds and faults.
///
/// # Safety
/// The range is ours.
unsafe fn populate(start: usize, length: usize) -> Option<(u64, i64)> {
    let (time, faults) = (raw::monotonic()?, faults()?);
    // SAFETY: the caller keeps this function's contract.
    unsafe { raw::populate(start, length) }.ok()?;
    Some((raw::monotonic()?.saturating_sub(time), self::faults()? - faults))
}

/// Minor faults of this thread; each fault of MADV_POPULATE_WRITE counts.
fn faults() -> Option<i64> {
    raw::usage(libc::RUSAGE_THREAD).map(|usage| usage.ru_minflt)
}

/// Minor faults of this process.
pub fn process_faults() -> Option<usize> {
    raw::usage(libc::RUSAGE_SELF).map(|usage| usage.ru_minflt as usize)
}
