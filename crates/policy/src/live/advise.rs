//! How much of a piece of memory is advised for superpages: as much as free memory is contiguous
//! (docs/decisions/contiguity.md).
//!
//! Nothing can be taken back while a program touches one large piece, so what is advised must be there beforehand.
//! See docs/decisions/contiguity.md#1 and docs/decisions/contiguity.md#5.

use super::{Facts, Fallback, Kind, Pages, Policy, Request, Source, Use};
use crate::rules::Effort;
use crate::{Action, How, Result};

/// Pieces of this size are decided anew; for smaller ones what was read is good for as much in all.
const MIN_DECIDED: u64 = 8 << 20;
/// Superpages that are tried besides those that are free: more than are free must be asked for, or nothing is
/// learned of those that are not.
const EXTRA_TRIED: u64 = 4;
/// What is tried is zeroed for nothing, so it may be this part of what the program asked for since the last trial.
const TRIED_SHARE: u64 = 16;
/// So many superpages are obtained at least, so that small pieces do not ask one by one.
const LEAST_OBTAINED: u64 = 64;
/// A superpage that takes longer, in microseconds, was too long in the making. Compaction without success takes 3 to
/// 4 ms, but a superpage whose frames a hypervisor has yet to provide 5: what tells is the number of faults.
const MAX_US: u32 = 20_000;

/// What of a piece is decided about.
struct Extent {
    /// So many bytes, to its end.
    length: u64,
    /// The superpages that may come to lie there, in bytes.
    need: u64,
}

impl Request {
    /// Whether memory is advised that does not lie on the pool, where that is what is wanted of it then.
    pub fn advises(&self, fallback: Fallback) -> bool {
        matches!(self.pages, Pages::Superpage | Pages::Smaller) || fallback == Fallback::Advise
    }
}

impl Facts {
    /// The superpage's size as an order of base pages.
    pub(super) fn order(&self) -> u8 {
        (self.superpage / self.base_page.max(1)).max(1).ilog2() as u8
    }

    /// Of a mapping that grew, in bytes from its beginning: what lies behind is decided again, unless it is touched already.
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

    /// The border of a superpage at or before a place of the piece, counted from that before its beginning.
    pub(super) fn floor(&self, at: u64) -> u64 {
        self.offset.saturating_add(at) / self.superpage * self.superpage
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.used == Use::Reserved
    }
}

/// Whether page tables can be made in it before it is touched.
fn may_be_smaller(facts: &Facts) -> bool {
    facts.used == Use::Fresh && matches!(facts.kind, Kind::Mapping | Kind::Heap)
}

impl Policy {
    /// What was added to a mapping: by its lengths. Where no superpage came to be whole nothing is decided.
    pub(super) fn grew(&mut self, facts: &Facts) -> Action {
        let is_larger = facts.length > facts.old && facts.old >= facts.superpage;
        match is_larger && facts.extent().need > 0 {
            true => self.mapped(facts),
            false => Action::Keep,
        }
    }

    /// Where first touches never compact all of a piece is advised, and where nothing may be read the last answer
    /// stays. What went wrong is looked at from time to time: by what is advised. Nothing is touched where no advice
    /// is wanted.
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

    /// Nothing during a pause; for small pieces what was read last is good. (No piece: the process ends.)
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

    /// Free blocks were counted; where they could not be, superpages are tried.
    pub(super) fn counted(&mut self, facts: &Facts) -> Action {
        match facts.contiguous {
            Some(_) => self.fit(None, facts),
            None => self.trial(EXTRA_TRIED, 0, facts).unwrap_or_else(|| self.untold(facts)),
        }
    }

