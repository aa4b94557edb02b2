//! Decides how much of the program's memory is advised: as much as free memory is contiguous.
//!
//! On fragmented memory (one unmovable page per superpage suffices) each first touch of advised memory runs direct
//! compaction for milliseconds and still gets base pages. The advice cannot be taken back while a program touches
//! one large piece. Therefore `policy::live` decides before the advice how much of it fits, from free blocks in
//! /proc/buddyinfo (3 microseconds), advised memory that is still untouched (`granted`), trials (`probe`) and
//! failures counted in /proc/vmstat (`machine`).
//!
//! A mapping advised in part is two mappings to the kernel, and `mremap` of both at once fails. The border is
//! recorded, and [`rejoin`] removes it first.
//!
//! All state is hints in plain atomics: no lock, no allocation, and a forked child keeps its parent's. Once a
//! seccomp filter may be set no file is opened and nothing is tried: the last answer stays.
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

use policy::live::{self, Event, Facts, Source, Use};
use policy::{Action, Result as Ended};

use crate::counters::{self, Kind, Reason};
use crate::executor::{self, DONE, advice};
use crate::{filter, maps, pagemap, raw, settings, write_protect};

pub use machine::superpage;
pub use untouched::release as release_untouched;

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Advises as much of `[start, start + length)` as free memory allows, if the policy says so: nothing, a part that
/// begins at `start`, or all. Returns the bytes advised; the reason for the rest is counted. Preserves errno. The
/// memory is not in use yet.
pub fn advise(kind: Kind, start: usize, length: usize) -> usize {
    give(kind, start, length, Use::Fresh)
}

/// The same for memory in use.
pub fn advise_old(kind: Kind, start: usize, length: usize) -> usize {
    give(kind, start, length, Use::Old)
}

/// The same for reserved address space of which little may be touched: all or nothing, and later pieces do not wait
/// for its touches.
pub fn advise_reserved(kind: Kind, start: usize, length: usize) -> usize {
    give(kind, start, length, Use::Reserved)
}

/// Called before `mremap` moves or resizes `[start, start + length)`: makes it one mapping. Returns the bytes that
/// were advised, for [`grown`]: those before the first border.
pub fn rejoin(start: usize, length: usize) -> usize {
    granted::remove_borders(start, start.saturating_add(length), || {
        let facts = facts(Kind::Mmap, start, length, Use::Old);
        executor::on(Event::Moves, &facts) == Action::Join
    })
}

/// The program, or malloc, reuses `[start, end)`: its borders are dropped.
pub fn forget(start: usize, end: usize) {
    granted::forget_borders(start, end);
}

/// The program watches memory through userfaultfd: nothing of its mappings is populated any more, because that would
/// wait for the handler.
pub fn is_watched() {
    IS_WATCHED.store(true, Relaxed);
}

/// A mapping that `mremap` enlarged.
pub struct Grown {
    pub start: usize,
    pub length: usize,
    /// Length before.
    pub old: usize,
    /// Bytes of it that were advised, as returned by [`rejoin`].
    pub advised: usize,
}

