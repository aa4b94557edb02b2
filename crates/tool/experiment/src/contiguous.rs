//! Makes free memory contiguous: grows the hugetlb pool and shrinks it at once, so that the compacted memory is free.
//!
//! Growing continues behind memory that the kernel could not move. `compact_memory` instead ends at the first large
//! folio for which the kernel has no place.
//! See docs/decisions/contiguity.md#6.

use std::path::Path;
use std::time::{Duration, Instant};

use host::journal::{Claim, JournalError, Knob, KnobWriter, SharedKnob};
use host::{MemInfo, Root};
use units::PageSize;

pub(crate) const STEP: u64 = 64;
/// Maximum time for all steps together.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Maximum number of consecutive steps with a small gain. The kernel sometimes gives up early, and the next request
/// continues behind the place where it stopped.
const MAX_SHORT: u32 = 16;

/// Frees as many superpages as possible. Returns the number of free superpages. Spares the memory that the rest of the
/// machine needs. Root only.
///
/// # Errors
/// The pool cannot be changed.
pub fn gather_all(root: &Root, journal: &Path, superpage: PageSize) -> Result<u64, JournalError> {
    gather(root, journal, superpage, most(root, superpage), (MAX_TIME, MAX_SHORT))
}

/// Frees superpages until `wanted` are free. Stops early if the time is over or too many consecutive steps gained too
/// little. Returns the number of free superpages.
pub(crate) fn gather(
    root: &Root,
    journal: &Path,
    superpage: PageSize,
    wanted: u64,
    (most_time, may_be_short): (Duration, u32),
) -> Result<u64, JournalError> {
    let (knob, began) = (Knob::hugetlb_pool(superpage), Instant::now());
    let (mut got, mut short) = (0, 0);
    let raise = &mut |knobs: &mut dyn KnobWriter, from: u64, to: u64| {
        let mut at = from;
        while at < to && began.elapsed() < most_time {
            let next = to.min(at + STEP);
            let written = knobs.set(&knob, &next.to_string())?;
            let now = written.got.parse::<u64>().unwrap_or(at).clamp(at, next);
            short = if now < next { short + 1 } else { 0 };
            at = now;
            if short > may_be_short {
                break;
            }
        }
        got = at - from;
        Ok(())
    };
    let want = Claim::Plus(wanted);
    let share = SharedKnob::raise_by::<JournalError>(journal, root, &knob, want, raise, &|| true)?;
    share.restore();
    Ok(got)
}

/// Returns the number of superpages that fit into free memory, less the memory that the rest of the machine needs. No
/// memory is reclaimed for them.
pub(crate) fn most(root: &Root, superpage: PageSize) -> u64 {
    let free = MemInfo::read(root).ok().and_then(|memory| {
        let spare = memory.total?.bytes() / 32;
        Some(memory.free?.bytes().saturating_sub(spare))
    });
    free.unwrap_or(0) / superpage.bytes()
}
