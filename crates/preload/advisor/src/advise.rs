//! How much of a piece of memory is advised for superpages: as much as free memory is contiguous
//! (docs/decisions/contiguity.md).
//!
//! A program touches one large piece without interruption, so the advice cannot be taken back and the superpages
//! must be free beforehand. See docs/decisions/contiguity.md#1 and docs/decisions/contiguity.md#5.

use crate::{Action, Outcome};
use crate::{Advisor, Facts, Fallback, Kind, Pages, Request, Source, Use};

/// Pieces of at least this size are decided individually. For smaller pieces, one read of free memory serves requests
/// of this many bytes in all.
const MIN_DECIDED: u64 = 8 << 20;
/// Number of superpages probed in addition to the free ones. A probe of the free ones alone would not show whether more
/// can be made.
const EXTRA_TRIED: u64 = 4;
/// A probe zeroes memory that the program does not use, so its size is at most 1/TRIED_SHARE of the bytes requested
/// since the last probe.
const TRIED_SHARE: u64 = 16;
/// Number of superpages that are obtained for a small piece and those after it.
const LEAST_OBTAINED: u64 = 64;
/// Maximum time to make a superpage, in microseconds. A failed compaction takes 3 to 4 ms, but a superpage takes 5 ms
/// if the hypervisor has yet to provide its frames. The number of faults is the better signal.
const MAX_US: u32 = 20_000;

/// The part of a piece that a decision covers.
struct Extent {
    /// Bytes to the end of the piece.
    length: u64,
    /// Bytes of the superpages that may cover the part.
    need: u64,
}

impl Request {
    /// Whether memory outside the pool is advised, given its fallback.
    pub fn advises(&self, fallback: Fallback) -> bool {
        matches!(self.pages, Pages::Superpage | Pages::Smaller) || fallback == Fallback::Advise
    }
}

impl Facts {
    /// The superpage's size as an order of base pages.
    pub(super) fn order(&self) -> u8 {
        (self.superpage / self.base_page.max(1)).max(1).ilog2() as u8
    }

    /// Offset in bytes from which a grown mapping is decided. The unadvised part is decided again, unless the program
    /// seems to have touched it.
    pub fn decided_from(&self) -> u64 {
        let is_old = self.advised >= self.old || self.is_filled;
        if is_old { self.old } else { self.advised }
    }

    fn extent(&self) -> Extent {
        let from = self.decided_from();
        let length = self.length.saturating_sub(from);
        let need = match self.old {
            0 => length.checked_next_multiple_of(self.superpage).unwrap_or(length),
            _ => self.floor(self.length).saturating_sub(self.floor(from)),
        };
        Extent { length, need }
    }

    /// Returns the superpage border at or before an offset of the piece, in bytes from the border before the piece.
    pub(super) fn floor(&self, at: u64) -> u64 {
        self.offset.saturating_add(at) / self.superpage * self.superpage
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.used == Use::Reserved
    }
}

/// Whether page tables can be made before the memory is touched ([`Action::AdviseSmaller`]).
fn may_be_smaller(facts: &Facts) -> bool {
    facts.used == Use::Fresh && matches!(facts.kind, Kind::Mapping | Kind::Heap)
}

impl Advisor {
    /// Decides about a mapping that grew. Leaves the mapping as it is if no whole superpage was added.
    pub(super) fn grew(&mut self, facts: &Facts) -> Action {
        let is_larger = facts.length > facts.old && facts.old >= facts.superpage;
        match is_larger && facts.extent().need > 0 {
            true => self.mapped(facts),
            false => Action::Keep,
        }
    }

    /// Decides about new memory. Advises all of it if first touches never compact; under a seccomp filter, repeats the
    /// last answer. After each interval, measured in advised bytes, reads the machine's loss counters first.
    pub(super) fn mapped(&mut self, facts: &Facts) -> Action {
        if !self.request.advises(facts.fallback) {
            return Action::Keep;
        }
        let Extent { length: asked, need } = facts.extent();
        if !facts.kind.is_weighed() {
            return self.give(asked, false, facts);
        }
        if facts.is_sealed {
            return match self.state.is_short {
                true => self.give_what_is_left(need, facts),
                false => self.give(asked, false, facts),
            };
        }
        if !facts.compacts {
            return self.give(asked, false, facts);
        }
        let state = &mut self.state;
        if !facts.is_reserved() {
            state.requested = state.requested.saturating_add(asked);
            if state.advised.saturating_add(asked) >= state.look_at {
                return self.look();
            }
        }
        self.weigh(facts)
    }

