//! Back off where first touches compacted in vain: the machine's counters tell what went wrong all the same.

use super::state::FIRST_LOOK;
use super::{Facts, Policy, Source};
use crate::{Action, Result, Wait};

/// The most that is advised between two looks.
const MAX_LOOK: u64 = 512 << 20;
/// Fallbacks that are the program's own, by its faults, from which on they count.
const MANY_FALLBACKS: u64 = 16;

impl Policy {
    /// The machine's counters are due.
    pub(super) fn look(&mut self) -> Action {
        let state = &mut self.state;
        state.look_at = state.advised.saturating_add(state.look_after);
        Action::Read(Source::Losses)
    }

    /// Compares the counters with what they were: where there were many stalls and fallbacks nothing is advised for a
    /// while, longer each time; else the next look is further away.
    pub(super) fn looked(&mut self, result: Result, facts: &Facts) -> Action {
        let is_read = matches!(result, Result::Done { .. });
        if is_read && self.are_many(facts) {
            self.state.look_after = FIRST_LOOK;
            let bytes = self.state.losses.grow(self.state.requested);
            return Action::Wait(Wait::Bytes(bytes));
        }
        self.weigh(facts)
    }

    fn are_many(&mut self, facts: &Facts) -> bool {
        let state = &mut self.state;
        let now = [facts.stalls, facts.fallbacks, facts.faults];
        let before = core::mem::replace(&mut state.seen, now);
        if !core::mem::replace(&mut state.has_looked, true) {
            return false;
        }
        let [stalls, fallbacks, faults] = [0, 1, 2].map(|at| now[at].saturating_sub(before[at]));
        // They are everybody's, but a superpage of ours that fell back was as many faults of ours.
        let own = fallbacks.min(faults >> facts.order());
        if stalls >= MANY_FALLBACKS && own >= MANY_FALLBACKS {
            return true;
        }
        state.look_after = MAX_LOOK.min(state.look_after * 2);
        state.losses.shorten();
        false
    }
}
