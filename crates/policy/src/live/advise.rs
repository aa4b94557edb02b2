//! How much of a piece of memory is advised for superpages: as much as free memory is contiguous
//! (docs/decisions/contiguity.md).
//!
//! Nothing can be taken back while a program touches one large piece, so what is advised must be there beforehand.
//! See docs/decisions/contiguity.md#1.

use super::fit::{Fit, Wanted};
use super::{Facts, Fallback, Kind, Pages, Policy, Request, Source, Use};
use crate::{Action, Result};

/// Pieces of this size are decided anew; for smaller ones what was read is good for as much in all.
const FRESH: u64 = 8 << 20;
/// Superpages that are tried besides those that are free: more than are free must be asked for, or nothing is
/// learned of those that are not.
const BESIDES: u64 = 4;
/// What is tried is zeroed for nothing, so it may be this part of what the program asked for since the last trial.
const TRIED_SHARE: u64 = 16;
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
        let asked = facts.extent().length;
        if !facts.kind.is_weighed() {
            return self.give(asked, false, facts);
        }
        if facts.is_sealed {
            return self.give(if self.state.is_short { 0 } else { asked }, false, facts);
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
            return self.give(0, false, facts);
        }
        state.since = state.since.saturating_add(need);
        if state.since < FRESH {
            if state.is_short {
                return self.give(0, false, facts);
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
            None => self.trial(0, facts).unwrap_or_else(|| self.untold(facts)),
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
        let bytes = match fit {
            Fit::All | Fit::Oversized => length,
            Fit::Part(usable) => {
                // The border is that of a superpage.
                let from = facts.decided_from();
                let border = facts.floor(from + usable.min(length));
                border.saturating_sub(facts.offset + from)
            }
            Fit::Nothing => 0,
            Fit::Doubtful => {
                let free = facts.contiguous.unwrap_or(0);
                return match self.trial(free, facts) {
                    Some(probe) => probe,
                    None => self.fit(Some(self.state.verdict == Some(true)), facts),
                };
            }
        };
        let action = self.give(bytes, !facts.is_reserved() && fit != Fit::Oversized, facts);
        self.state.is_short = bytes < length;
        self.state.left = if bytes < length { 0 } else { wanted.usable().saturating_sub(need) };
        action
    }

    /// Free blocks are not known: all, unless superpages were not had in good time.
    fn untold(&mut self, facts: &Facts) -> Action {
        let is_good = self.state.verdict != Some(false);
        let bytes = if is_good { facts.extent().length } else { 0 };
        let action = self.give(bytes, false, facts);
        self.state.is_short = !is_good;
        self.state.left = if is_good { FRESH } else { 0 };
        action
    }

    /// Tries whether superpages are had in good time besides the `free` ones; `None`: not now.
    fn trial(&mut self, free: u64, facts: &Facts) -> Option<Action> {
        let state = &mut self.state;
        let affordable =
            state.requested.saturating_sub(state.tried_at) / TRIED_SHARE / facts.superpage;
        let count = (free / facts.superpage).saturating_add(BESIDES);
        if !state.trials.is_over(state.requested) || count > affordable.max(BESIDES) {
            return None;
        }
        state.tried_at = state.requested;
        Some(Action::Probe { count, limit: MAX_US })
    }

    /// How a trial ended: the next one is due the later, the more often none were had.
    pub(super) fn tried(&mut self, result: Result, in_time: bool, facts: &Facts) -> Action {
        let state = &mut self.state;
        if result != Result::Unavailable {
            let is_good = in_time && matches!(result, Result::Done { .. });
            state.verdict = Some(is_good);
            match is_good {
                true => state.trials.reset(state.requested),
                false => _ = state.trials.grow(state.requested),
            }
        }
        match facts.contiguous {
            Some(_) => self.fit(Some(self.state.verdict == Some(true)), facts),
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
