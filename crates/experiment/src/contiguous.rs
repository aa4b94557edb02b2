//! Free memory is made contiguous by growing the hugetlb pool and giving it back at once: what was compacted lies free.
//!
//! The kernel goes on behind what it could not move there, where `compact_memory` ends at the first large folio for which
//! it has no place.
//! See docs/decisions/contiguity.md#6.

use std::path::Path;
use std::time::{Duration, Instant};

use host::journal::{Claim, JournalError, Knob, KnobWriter, SharedKnob};
use host::{MemInfo, Root};
use units::PageSize;

/// Superpages a step.
pub(crate) const STEP: u64 = 64;
/// All is not worked on for longer, nor after so many steps in a row that brought less: the kernel gives up early at times,
/// and goes on behind that place when it is asked again.
const MAX_TIME: Duration = Duration::from_secs(5);
const MAX_SHORT: u32 = 16;

/// Makes all superpages free that can be, but for what everybody else needs. Root's alone.
///
/// # Errors
/// The pool cannot be changed.
pub fn gather_all(root: &Root, journal: &Path, superpage: PageSize) -> Result<u64, JournalError> {
    gather(root, journal, superpage, most(root, superpage), (MAX_TIME, MAX_SHORT))
}

/// Makes so many free, those that lie free among them, until the time is over or more steps in a row than may be brought
/// too few; how many were.
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

/// Superpages that all that is free would make, but for what everybody else needs (nothing is reclaimed for them).
pub(crate) fn most(root: &Root, superpage: PageSize) -> u64 {
    let free = MemInfo::read(root).ok().and_then(|memory| {
        let spare = memory.total?.bytes() / 32;
        Some(memory.free?.bytes().saturating_sub(spare))
    });
    free.unwrap_or(0) / superpage.bytes()
}
