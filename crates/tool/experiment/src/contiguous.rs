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
/// See [`Limits::short`].
const MAX_SHORT: u32 = 16;
/// Number of superpages in a step while page cache is reclaimed: a step may use up the free memory, which wakes kswapd.
const RECLAIMED_STEP: u64 = 16;
/// Pause after such a step, for kswapd.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of consecutive steps without a gain for which kswapd is waited for.
const MAX_WAITS: u32 = 16;

/// Whether page cache is reclaimed for superpages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Only free memory is used.
    Kept,
    /// The program is about to use the memory, so that its first touches would reclaim as much.
    Reclaimed,
}

/// How long superpages are gathered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub time: Duration,
    /// Maximum number of consecutive steps with a small gain. The kernel sometimes gives up early, and the next request
    /// continues behind the place where it stopped.
    pub short: u32,
    pub cache: Cache,
}

/// Frees as many superpages as possible. Returns the number of free superpages. Spares the memory that the rest of the
/// machine needs. Root only.
///
/// # Errors
/// The pool cannot be changed.
pub fn gather_all(root: &Root, journal: &Path, superpage: PageSize) -> Result<u64, JournalError> {
    let limits = Limits { time: MAX_TIME, short: MAX_SHORT, cache: Cache::Kept };
    gather(root, journal, superpage, most(root, superpage, Cache::Kept), limits)
}

/// Frees superpages until `wanted` are free. Stops early at the limits. Returns the number of free superpages.
pub(crate) fn gather(
    root: &Root,
    journal: &Path,
    superpage: PageSize,
    wanted: u64,
    limits: Limits,
) -> Result<u64, JournalError> {
    let (knob, began) = (Knob::hugetlb_pool(superpage), Instant::now());
    let (mut got, mut short, mut waits) = (0, 0, 0);
    let raise = &mut |knobs: &mut dyn KnobWriter, from: u64, to: u64| {
        let mut at = from;
        while at < to && began.elapsed() < limits.time {
            let waits_for_cache = limits.cache == Cache::Reclaimed && lacks_free_memory(root);
            let next = to.min(at + if waits_for_cache { RECLAIMED_STEP } else { STEP });
            let written = knobs.set(&knob, &next.to_string())?;
            let now = written.got.parse::<u64>().unwrap_or(at).clamp(at, next);
            (short, waits) = match (now < next, waits_for_cache) {
                (true, false) => (short + 1, waits),
                (true, true) if now == at => (short, waits + 1),
                _ => (0, 0),
            };
            at = now;
            if short > limits.short || waits > MAX_WAITS {
                break;
            }
            if waits_for_cache {
                std::thread::sleep(PAUSE);
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

/// Returns the number of superpages that fit into free memory, less the memory that the rest of the machine needs.
pub(crate) fn most(root: &Root, superpage: PageSize, cache: Cache) -> u64 {
    let usable = MemInfo::read(root).ok().and_then(|memory| {
        let usable = match cache {
            Cache::Kept => memory.free?,
            Cache::Reclaimed => memory.available.max(memory.free)?,
        };
        Some(usable.bytes().saturating_sub(spare(&memory)?))
    });
    usable.unwrap_or(0) / superpage.bytes()
}

/// Whether page cache fills the memory, so that the kernel reclaims while the pool grows.
pub(crate) fn lacks_free_memory(root: &Root) -> bool {
    let lacks = MemInfo::read(root).ok().and_then(|memory| {
        let spare = spare(&memory)?;
        Some(memory.free?.bytes() < spare && memory.available?.bytes() > spare)
    });
    lacks.unwrap_or(false)
}

/// Returns the bytes that the rest of the machine needs.
fn spare(memory: &MemInfo) -> Option<u64> {
    Some(memory.total?.bytes() / 32)
}