    /// Decides by free memory. During a pause, advises no superpages of the largest size. Small pieces share one read
    /// of free memory. (Length 0: the process ends.)
    pub(super) fn weigh(&mut self, facts: &Facts) -> Action {
        if facts.length == 0 {
            return Action::Nothing;
        }
        let Extent { length, need } = facts.extent();
        let state = &mut self.state;
        if !state.losses.is_over(state.requested) {
            return self.give_what_is_left(need, facts);
        }
        state.since = state.since.saturating_add(need);
        if state.since < MIN_DECIDED {
            if state.is_short {
                return self.give_what_is_left(need, facts);
            }
            if let Some(left) = state.left.checked_sub(need) {
                state.left = left;
                return self.give(length, true, facts);
            }
        }
        state.since = 0;
        Action::Read(Source::Free)
    }

    /// Continues after free blocks were counted. If they could not be counted, probes superpages.
    pub(super) fn counted(&mut self, facts: &Facts) -> Action {
        match facts.contiguous {
            Some(_) => self.fit(None, facts),
            None => self.trial(EXTRA_TRIED, 0, facts).unwrap_or_else(|| self.untold(facts)),
        }
    }

    /// Decides by free blocks ([`Wanted::fit`]).
    pub(super) fn fit(&mut self, tried: Option<bool>, facts: &Facts) -> Action {
        let Extent { length, need } = facts.extent();
        let was_short = self.state.is_short;
        let wanted = Wanted { need, was_short, tried, facts };
        let fit = wanted.fit();
        if fit != Fit::All && facts.reclaimable.is_none() {
            return Action::Read(Source::Spare);
        }
        let is_short = matches!(fit, Fit::Part(_) | Fit::Nothing) && may_be_smaller(facts);
        let may_obtain = is_short || fit == Fit::Doubtful && may_be_smaller(facts);
        if may_obtain && facts.has_supply && facts.obtained.is_none() {
            if self.state.trials.is_over(self.state.requested) {
                return Action::Obtain { count: wanted.obtainable() };
            }
        } else if is_short && !facts.has_supply && tried.is_none() {
            return self.try_besides(wanted.missing(), facts);
        }
        let bytes = match fit {
            Fit::All | Fit::Oversized => length,
            Fit::Part(usable) => {
                let from = facts.decided_from();
                let border = facts.floor(from + usable.min(length));
                border.saturating_sub(facts.offset + from)
            }
            Fit::Nothing => 0,
            Fit::Doubtful => return self.try_besides(EXTRA_TRIED, facts),
        };
        let promised = !facts.is_reserved() && fit != Fit::Oversized;
        let rest = need.saturating_sub(bytes);
        let smaller = wanted.usable_smaller(bytes);
        let action = match bytes < length && may_be_smaller(facts) && rest <= smaller {
            true => self.give_smaller(bytes, promised, facts),
            false => self.give(bytes, promised, facts),
        };
        self.state.is_short = bytes < length;
        self.state.left = if bytes < length { 0 } else { wanted.usable().saturating_sub(need) };
        self.state.left_smaller = smaller.saturating_sub(rest);
        action
    }

    /// Counts free blocks again after a supplier was asked for `count` superpages. If it freed less than half, the next
    /// attempt waits.
    pub(super) fn obtained(&mut self, count: u64, facts: &Facts) -> Action {
        let state = &mut self.state;
        match facts.obtained.is_some_and(|got| got >= count / 2) {
            true => state.trials.shorten(),
            false => _ = state.trials.grow(state.requested),
        }
        Action::Read(Source::Free)
    }

    /// Advises as much of a piece for smaller superpages as was free in them at the last read, and nothing for the
    /// largest.
    fn give_what_is_left(&mut self, need: u64, facts: &Facts) -> Action {
        match self.state.left_smaller.checked_sub(need).filter(|_| may_be_smaller(facts)) {
            Some(left) => {
                self.state.left_smaller = left;
                self.give_smaller(0, false, facts)
            }
            None => self.give(0, false, facts),
        }
    }

    /// Advises the first `bytes` of the decided extent for the largest superpages, the rest for smaller ones.
    fn give_smaller(&self, bytes: u64, promised: bool, facts: &Facts) -> Action {
        let from = facts.decided_from() + bytes;
        Action::AdviseSmaller { from, order: facts.order(), promised }
    }

    /// Decides without knowing free blocks: advises all, unless the last probe found no superpages in time.
    fn untold(&mut self, facts: &Facts) -> Action {
        let is_good = self.state.verdict != Some(false);
        let bytes = if is_good { facts.extent().length } else { 0 };
        let action = self.give(bytes, false, facts);
        self.state.is_short = !is_good;
        self.state.left = if is_good { MIN_DECIDED } else { 0 };
        action
    }

