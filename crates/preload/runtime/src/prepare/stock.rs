//! The stock: mappings that the program has unmapped, kept for its next request of the same length, and zeroed then.
//!
//! Life of a run: unmapped by the program -> moved to another address, so that nothing is mapped at the old one, and
//! kept with `MADV_FREE`, so that the kernel frees its pages before it reclaims or kills anything -> moved back, or to
//! any free address, zeroed and handed out. A run is unmapped after several requests that did not fit, when memory or
//! address space is short, or when the program maps something at its address.
//!
//! Locked memory is not kept: the kernel refuses `MADV_FREE` for it, as for memory that is no longer private and
//! anonymous.
//!
//! # Safety A run belongs to its `holder` until `holder` is [`KEPT`] or 0 again. All words of a run lie on one page, so
//! a forked child sees a consistent snapshot.
//! See docs/decisions/prepare.md#2.

use std::sync::atomic::{AtomicUsize, Ordering};

use advisor::{Action, Outcome as Ended};
use advisor::{Event, Facts, Source, Use};

use super::{budget, handed_out, is_on, zero};
use crate::counters::{self, Column, Kind, Prepared};
use crate::executor::{self, DONE};
use crate::pagemap::{self, Region};
use crate::sizes::superpage;
use crate::source;
use crate::table::{self, Range};
use crate::{limits, raw};

/// A kept mapping. (c): a thread claims it through `holder`.
#[repr(align(64))]
struct Run {
    /// 0: no run; [`KEPT`]; else the thread that works on it (address of its errno).
    holder: AtomicUsize,
    /// Current address.
    start: AtomicUsize,
    length: AtomicUsize,
    /// Address at which the program had it.
    origin: AtomicUsize,
    /// Number of large requests made before it was kept.
    kept_at_request: AtomicUsize,
}

const KEPT: usize = 1;
const COUNT: usize = 16;

static RUNS: [Run; COUNT] = [const {
    Run {
        holder: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        origin: AtomicUsize::new(0),
        kept_at_request: AtomicUsize::new(0),
    }
}; COUNT];

