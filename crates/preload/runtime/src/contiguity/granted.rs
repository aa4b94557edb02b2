//! Advised memory that is not touched yet, and borders within mappings of which only a part is advised.
//!
//! The entries are hints in plain atomics, without a lock. If two threads write an entry at once, one write is lost. A
//! thread that reads an entry during a write may query memory that is not ours, and learns only whether it is resident.
//!
//! # Safety
//! Only `mincore` and advice, which change no contents and fail on unmapped memory. See
//! docs/decisions/contiguity.md#3.

use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::executor::advice;
use crate::{filter, pagemap};

/// (a) An advised range: `[start, end)`; 0: none.
struct Advised {
    start: AtomicUsize,
    end: AtomicUsize,
    /// Number of samples that the last check found untouched.
    untouched: AtomicUsize,
    /// Number of consecutive checks that found no further sample touched.
    age: AtomicUsize,
}

const MAX_RANGES: usize = 16;
static ADVISED: [Advised; MAX_RANGES] = [const {
    Advised {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        untouched: AtomicUsize::new(0),
        age: AtomicUsize::new(0),
    }
}; MAX_RANGES];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Samples per range.
const SAMPLES: usize = 8;

/// Records that `[start, end)` is advised.
pub fn add(start: usize, end: usize) {
    for range in &ADVISED {
        let (from, to) = (range.start.load(Relaxed), range.end.load(Relaxed));
        if from == 0 {
            continue;
        }
        // Extend an adjacent range.
        if to == start {
            range.end.store(end, Relaxed);
        } else if from == end {
            range.start.store(start, Relaxed);
        } else {
            continue;
        }
        range.untouched.store(usize::MAX, Relaxed);
        range.age.store(0, Relaxed);
        return;
    }
    let range = &ADVISED[NEXT.fetch_add(1, Relaxed) % MAX_RANGES];
    range.start.store(0, Relaxed);
    range.end.store(end, Relaxed);
    range.untouched.store(usize::MAX, Relaxed);
    range.age.store(0, Relaxed);
    range.start.store(start, Relaxed);
}

/// Upper bound of [`outstanding`]: the length of all ranges.
pub fn outstanding_bound() -> usize {
    let length = |range: &Advised| {
        let start = range.start.load(Relaxed);
        if start == 0 { 0 } else { range.end.load(Relaxed).saturating_sub(start) }
    };
    ADVISED.iter().map(length).fold(0, usize::saturating_add)
}

/// Checks without progress after which a range counts half.
const HALVED_AFTER: usize = 32;

/// Estimate of advised bytes that are not resident. Ranges that stay untouched count less and less: many programs map
/// more than they touch.
pub fn outstanding(superpage: usize) -> usize {
    ADVISED.iter().map(|range| range.outstanding(superpage)).fold(0, usize::saturating_add)
}

impl Advised {
    fn outstanding(&self, superpage: usize) -> usize {
        let (start, end) = (self.start.load(Relaxed), self.end.load(Relaxed));
        if start == 0 || end <= start {
            return 0;
        }
        let first = start.next_multiple_of(superpage);
        let whole = end.saturating_sub(first) / superpage;
        let samples = whole.clamp(1, SAMPLES);
        let is_untouched = |sample: &usize| {
            let at = if whole == 0 { start } else { first + sample * whole / samples * superpage };
            pagemap::is_resident(at) == Some(false)
        };
        let untouched = (0..samples).filter(is_untouched).count();
        if untouched == 0 {
            // Touched, or unmapped.
            let _ = self.start.compare_exchange(start, 0, Relaxed, Relaxed);
            return 0;
        }
        if untouched >= self.untouched.swap(untouched, Relaxed) {
            self.age.fetch_add(1, Relaxed);
        } else {
            self.age.store(0, Relaxed);
        }
        let halvings = (self.age.load(Relaxed) / HALVED_AFTER).min(usize::BITS as usize - 1);
        ((end - start) / samples * untouched) >> halvings
    }
}

/// Whether samples suggest that `[start, end)` is touched. Samples only the start of the last superpage: the rest may
/// be malloc's rounding.
pub fn is_filled(start: usize, end: usize, superpage: usize) -> bool {
    let last = end.saturating_sub(superpage).max(start);
    let sample = |number: usize| start + (last - start) / 4 * number;
    (0..4).map(sample).chain([last]).all(|at| pagemap::is_resident(at) == Some(true))
}

/// The border of advice inside a mapping: advised before `at`, not advised after it. A thread claims a slot by
/// compare-and-exchange of `at`; 0: free slot, 1: being written.
struct Border {
    at: AtomicUsize,
    end: AtomicUsize,
}

const BORDERS: usize = 32;
static INSIDE: [Border; BORDERS] =
    [const { Border { at: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; BORDERS];

/// Records a border; `false`: the table is full.
pub fn add_border(at: usize, end: usize) -> bool {
    for border in &INSIDE {
        let old = border.at.load(Relaxed);
        let is_nowhere = |at| pagemap::is_resident(at).is_none();
        let is_gone = || !filter::may_be_in_place() && is_nowhere(old - 1) && is_nowhere(old);
        if (old == 0 || old == at || old > 1 && is_gone())
            && border.at.compare_exchange(old, 1, Relaxed, Relaxed).is_ok()
        {
            border.end.store(end, Relaxed);
            border.at.store(at, Release);
            return true;
        }
    }
    false
}

/// Removes the borders in `[start, end)`. If `is_joined` returns true, advises the memory behind each one, so that the
/// VMAs merge again. Returns the bytes before the first border, or all if there is none.
pub fn remove_borders(start: usize, end: usize, is_joined: impl Fn() -> bool) -> usize {
    let mut first = end;
    each_border(start, end, |at, until| {
        first = first.min(at);
        if !is_joined() {
            return;
        }
        advice::superpages(at, until.min(end) - at);
        if until > end {
            add_border(end, until);
        }
    });
    first - start
}

/// Removes borders in `[start, end)`.
pub fn forget_borders(start: usize, end: usize) {
    each_border(start.saturating_sub(1), end, |_, _| ());
}

/// Removes the borders inside `[start, end)`, and passes each to `work` with the end of its mapping.
fn each_border(start: usize, end: usize, mut work: impl FnMut(usize, usize)) {
    for border in &INSIDE {
        let at = border.at.load(Acquire);
        if at > 1 && at > start && at < end {
            let until = border.end.load(Relaxed);
            if border.at.compare_exchange(at, 0, Relaxed, Relaxed).is_ok() {
                work(at, until);
            }
        }
    }
}