    /// By free blocks: [`Wanted::fit`].
    pub(super) fn fit(&mut self, tried: Option<bool>, facts: &Facts) -> Action {
        let Extent { length, need } = facts.extent();
        let was_short = self.state.is_short;
        let wanted = Wanted { need, was_short, tried, facts };
        let fit = wanted.fit();
        if fit != Fit::All && facts.reclaimable.is_none() {
            return Action::Read(Source::Spare);
        }
        let is_short = matches!(fit, Fit::Part(_) | Fit::Nothing) && may_be_smaller(facts);
        if is_short && facts.has_supply && facts.obtained.is_none() {
            if self.state.trials.is_over(self.state.requested) {
                return Action::Obtain { count: wanted.missing().max(LEAST_OBTAINED) };
            }
        } else if is_short && !facts.has_supply && tried.is_none() {
            return self.try_besides(wanted.missing(), facts);
        }
        let bytes = match fit {
            Fit::All | Fit::Oversized => length,
            Fit::Part(usable) => {
                // The border is that of a superpage.
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

    /// So many superpages were made free: free blocks are counted again. Where few were it is not tried again soon.
    pub(super) fn obtained(&mut self, count: u64, facts: &Facts) -> Action {
        let state = &mut self.state;
        match facts.obtained.is_some_and(|got| got >= count / 2) {
            true => state.trials.shorten(),
            false => _ = state.trials.grow(state.requested),
        }
        Action::Read(Source::Free)
    }

    /// A piece for which the largest superpages are not to be had: smaller ones, as far as they were free last.
    fn give_what_is_left(&mut self, need: u64, facts: &Facts) -> Action {
        match self.state.left_smaller.checked_sub(need).filter(|_| may_be_smaller(facts)) {
            Some(left) => {
                self.state.left_smaller = left;
                self.give_smaller(0, false, facts)
            }
            None => self.give(0, false, facts),
        }
    }

    /// Of what is decided about `bytes` are to lie on the largest superpages, the rest on smaller ones.
    fn give_smaller(&self, bytes: u64, promised: bool, facts: &Facts) -> Action {
        let from = facts.decided_from() + bytes;
        Action::AdviseSmaller { from, order: facts.order(), promised }
    }

    /// Free blocks are not known: all, unless superpages were not had in good time.
    fn untold(&mut self, facts: &Facts) -> Action {
        let is_good = self.state.verdict != Some(false);
        let bytes = if is_good { facts.extent().length } else { 0 };
        let action = self.give(bytes, false, facts);
        self.state.is_short = !is_good;
        self.state.left = if is_good { MIN_DECIDED } else { 0 };
        action
    }

    /// Superpages are tried besides the free ones, so many or as many as may be; or what the last trial said holds.
    fn try_besides(&mut self, count: u64, facts: &Facts) -> Action {
        let free = facts.contiguous.unwrap_or(0);
        match self.trial(count, free, facts) {
            Some(probe) => probe,
            None => self.fit(Some(self.state.verdict == Some(true)), facts),
        }
    }

    /// Tries whether superpages are had in good time besides the `free` ones; `None`: not now.
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

    /// How a trial ended: the next one is due the later, the more often none were had.
    pub(super) fn tried(&mut self, result: Result, in_time: bool, facts: &Facts) -> Action {
        let state = &mut self.state;
        let is_good = in_time && matches!(result, Result::Done { .. });
        match is_good || result == Result::Unavailable {
            true => state.trials.reset(state.requested),
            false => _ = state.trials.grow(state.requested),
        }
        if result != Result::Unavailable {
            state.verdict = Some(is_good);
        }
        // What was tried lies free now.
        match facts.contiguous {
            Some(_) => Action::Read(Source::Free),
            None => self.untold(facts),
        }
    }

    /// `bytes` of what is decided about are advised; the state is that before it was decided.
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
        // The advice that the mapping has may be the program's; malloc's may have been taken back before.
        let is_left = facts.kind != Kind::Heap && !self.state.is_short && !facts.has_larger;
        match is_left {
            true => Action::Inherit { promised },
            false => Action::Advise { bytes: border, order, promised },
        }
    }

    /// The advice reaches to `border`, or could not be given; or it is memory whose advice is not ours to change.
    pub(super) fn advised(&mut self, border: u64, result: Result, facts: &Facts) -> Action {
        match result {
            Result::Done { .. } if !facts.is_reserved() && facts.kind.is_weighed() => {
                let bytes = border.saturating_sub(facts.decided_from());
                self.state.advised = self.state.advised.saturating_add(bytes);
                Action::Nothing
            }
            Result::Unfit => Action::Keep,
            _ => Action::Nothing,
        }
    }

    /// The end of the process: whether what was advised last could be had.
    pub(super) fn ended(&mut self, facts: &Facts) -> Action {
        match self.state.has_looked && !facts.is_sealed {
            true => self.look(),
            false => Action::Nothing,
        }
    }
}

// How much of a piece fits into free memory.

/// Free memory that is left to everybody else, at most: in superpages of 2 MiB, 32.
const MARGIN: u64 = 64 << 20;
/// Once there was too little, so much more than needed must be free before anything is advised
/// again: pieces that are advised in turn with others that are not would each be a mapping of their
/// own.
const REOPEN: u64 = 64 << 20;
/// The smallest part of a piece that is worth a border in it.
const MIN_PART: u64 = 32 << 20;

/// What is to fit.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Superpages the piece may come to hold, in bytes.
    pub need: u64,
    /// There was too little last time.
    pub was_short: bool,
    /// Whether superpages were had in good time when that was tried just now; `None`: not tried.
    pub tried: Option<bool>,
    /// The rest.
    pub facts: &'a Facts,
}

/// What fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// All of it.
    All,
    /// All of it, though it is more than there can ever be: it will not all be touched.
    Oversized,
    /// So many bytes at its beginning.
    Part(u64),
    /// Nothing.
    Nothing,
    /// It must be tried whether superpages are had in good time.
    Doubtful,
}