impl Run {
    fn claim(&self, from: usize) -> bool {
        let me = raw::errno_address();
        self.holder.compare_exchange(from, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn free(&self) {
        // Clear them, because a forked child could take these values for those of the next run.
        self.length.store(0, Ordering::Relaxed);
        self.start.store(0, Ordering::Release);
        self.holder.store(0, Ordering::Release);
    }

    fn is_kept(&self) -> bool {
        self.holder.load(Ordering::Acquire) == KEPT
    }

    fn range(&self) -> (usize, usize) {
        let start = self.start.load(Ordering::Relaxed);
        (start, start + self.length.load(Ordering::Relaxed))
    }

    /// Moves the run back to its old address, or to other free space; returns the address. This thread holds the run.
    fn move_back(&self) -> Option<usize> {
        let (from, end) = self.range();
        let (origin, length) = (self.origin.load(Ordering::Relaxed), end - from);
        let to = match reserve_at(origin, length) {
            Some(()) => origin,
            None => source::reserve(length, superpage()).ok()?,
        };
        // SAFETY: the run and the address space are this thread's.
        unsafe {
            if raw::move_to(from, length, to).is_err() {
                let _ = raw::munmap(to, length);
                return None;
            }
        }
        self.start.store(to, Ordering::Relaxed);
        Some(to)
    }

    /// Moves the run of `length` bytes back, clears it, and frees the entry. This thread holds the run; after `None` it
    /// still does.
    fn hand_out(&self, length: usize) -> Option<usize> {
        // Before the claim another thread may have replaced the run by one of another length.
        let (start, end) = self.range();
        let start = if end - start == length { self.move_back()? } else { return None };
        // SAFETY: no other code uses the memory.
        if !unsafe { clear(start, start + length) } {
            return None;
        }
        if start != self.origin.load(Ordering::Relaxed) {
            // The kernel does not merge a moved mapping with adjacent VMAs.
            let range = Range { start, end: start + length, page: raw::base_page(), shared: false };
            table::add_ordinary(range, (start, start + length));
        }
        counters::prepared_less(Prepared::Stock, length);
        self.free();
        counters::count(Kind::Mmap, Column::Advised, length);
        handed_out::enter(start, length, length);
        Some(start)
    }

    /// Moves memory that the program unmaps to the stock, as a run that this thread holds; returns its address there.
    /// `None`: not moved, and the run is free again.
    fn put_away(&self, start: usize, end: usize) -> Option<(&Self, usize)> {
        let length = end - start;
        let Some(place) = place_for(start, length) else {
            self.free();
            return None;
        };
        self.length.store(length, Ordering::Relaxed);
        self.origin.store(start, Ordering::Relaxed);
        self.start.store(place, Ordering::Release);
        // SAFETY: the program gives the memory up, and the target is reserved.
        if table::replacing(start, end, || unsafe { raw::move_to(start, length, place) }).is_err() {
            // SAFETY: address space of ours.
            let _ = unsafe { raw::munmap(place, length) };
            self.free();
            return None;
        }
        self.kept_at_request.store(executor::requests() as usize, Ordering::Relaxed);
        counters::prepared(Prepared::Stock, length);
        Some((self, place))
    }

    fn facts(&self) -> Facts {
        let (start, end) = self.range();
        let born = self.kept_at_request.load(Ordering::Relaxed) as u64;
        Facts { born, ..executor::facts(start, end - start, superpage()) }
    }

    /// Unmaps a run that this thread holds.
    fn release(&self) {
        let (start, end) = self.range();
        // SAFETY: the program gave it up, and it was not handed out again.
        let _ = unsafe { raw::munmap(start, end - start) };
        counters::prepared_less(Prepared::Stock, end - start);
        self.free();
    }
}

/// Reports an event to the advisor for the kept runs that `meant` selects, and releases the runs that the advisor
/// gives up; `false` if none was released.
fn release_on(event: Event, meant: impl Fn(&Run) -> bool) -> bool {
    let mut any = false;
    for run in &RUNS {
        if run.is_kept()
            && meant(run)
            && executor::decide(event, &run.facts()) == Action::Release
            && run.claim(KEPT)
        {
            run.release();
            any = true;
        }
    }
    any
}

/// Releases the whole stock, because memory or address space is short; `false`: it was empty.
pub fn release_all() -> bool {
    release_on(Event::Pressure, |_| true)
}

/// Releases runs kept in `[start, end)`, where the program maps memory.
pub fn release_range(start: usize, end: usize) {
    release_on(Event::Claimed, |run| {
        let (from, to) = run.range();
        from < end && start < to
    });
}

/// Takes a zeroed mapping of `length` bytes from the stock.
pub fn take(length: usize) -> Option<usize> {
    if !is_on() {
        return None;
    }
    let is_fit = |run: &&Run| run.is_kept() && run.length.load(Ordering::Relaxed) == length;
    let mut facts = executor::facts(0, length, superpage());
    facts.has_fitting = RUNS.iter().any(|run| is_fit(&run));
    let mut action = executor::decide(Event::Wanted, &facts);
    if action == Action::HandOut {
        if let Some(run) = RUNS.iter().find(|run| is_fit(run) && run.claim(KEPT)) {
            let start = run.hand_out(length);
            let result = if start.is_some() { DONE } else { Ended::NoMemory };
            if executor::report_outcome(action, result, &facts) == Action::Release {
                run.release();
            }
            return start;
        }
        action = executor::report_outcome(action, Ended::Unavailable, &facts);
    }
    if action == Action::GiveUp {
        release_on(Event::PassedBy, |_| true);
        counters::prepared(Prepared::Missed, length);
    }
    None
}

/// Zeroes a run; `false`: it is unknown which pages are resident.
///
/// # Safety
/// Private anonymous memory that is writable and not in use.
unsafe fn clear(start: usize, end: usize) -> bool {
    let cleared = pagemap::with(|fd| {
        let mut at = start;
        while at < end {
            let mut regions = [Region::default(); 32];
            let from_to = (at as u64, end as u64);
            let wanted = pagemap::PAGE_IS_HUGE | pagemap::PAGE_IS_PRESENT;
            let (found, until) =
                pagemap::scan(fd, from_to.0, from_to.1, wanted, &mut regions).ok()?;
            for region in &regions[..found] {
                let (from, to) = (region.start as usize, region.end as usize);
                // SAFETY: the caller keeps this function's contract. Pages that the kernel frees meanwhile read as
                // zeroes.
                unsafe {
                    discard(at, from);
                    zero::zero(from, to - from);
                }
                counters::prepared(Prepared::Recycled, to - from);
                counters::prepared(Prepared::HandedOut, to - from);
                at = to;
            }
            // SAFETY: the caller keeps this function's contract.
            unsafe { discard(at, until as usize) };
            at = at.max(until as usize);
        }
        Some(())
    });
    cleared.is_some()
}

/// Discards the remaining pages of a part in which the kernel has freed or split superpages.
unsafe fn discard(from: usize, to: usize) {
    if from < to {
        // SAFETY: the contract of `clear`.
        let _ = unsafe { raw::madvise(from, to - from, libc::MADV_DONTNEED) };
        counters::prepared(Prepared::Lost, to - from);
    }
}

/// Keeps a mapping that the program unmaps; `false`: the caller must unmap it.
pub fn keep(start: usize, end: usize) -> bool {
    if !handed_out::leave(start, end) || !is_on() {
        return false;
    }
    let facts = &mut Facts {
        used: Use::Unmapped,
        kept: kept() as u64,
        ..executor::facts(start, end - start, superpage())
    };
    let action = executor::run_advisor(Event::Unmapped, facts, |action, facts| match action {
        Action::Read(Source::Whole) => {
            facts.is_unlimited = limits::has_no_memory_rlimits();
            facts.is_whole = facts.is_unlimited && is_whole(start, end);
            Some((DONE, 0))
        }
        action => budget::read(action, facts),
    });
    if action != Action::Keep {
        return false;
    }
    let run = RUNS.iter().find(|run| run.claim(0));
    let Some((run, place)) = run.and_then(|run| run.put_away(start, end)) else {
        executor::report_outcome(action, Ended::Unavailable, facts);
        return false;
    };
    // SAFETY: no other code uses the memory.
    let may_be_taken = unsafe { raw::madvise(place, end - start, libc::MADV_FREE) };
    let result = if may_be_taken.is_ok() { DONE } else { Ended::Unfit };
    if executor::report_outcome(action, result, facts) == Action::Release {
        run.release();
        return true;
    }
    counters::prepared_most((kept() + end - start) as u64);
    run.holder.store(KEPT, Ordering::Release);
    true
}

/// Bytes in the stock.
fn kept() -> usize {
    let kept = |run: &Run| if run.is_kept() { run.length.load(Ordering::Relaxed) } else { 0 };
    RUNS.iter().map(kept).sum()
}

/// Reserves address space for keeping the mapping at `origin`: an eighth of the address space lower, where neither the
/// kernel nor the heap maps anything.
fn place_for(origin: usize, length: usize) -> Option<usize> {
    let place = origin - (1 << origin.ilog2()) / 8;
    place.is_multiple_of(superpage()).then(|| reserve_at(place, length))?.map(|()| place)
}

/// Reserves `[at, at + length)`, if it is free.
fn reserve_at(at: usize, length: usize) -> Option<()> {
    raw::map_at(at, length, libc::PROT_NONE, libc::MAP_NORESERVE)
}

/// Whether the whole range lies on anonymous superpages, none of them the huge zero page.
fn is_whole(start: usize, end: usize) -> bool {
    let is_whole = |fd| {
        let is_huge = pagemap::is_all(fd, start, end, pagemap::PAGE_IS_HUGE);
        let is_other = pagemap::PAGE_IS_FILE | pagemap::PAGE_IS_PFNZERO;
        (is_huge && !pagemap::has_any_of(fd, start, end, is_other)).then_some(())
    };
    pagemap::with(is_whole).is_some()
}

/// In a forked child: unmaps runs that were kept, or that other threads were working on. They are shared with the
/// parent, and the child's one thread has no use for them.
pub fn after_fork() {
    let me = raw::errno_address();
    for run in &RUNS {
        let holder = run.holder.load(Ordering::Relaxed);
        // If this thread holds the run, a handler that interrupted its work has forked, and the work continues.
        if holder != 0 && holder != me {
            let (start, end) = run.range();
            if start != 0 && end > start {
                // SAFETY: no other code uses the memory.
                let _ = unsafe { raw::munmap(start, end - start) };
            }
            run.free();
        }
    }
}
