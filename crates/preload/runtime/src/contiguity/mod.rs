//! Decides how much of the program's memory is advised: as much as there is contiguous free memory.
//!
//! On fragmented memory (one unmovable page per superpage suffices) each first touch of advised memory runs direct
//! compaction for milliseconds and still gets base pages. The advice cannot be withdrawn while a program touches one
//! large range. Therefore `advisor` decides beforehand how much of the range fits. It uses free blocks in
//! /proc/buddyinfo (3 microseconds), advised memory that is still untouched (`granted`), probes (`probe`) and failures
//! counted in /proc/vmstat (`machine`).
//!
//! A mapping advised in part is two VMAs, and `mremap` of both at once fails. The border is recorded, and [`rejoin`]
//! removes it before the call.
//!
//! All state is hints in plain atomics: no lock, no allocation, and a forked child keeps its parent's state. Once the
//! process may have a seccomp filter, no file is opened and nothing is probed: the last answer stays.
//!
//! # Safety
//! Advice changes no contents.
//! See docs/decisions/contiguity.md#1.

mod blocks;
mod granted;
mod machine;
mod probe;
mod tables;
mod untouched;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use advisor::{Action, Outcome as Ended};
use advisor::{Event, Facts, Source, Use};

use crate::counters::{self, Kind, Reason};
use crate::executor::{self, DONE, advice};
use crate::{filter, maps, pagemap, raw, settings, write_protect};

pub use machine::superpage;
pub use untouched::release as release_untouched;

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Advises as much of `[start, start + length)` as free memory allows, if the advisor says so: nothing, a part that
/// begins at `start`, or all. Returns the bytes advised; the reason for the rest is counted. Preserves errno. The
/// memory is not in use yet.
pub fn advise(kind: Kind, start: usize, length: usize) -> usize {
    advise_as(kind, start, length, Use::Fresh)
}

/// As [`advise`], for memory in use.
pub fn advise_old(kind: Kind, start: usize, length: usize) -> usize {
    advise_as(kind, start, length, Use::Old)
}

/// As [`advise`], for reserved address space of which little may be touched. The range is advised as a whole or not at
/// all, and does not count as untouched advised memory in later decisions.
pub fn advise_reserved(kind: Kind, start: usize, length: usize) -> usize {
    advise_as(kind, start, length, Use::Reserved)
}

/// Call before `mremap` moves or resizes `[start, start + length)`: merges its VMAs. Returns the bytes before the first
/// border, which were advised, for [`grown`].
pub fn rejoin(start: usize, length: usize) -> usize {
    granted::remove_borders(start, start.saturating_add(length), || {
        let facts = facts(Kind::Mmap, start, length, Use::Old);
        executor::decide(Event::Moves, &facts) == Action::Join
    })
}

/// Drops the borders in `[start, end)`, which the program or malloc reuses.
pub fn forget(start: usize, end: usize) {
    granted::forget_borders(start, end);
}

/// Call when the program watches memory through userfaultfd. From now on none of its mappings are populated, because
/// populating would wait for the program's handler.
pub fn set_watched() {
    IS_WATCHED.store(true, Relaxed);
}

/// A mapping that `mremap` enlarged.
pub struct Grown {
    pub start: usize,
    pub length: usize,
    /// Length before.
    pub old: usize,
    /// Bytes of the old length that were advised, as returned by [`rejoin`].
    pub advised: usize,
}

/// Decides how much of the added part keeps the mapping's advice. Returns the added bytes that are advised.
pub fn grown(kind: Kind, grown: &Grown) -> usize {
    let &Grown { start, length, old, advised } = grown;
    if filter::may_be_in_place() {
        // The maps must not be read: the mapping keeps its advice.
        return if advised >= old { length.saturating_sub(old) } else { 0 };
    }
    let facts = &mut Facts {
        old: old as u64,
        advised: advised.min(old) as u64,
        is_filled: advised < old
            && granted::is_filled(start + advised, start + old, machine::superpage()),
        ..facts(kind, start, length, Use::Fresh)
    };
    let action = decide(Event::Grew, facts);
    let result = match action {
        Action::Inherit { promised } => {
            advised_to(true, start, length, promised, facts);
            return length - old;
        }
        // The mapping may be of any type, and its advice may be the program's own.
        Action::Advise { .. } | Action::AdviseSmaller { .. } | Action::Unadvise { .. }
            if kind != Kind::Heap && !maps::is_private_anonymous(start, start + length) =>
        {
            Ended::Unfit
        }
        Action::AdviseSmaller { from, .. } => {
            // The old part already has page tables and contents.
            let is_advised = make_smaller(start, length, old.max(from as usize), facts);
            advised_to(is_advised, start, length, true, facts)
        }
        Action::Unadvise { from, promised, .. } => {
            counters::count_reason(Reason::Fragmented);
            let border = start + from as usize;
            // `withdraw` advises the part before the border, which must have had advice before.
            let may_advise = facts.decided_from() < facts.old
                || granted::is_filled(start, start + old, machine::superpage())
                || maps::is_advised(start);
            let is_withdrawn = may_advise && withdraw(start, border, start + length);
            advised_to(is_withdrawn, start, from as usize, promised, facts)
        }
        Action::Advise { bytes, promised, .. } => {
            let is_advised = tables::make_if_larger(start + old, length - old)
                && advice::superpages(start, length);
            advised_to(is_advised, start, bytes as usize, promised, facts)
        }
        _ => return length.saturating_sub(old),
    };
    match (executor::report_outcome(action, result, facts), action) {
        (Action::Keep, _) => length - old,
        (_, Action::Unadvise { from, .. }) if result == DONE => (from as usize).saturating_sub(old),
        (_, Action::Advise { .. } | Action::AdviseSmaller { .. }) if result == DONE => length - old,
        _ => 0,
    }
}