/// The added part of a mapping inherits the advice, and keeps it as far as free memory allows. Returns the added
/// bytes that are advised.
pub fn grown(kind: Kind, grown: &Grown) -> usize {
    let &Grown { start, length, old, advised } = grown;
    if filter::may_be_in_place() {
        // Nothing may be looked up: it keeps what it has.
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
        // It may be any memory, and the advice it has may be the program's.
        Action::Advise { .. } | Action::AdviseSmaller { .. } | Action::Unadvise { .. }
            if kind != Kind::Heap && !maps::is_private_anonymous(start, start + length) =>
        {
            Ended::Unfit
        }
        Action::AdviseSmaller { from, .. } => {
            // What was there before has its page tables, and contents.
            let is_advised = make_smaller(start, length, old.max(from as usize), facts);
            advised_to(is_advised, start, length, true, facts)
        }
        Action::Unadvise { from, promised, .. } => {
            counters::because(Reason::Fragmented);
            let border = start + from as usize;
            // Before a border there is advice, which is not for memory that never had it.
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
    match (executor::ended(action, result, facts), action) {
        (Action::Keep, _) => length - old,
        (_, Action::Unadvise { from, .. }) if result == DONE => (from as usize).saturating_sub(old),
        (_, Action::Advise { .. } | Action::AdviseSmaller { .. }) if result == DONE => length - old,
        _ => 0,
    }
}

/// Takes back the advice of `[border, end)`; `false`: of everything from `start`, because the mapping could not be
/// joined again. That takes MADV_NOHUGEPAGE, which [`rejoin`] takes back in turn.
fn withdraw(start: usize, border: usize, end: usize) -> bool {
    // First of all of it: the base page that joins the parts would be a superpage.
    advice::base_pages(start, end - start)
        && !IS_WATCHED.load(Relaxed)
        && can_be_rejoined(border)
        && granted::add_border(border, end)
        && advice::superpages(start, border - start)
}

/// At exit: whether superpages were available for what was advised last.
pub fn finish() {
    if executor::has_decided() {
        decide(Event::Ended, &mut executor::facts(0, 0, machine::superpage()));
    }
}

fn give(kind: Kind, start: usize, length: usize, used: Use) -> usize {
    if !executor::advises() {
        return 0;
    }
    let facts = &mut facts(kind, start, length, used);
    let action = decide(Event::Mapped, facts);
    perform(action, kind, start, facts)
}

/// The program advises `[start, start + length)` itself. Returns whether that was done as far as free memory allows,
/// as for memory advised by the library; otherwise the kernel does it: all of it fits, the memory is in use, or it
/// is not private and anonymous. See docs/decisions/contiguity.md#7.
pub fn requested(start: usize, length: usize) -> bool {
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
        // Another may write to it already: nothing of it may be discarded, as page tables are made.
        facts.used = Use::Old;
    }
    match action {
        Action::Advise { bytes, promised, .. } if bytes as usize >= length => {
            let result = advised_to(true, start, length, promised, facts);
            executor::ended(action, result, facts);
            false
        }
        _ if !maps::is_private_anonymous(start, start + length) => {
            executor::ended(action, Ended::Unfit, facts);
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
            executor::ended(action, result, facts);
            return if is_advised { length } else { 0 };
        }
        _ => (0, false),
    };
    if bytes < length {
        counters::because(Reason::Fragmented);
        let border = start + bytes;
        if bytes > 0 && !(can_be_rejoined(border) && granted::add_border(border, start + length)) {
            executor::ended(action, Ended::Unavailable, facts);
            return 0;
        }
    }
    if bytes == 0 {
        return 0;
    }
    // Shared memory has sizes of its own, and old memory its page tables.
    let has_size =
        kind == Kind::Shared || facts.used == Use::Old || tables::make_if_larger(start, bytes);
    let is_advised = has_size && advice::superpages(start, bytes);
    let result = advised_to(is_advised, start, bytes, promised, facts);
    executor::ended(action, result, facts);
    if !is_advised {
        counters::because(Reason::ThpOff);
        return 0;
    }
    bytes
}

/// Advises `[start, start + length)`, of which only smaller superpages may come from `from` on.
fn make_smaller(start: usize, length: usize, from: usize, facts: &Facts) -> bool {
    counters::because(Reason::Smaller);
    let border = start + from;
    // Old memory has its page tables, and contents.
    let is_fresh = facts.used != Use::Old;
    if is_fresh && tables::make(border, start + length - border, facts.superpage as usize) {
        return advice::superpages(start, length);
    }
    // It stays on base pages, as one mapping.
    advice::base_pages(start, length);
    false
}

/// The first `bytes` were advised, or not. The decision about them holds for the piece until it is touched.
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
            Kind::Heap => live::Kind::Heap,
            Kind::Mmap => live::Kind::Mapping,
            _ => live::Kind::Whole,
        },
        used,
        fallback: executor::as_told(settings::get().fallback),
        compacts: !is_sealed && machine::compacts_at_touches(),
        has_larger: machine::larger_thp().is_some(),
        ..executor::facts(start, length, machine::superpage())
    }
}

/// Runs the policy's loop: reads and tries what it asks for.
fn decide(event: Event, facts: &mut Facts) -> Action {
    executor::ask(event, facts, |action, facts| match action {
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
            // Both are to be learned again.
            (facts.contiguous, facts.reclaimable) = (None, None);
            Some((executor::done_if(got.is_some()), 0))
        }
        Action::Probe { count, limit } => {
            // What is had is free afterwards.
            facts.reclaimable = None;
            let tried = probe::superpages(count, limit, facts.superpage);
            if tried.0 == Ended::NoMemory {
                counters::refused();
            }
            Some(tried)
        }
        Action::Wait(_) => {
            counters::because(Reason::Compacted);
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
            facts.outstanding = granted::at_most() as u64;
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

/// Mappings with an own `anon_vma` are never merged (`is_mergeable_anon_vma`, mm/vma.c). The piece therefore gets
/// one before it is split: by its first fault, of the page behind the border.
fn can_be_rejoined(border: usize) -> bool {
    // SAFETY: a fault, which changes no contents.
    unsafe { raw::populate(border, raw::base_page()) }.is_ok()
}
