//! Makes superpages of base pages with MADV_COLLAPSE, and reads them back.
//!
//! The kernel copies the pages into a free superpage and zeroes the missing ones. Meanwhile, faults in the extent and
//! calls that change mappings wait. Neighbours are collapsed in one call, because each call drains the page lists of
//! all CPUs.
//!
//! Memory in files of superpages (docs/decisions/live.md#11) is not copied: the pages are already in one frame, which
//! the kernel maps. Whether the frame is still the same is read back too.

use policy::Result as Ended;
use sys::mem::Advice;

use crate::extent::{BYTES, Extent, PAGES};
use crate::process::Process;
use crate::report::Tally;

/// Maximum number of superpages in one call.
pub(crate) const MAX_RUN: usize = 16;
/// Ticks of back-off after a failure; doubled after each further failure.
const MIN_REST: u64 = 100_000;
/// Maximum ticks of that back-off.
const MAX_REST: u64 = 10_000_000;
/// The same where the supervisor denies.
const MAX_REST_OF_DENIED: u64 = 60_000_000;
/// Ticks of back-off from the second EAGAIN on. The kernel refuses pages that were just faulted in, because they are on
/// a CPU's list and not on the LRU. See docs/decisions/live.md#8.
const MIN_REST_OF_HELD: u64 = 50;

/// Stands for an errno: not requested, because a fork shares the pages.
pub(crate) const SHARED: i32 = -1;
/// Stands for an errno: not requested, because the control group has too little memory left.
pub(crate) const SHORT: i32 = -2;
/// Stands for an errno: not requested, because the supervisor does not permit it now.
pub(crate) const DENIED: i32 = -3;

/// Makes superpages of these extents (ascending), as far as they still exist. `now` returns the time in ticks.
pub(crate) fn superpages(
    process: &mut Process,
    starts: &[u64],
    tally: &mut Tally,
    now: &impl Fn() -> u64,
) -> Ended {
    let mut ended = Ended::Nothing;
    let (starts, gone): (Vec<u64>, Vec<u64>) = starts
        .iter()
        .partition(|start| process.is_in_place(**start) || process.is_still_anonymous(**start));
    for start in gone {
        if let Some(extent) = process.extents.get_mut(&start) {
            tally.gone(extent);
            extent.is_wanted = false;
            ended = Ended::Unfit;
        }
    }
    for run in runs(process, &starts) {
        let (first, end) = (run[0], run[run.len() - 1] + BYTES);
        let is_in_place = process.is_in_place(first);
        let before = if is_in_place { process.frames(first, end) } else { Vec::new() };
        if is_in_place {
            process.map_as_usual(first, end);
        }
        let asked = process.fd.advise(std::slice::from_ref(&(first..end)), Advice::Collapse);
        let errno = asked.err().map(|error| error.errno());
        let found = process.read_back(first, end);
        let now = now();
        let after = if is_in_place { process.frames(first, end) } else { Vec::new() };
        let size = usize::from(PAGES);
        let mut frames = before.chunks(size).zip(after.chunks(size));
        for start in run {
            let stayed = frames.next().is_some_and(|(before, after)| is_same(before, after));
            let Some(extent) = process.extents.get_mut(&start) else { continue };
            ended = match found.get(&start) {
                // Without an error all were made, even if the program has unmapped some since.
                None if errno.is_none() => {
                    tally.made(extent, stayed, now);
                    done(extent)
                }
                Some(true) => {
                    tally.made(extent, stayed, now);
                    done(extent)
                }
                // The memory was unmapped meanwhile, or the process ended: ENOMEM, EINVAL or ESRCH.
                None => {
                    tally.gone(extent);
                    extent.is_wanted = false;
                    Ended::Unfit
                }
                Some(false) => {
                    tally.failed(extent, errno);
                    failed(extent, errno, is_in_place, now)
                }
            };
        }
    }
    ended
}

fn is_same(before: &[Option<u64>], after: &[Option<u64>]) -> bool {
    // A frame number that the kernel hides is 0.
    let mut present = before.iter().zip(after).filter(|(before, _)| before.is_some()).peekable();
    present.peek().is_some() && present.all(|(before, after)| before == after && *before != Some(0))
}

/// Returns the addresses of the extents below, descending.
pub(crate) fn before(start: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(start.checked_sub(BYTES), |at| at.checked_sub(BYTES))
}

/// Returns the addresses of the extents above, ascending.
pub(crate) fn after(start: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(start.checked_add(BYTES), |at| at.checked_add(BYTES))
}

/// Groups extents into runs of neighbours. An extent that failed before is alone, so that it gets its own errno.
fn runs(process: &Process, starts: &[u64]) -> Vec<Vec<u64>> {
    let mut runs: Vec<Vec<u64>> = Vec::new();
    let mut may_join = false;
    for &start in starts {
        let Some(extent) = process.extents.get(&start) else { continue };
        let joins = extent.failures == 0;
        match runs.last_mut() {
            Some(run)
                if may_join
                    && joins
                    && run.len() < MAX_RUN
                    && run.last() == Some(&(start - BYTES)) =>
            {
                run.push(start);
            }
            _ => runs.push(vec![start]),
        }
        may_join = joins;
    }
    runs
}

fn done(extent: &mut Extent) -> Ended {
    let pages = u32::from(PAGES - extent.populated);
    (extent.populated, extent.swapped) = (PAGES, 0);
    (extent.is_huge, extent.is_ours) = (true, true);
    (extent.is_wanted, extent.is_held, extent.failures) = (false, false, 0);
    Ended::Done { pages }
}

pub(crate) fn failed(
    extent: &mut Extent,
    errno: Option<i32>,
    is_in_place: bool,
    now: u64,
) -> Ended {
    // In place, ENOMEM concerns only an extent outside one frame, so only this extent waits.
    if errno == Some(libc::ENOMEM) && !is_in_place {
        return Ended::NoMemory; // other extents would fail too, so the caller backs off
    }
    let least = match errno {
        // The call waited for another CPU, and the program ran meanwhile. The next call waits for no CPU, so try again
        // at once. See docs/decisions/live.md#9.
        Some(libc::EAGAIN) if extent.failures == 0 => 0,
        Some(libc::EAGAIN) => MIN_REST_OF_HELD / 2, // halved here, because it is doubled once for the first failure
        _ => MIN_REST,
    };
    let most = if errno == Some(DENIED) { MAX_REST_OF_DENIED } else { MAX_REST };
    extent.retry_at = now + (least << extent.failures.min(16)).min(most);
    extent.failures = extent.failures.saturating_add(1);
    match errno {
        // A page was locked, isolated, or referenced by the kernel; or a control group is at its limit.
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM | SHORT | DENIED) => Ended::Unavailable,
        _ => Ended::Unfit,
    }
}