    /// Probes up to `count` superpages in addition to the free ones. If no probe is due, uses the last verdict.
    fn try_besides(&mut self, count: u64, facts: &Facts) -> Action {
        let free = facts.contiguous.unwrap_or(0);
        match self.trial(count, free, facts) {
            Some(probe) => probe,
            None => self.fit(Some(self.state.verdict == Some(true)), facts),
        }
    }

    /// Probes whether superpages beyond the `free` bytes can be made in time; `None`: no probe is due.
    fn trial(&mut self, besides: u64, free: u64, facts: &Facts) -> Option<Action> {
        let state = &mut self.state;
        let affordable =
            state.requested.saturating_sub(state.tried_at) / TRIED_SHARE / facts.superpage;
        let least = (free / facts.superpage).saturating_add(EXTRA_TRIED);
        let most = (free / facts.superpage).saturating_add(besides.max(EXTRA_TRIED));
        let count = most.min(affordable.max(EXTRA_TRIED));
        if !state.trials.is_over(state.requested) || count < least {
            return None;
        }
        state.tried_at = state.requested;
        Some(Action::Probe { count, limit: MAX_US })
    }

    /// Handles the result of a probe. Each further failure in a row delays the next probe longer.
    pub(super) fn tried(&mut self, result: Outcome, in_time: bool, facts: &Facts) -> Action {
        let state = &mut self.state;
        let is_good = in_time && matches!(result, Outcome::Done { .. });
        match is_good || result == Outcome::Unavailable {
            true => state.trials.reset(state.requested),
            false => _ = state.trials.grow(state.requested),
        }
        if result != Outcome::Unavailable {
            state.verdict = Some(is_good);
        }
        // The probe has freed its superpages.
        match facts.contiguous {
            Some(_) => Action::Read(Source::Free),
            None => self.untold(facts),
        }
    }

    /// Advises `bytes` of the decided extent. Call before updating `is_short`.
    fn give(&self, bytes: u64, promised: bool, facts: &Facts) -> Action {
        let order = facts.order();
        if facts.old == 0 {
            return match bytes {
                0 => Action::GiveUp,
                _ => Action::Advise { bytes, order, promised },
            };
        }
        let border = facts.decided_from() + bytes;
        if border < facts.length {
            return Action::Unadvise { from: border, order, promised };
        }
        // The program may have advised the mapping. The library may have withdrawn the heap's advice before.
        let is_left = facts.kind != Kind::Heap && !self.state.is_short && !facts.has_larger;
        match is_left {
            true => Action::Inherit { promised },
            false => Action::Advise { bytes: border, order, promised },
        }
    }

    /// Handles the result of advice up to `border`. `Unfit`: the memory's advice is not ours to change.
    pub(super) fn advised(&mut self, border: u64, result: Outcome, facts: &Facts) -> Action {
        match result {
            Outcome::Done { .. } if !facts.is_reserved() && facts.kind.is_weighed() => {
                let bytes = border.saturating_sub(facts.decided_from());
                self.state.advised = self.state.advised.saturating_add(bytes);
                Action::Nothing
            }
            Outcome::Unfit => Action::Keep,
            _ => Action::Nothing,
        }
    }

    /// At exit: reads the counters once more, to learn whether the last advised superpages were available.
    pub(super) fn ended(&mut self, facts: &Facts) -> Action {
        match self.state.has_looked && !facts.is_sealed {
            true => self.look(),
            false => Action::Nothing,
        }
    }
}

// How much of a piece fits into free memory.

/// Maximum free memory left to other processes (32 superpages of 2 MiB).
const MARGIN: u64 = 64 << 20;
/// After a shortage, this much more than needed must be free before anything is advised again. Otherwise advised and
/// unadvised pieces would alternate, each a VMA of its own.
const REOPEN: u64 = 64 << 20;
/// Minimum part of a piece for which the piece is split into an advised and an unadvised part.
const MIN_PART: u64 = 32 << 20;

/// A piece to fit into free memory.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Bytes of the superpages that the piece may come to hold.
    pub need: u64,
    /// Whether the last decision found too little memory.
    pub was_short: bool,
    /// Whether the probe just now found superpages in time; `None`: not probed.
    pub tried: Option<bool>,
    /// The other facts.
    pub facts: &'a Facts,
}

/// How much fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// All of it.
    All,
    /// All of the piece, although it exceeds the memory that can ever be free: the program will not
    /// touch all of it.
    Oversized,
    /// This many bytes at its beginning.
    Part(u64),
    /// Nothing.
    Nothing,
    /// A probe must decide whether superpages are available in time.
    Doubtful,
}