/// Withdraws the advice of `[border, end)` by MADV_NOHUGEPAGE, which [`rejoin`] replaces by MADV_HUGEPAGE. `false`:
/// withdrew all from `start` on, because the parts could not be merged again.
fn withdraw(start: usize, border: usize, end: usize) -> bool {
    // First withdraw all: the page that `can_be_rejoined` populates must be a base page.
    advice::base_pages(start, end - start)
        && !IS_WATCHED.load(Relaxed)
        && can_be_rejoined(border)
        && granted::add_border(border, end)
        && advice::superpages(start, border - start)
}

/// At exit: checks whether superpages were available for the memory advised last.
pub fn finish() {
    if executor::has_decided() {
        decide(Event::Ended, &mut executor::facts(0, 0, machine::superpage()));
    }
}

fn advise_as(kind: Kind, start: usize, length: usize, used: Use) -> usize {
    if !executor::advises() {
        return 0;
    }
    let facts = &mut facts(kind, start, length, used);
    let action = decide(Event::Mapped, facts);
    perform(action, kind, start, facts)
}

/// Handles the program's own advice for `[start, start + length)`. `true`: the range is advised as far as free memory
/// allows. `false`: the caller passes the advice to the kernel, because superpages are free for all of the range, or
/// the range is in use or not private and anonymous. See docs/decisions/contiguity.md#7.
pub fn advise_for_program(start: usize, length: usize) -> bool {
    if length < machine::superpage()
        || !executor::advises()
        || filter::may_be_in_place()
        || !machine::compacts_at_touches()
        || !pagemap::is_fresh(start, start + length)
    {
        return false;
    }
    let facts = &mut facts(Kind::Mmap, start, length, Use::Fresh);
    let action = decide(Event::Mapped, facts);
    if !write_protect::has_one_thread() {
        // Another thread may already write to the memory: making page tables must not discard any of it.
        facts.used = Use::Old;
    }
    match action {
        Action::Advise { bytes, promised, .. } if bytes as usize >= length => {
            let result = advised_to(true, start, length, promised, facts);
            executor::report_outcome(action, result, facts);
            false
        }
        _ if !maps::is_private_anonymous(start, start + length) => {
            executor::report_outcome(action, Ended::Unfit, facts);
            false
        }
        _ => {
            perform(action, Kind::Mmap, start, facts);
            true
        }
    }
}

/// Whether `length` bytes and some headroom are free in superpages.
pub fn free_superpages(length: usize) -> bool {
    const HEADROOM: usize = 64 << 20;
    let free = machine::free(machine::superpage());
    free.is_some_and(|free| free.contiguous >= length.saturating_add(HEADROOM))
}

/// Performs the decision about new memory; returns the bytes advised.
fn perform(action: Action, kind: Kind, start: usize, facts: &Facts) -> usize {
    let length = facts.length as usize;
    let (bytes, promised) = match action {
        Action::Advise { bytes, promised, .. } => (bytes as usize, promised),
        Action::AdviseSmaller { from, promised, .. } => {
            let is_advised = make_smaller(start, length, from as usize, facts);
            let result = advised_to(is_advised, start, length, promised, facts);
            executor::report_outcome(action, result, facts);
            return if is_advised { length } else { 0 };
        }
        _ => (0, false),
    };
    if bytes < length {
        counters::count_reason(Reason::Fragmented);
        let border = start + bytes;
        if bytes > 0 && !(can_be_rejoined(border) && granted::add_border(border, start + length)) {
            executor::report_outcome(action, Ended::Unavailable, facts);
            return 0;
        }
    }
    if bytes == 0 {
        return 0;
    }
    // Shared memory has sizes of its own, and old memory already has page tables.
    let has_size =
        kind == Kind::Shared || facts.used == Use::Old || tables::make_if_larger(start, bytes);
    let is_advised = has_size && advice::superpages(start, bytes);
    let result = advised_to(is_advised, start, bytes, promised, facts);
    executor::report_outcome(action, result, facts);
    if !is_advised {
        counters::count_reason(Reason::ThpOff);
        return 0;
    }
    bytes
}