impl Wanted<'_> {
    /// What may be advised besides what is promised to others.
    pub fn usable(&self) -> u64 {
        self.usable_of(self.facts.contiguous.unwrap_or(0))
    }

    /// Superpages that would have to be free besides, so that all fits.
    pub fn missing(&self) -> u64 {
        let facts = self.facts;
        let more = if self.was_short { REOPEN } else { 0 };
        let wanted = [self.need, more, self.margin(), facts.outstanding];
        let wanted = wanted.into_iter().fold(0, u64::saturating_add);
        let missing = wanted.saturating_sub(facts.contiguous.unwrap_or(0));
        missing.div_ceil(facts.superpage.max(1))
    }

    /// What may be advised for smaller superpages, besides so many bytes of the largest.
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
        // The watermarks of the zones, by which allocations begin to wait: with the defaults they
        // are below 3/1000 of the memory and min_free_kbytes (64 MiB).
        let watermarks = margin + facts.total / 256;
        let free = facts.free.saturating_sub(watermarks);
        contiguous.saturating_sub(margin).min(free).saturating_sub(facts.outstanding)
    }

    /// By free blocks of a superpage, and what could be free.
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
        // Free memory is short because page cache fills it: base pages wait for that as well.
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

// Segments of the program, and large files that it maps: where they lie, on superpages of their file, or in a copy (docs/decisions/live.md#5).

/// A superpage of a segment is made once, before the program runs: as thoroughly as MADV_COLLAPSE does it.
const EFFORT: Effort = Effort::DirectRetry;

/// Superpages for all of a piece.
pub(super) fn make(how: How, order: u8) -> Action {
    Action::MakeSuperpage { order, how, effort: EFFORT }
}

impl Policy {
    /// What no file has contents of is advised where it is, and so is what may lie on its file's superpages.
    pub(super) fn loaded(&self, facts: &Facts) -> Action {
        match facts.kind {
            _ if facts.is_off => Action::GiveUp,
            Kind::Segment | Kind::File if !facts.has_file => self.copied(facts),
            _ => Action::Advise { bytes: facts.length, order: facts.order(), promised: false },
        }
    }

    /// What was touched already is made superpages of. Where the file's are not to be had, a copy is. (Of bss a later
    /// scan may still make some.)
    pub(super) fn went_on_superpages(
        &self,
        action: Action,
        result: Result,
        facts: &Facts,
    ) -> Action {
        let is_done = matches!(result, Result::Done { .. });
        match action {
            Action::Advise { .. } if is_done => make(How::Collapse, facts.order()),
            Action::MakeSuperpage { how: How::Collapse, .. }
                if is_done || facts.kind == Kind::Bss =>
            {
                Action::Nothing
            }
            Action::Advise { .. } | Action::MakeSuperpage { how: How::Collapse, .. } => {
                self.copied(facts)
            }
            _ if is_done => Action::Nothing,
            _ => Action::GiveUp,
        }
    }

    /// Base pages of its own would be worse than the file's, so the copy is made if there are superpages for it.
    fn copied(&self, facts: &Facts) -> Action {
        match facts.may_copy {
            true => make(How::Copy { exclusive: true }, facts.order()),
            false => Action::GiveUp,
        }
    }
}