impl Wanted<'_> {
    /// Bytes that may be advised in addition to promised memory.
    pub fn usable(&self) -> u64 {
        self.usable_of(self.facts.contiguous.unwrap_or(0))
    }

    /// Number of further superpages needed for the whole piece to fit.
    pub fn missing(&self) -> u64 {
        let facts = self.facts;
        let more = if self.was_short { REOPEN } else { 0 };
        let wanted = [self.need, more, self.margin(), facts.outstanding];
        let wanted = wanted.into_iter().fold(0, u64::saturating_add);
        let missing = wanted.saturating_sub(facts.contiguous.unwrap_or(0));
        missing.div_ceil(facts.superpage.max(1))
    }

    /// Number of superpages to ask a supplier for.
    pub fn obtainable(&self) -> u64 {
        let need = self.need.div_ceil(self.facts.superpage.max(1));
        self.missing().saturating_add(LEAST_OBTAINED.saturating_sub(need))
    }

    /// Bytes that may be advised for smaller superpages, in addition to `besides` bytes of the largest.
    pub fn usable_smaller(&self, besides: u64) -> u64 {
        match self.facts.smaller {
            0 => 0,
            _ => self.usable_of(self.facts.contiguous_smaller).saturating_sub(besides),
        }
    }

    fn margin(&self) -> u64 {
        MARGIN.min(self.facts.total / 64)
    }

    fn usable_of(&self, contiguous: u64) -> u64 {
        let facts = self.facts;
        let margin = self.margin();
        // Allocations begin to wait below the zone watermarks: by default at most 3/1000 of memory plus min_free_kbytes
        // (64 MiB).
        let watermarks = margin + facts.total / 256;
        let free = facts.free.saturating_sub(watermarks);
        contiguous.saturating_sub(margin).min(free).saturating_sub(facts.outstanding)
    }

    /// Decides by free blocks of superpage size and by reclaimable memory.
    pub fn fit(&self) -> Fit {
        let facts = self.facts;
        let usable = self.usable();
        let more = if self.was_short { REOPEN } else { 0 };
        if self.need.saturating_add(more) <= usable {
            return Fit::All;
        }
        let has_part = usable >= MIN_PART + more;
        let reclaimable = facts.reclaimable.unwrap_or(0);
        let most_is_contiguous = facts.contiguous.unwrap_or(0) >= facts.free / 8 * 7;
        let exceeds_all = self.need > facts.free.saturating_add(reclaimable);
        if has_part && most_is_contiguous && (exceeds_all || facts.is_reserved()) {
            return Fit::Oversized;
        }
        // Page cache fills free memory, so a first touch of base pages would wait for reclaim, too.
        if reclaimable >= facts.free && reclaimable >= self.need {
            match self.tried {
                None => return Fit::Doubtful,
                Some(true) => return Fit::All,
                Some(false) => {}
            }
        }
        let may_part = facts.kind != Kind::Whole && !facts.is_reserved();
        if may_part && has_part && usable < self.need {
            return Fit::Part(usable);
        }
        Fit::Nothing
    }
}

// Segments of the program, and large files that it maps: advised in place, mapped from their file's superpages, or
// copied (docs/decisions/live.md#5).

impl Advisor {
    /// Advises memory in place if it has no file contents or its file's superpages may be mapped. Otherwise tries a
    /// copy.
    pub(super) fn loaded(&self, facts: &Facts) -> Action {
        match facts.kind {
            _ if facts.is_off => Action::GiveUp,
            Kind::Segment | Kind::File if !facts.has_file => self.copied(facts),
            _ => Action::Advise { bytes: facts.length, order: facts.order(), promised: false },
        }
    }

    /// Continues after an action on loaded memory. Collapses advised memory, because it was touched already. If that
    /// fails, copies the memory, except bss, for which khugepaged may still make superpages.
    pub(super) fn went_on_superpages(
        &self,
        action: Action,
        result: Outcome,
        facts: &Facts,
    ) -> Action {
        let is_done = matches!(result, Outcome::Done { .. });
        match action {
            Action::Advise { .. } if is_done => Action::Collapse { order: facts.order() },
            Action::Collapse { .. } if is_done || facts.kind == Kind::Bss => Action::Nothing,
            Action::Advise { .. } | Action::Collapse { .. } => self.copied(facts),
            _ if is_done => Action::Nothing,
            _ => Action::GiveUp,
        }
    }

    /// Copies only onto superpages: base pages of a copy would be worse than the file's.
    fn copied(&self, facts: &Facts) -> Action {
        match facts.may_copy {
            true => Action::Copy { order: facts.order() },
            false => Action::GiveUp,
        }
    }
}