/// Advises `[start, start + length)`, and allows only smaller superpages from `from` on.
fn make_smaller(start: usize, length: usize, from: usize, facts: &Facts) -> bool {
    counters::count_reason(Reason::Smaller);
    let border = start + from;
    let is_fresh = facts.used != Use::Old;
    if is_fresh && tables::make(border, start + length - border, facts.superpage as usize) {
        return advice::superpages(start, length);
    }
    // The range stays on base pages, as one VMA.
    advice::base_pages(start, length);
    false
}

/// Records whether the first `bytes` were advised. The promise counts until the range is touched.
fn advised_to(
    is_advised: bool,
    start: usize,
    bytes: usize,
    promised: bool,
    facts: &Facts,
) -> Ended {
    let from = facts.decided_from() as usize;
    if is_advised && promised && bytes > from {
        granted::add(start + from, start + bytes);
    }
    executor::done_if(is_advised)
}

fn facts(kind: Kind, start: usize, length: usize, used: Use) -> Facts {
    let is_sealed = filter::may_be_in_place();
    Facts {
        kind: match kind {
            Kind::Heap => advisor::Kind::Heap,
            Kind::Mmap => advisor::Kind::Mapping,
            _ => advisor::Kind::Whole,
        },
        used,
        fallback: executor::advisor_fallback(settings::get().fallback),
        compacts: !is_sealed && machine::compacts_at_touches(),
        has_larger: machine::larger_thp().is_some(),
        ..executor::facts(start, length, machine::superpage())
    }
}

/// Runs the advisor: performs the reads, probes and waits that it requests.
fn decide(event: Event, facts: &mut Facts) -> Action {
    executor::run_advisor(event, facts, |action, facts| match action {
        Action::Read(source) => Some((read(source, facts), 0)),
        Action::Obtain { .. } if counters::was_refused() => {
            facts.obtained = Some(0);
            Some((DONE, 0))
        }
        Action::Probe { .. } if counters::was_refused() => Some((Ended::NoMemory, 0)),
        Action::Obtain { count } => {
            let got = counters::supply(count);
            if got == Some(0) {
                counters::refused();
            }
            facts.obtained = Some(got.unwrap_or(0));
            // Freed superpages change both facts.
            (facts.contiguous, facts.reclaimable) = (None, None);
            Some((executor::done_if(got.is_some()), 0))
        }
        Action::Probe { count, limit } => {
            // A probe reclaims memory, which is free afterwards.
            facts.reclaimable = None;
            let tried = probe::superpages(count, limit, facts.superpage);
            if tried.0 == Ended::NoMemory {
                counters::refused();
            }
            Some(tried)
        }
        Action::Wait { .. } => {
            counters::count_reason(Reason::Compacted);
            Some((DONE, 0))
        }
        _ => None,
    })
}

fn read(source: Source, facts: &mut Facts) -> Ended {
    let superpage = facts.superpage as usize;
    match source {
        Source::Losses => {
            let (Some(counters), Some(faults)) = (machine::counters(), probe::process_faults())
            else {
                return Ended::Unavailable;
            };
            facts.stalls = counters.stalls as u64;
            facts.fallbacks = counters.fallbacks as u64;
            facts.faults = faults as u64;
        }
        Source::Free => {
            let Some(free) = machine::free(superpage) else { return Ended::Unavailable };
            facts.contiguous = Some(free.contiguous as u64);
            facts.free = free.all as u64;
            facts.total = machine::total() as u64;
            facts.outstanding = granted::outstanding_bound() as u64;
        }
        Source::Spare => {
            facts.outstanding = granted::outstanding(superpage) as u64;
            facts.reclaimable = Some(machine::reclaimable().unwrap_or(0) as u64);
            let smaller = machine::smaller_thp(superpage);
            let free = smaller.and_then(machine::free);
            facts.smaller = smaller.unwrap_or(0) as u64;
            facts.contiguous_smaller = free.map_or(0, |free| free.contiguous as u64);
            facts.has_supply = counters::has_supply();
        }
        Source::Resident | Source::Headroom | Source::Whole => return Ended::Unavailable,
    }
    DONE
}

/// VMAs that each have an `anon_vma` of their own are never merged (`is_mergeable_anon_vma`, mm/vma.c). Before the
/// range is split, a fault on the page behind the border therefore gives the whole range an `anon_vma`.
fn can_be_rejoined(border: usize) -> bool {
    // SAFETY: a fault, which changes no contents.
    unsafe { raw::populate(border, raw::base_page()) }.is_ok()
}
