//! Event 4, a superpage's mapping is destroyed, and what is then done with its frames.

use crate::rules::Release;
use crate::{Action, Facts, Policy};

impl Policy {
    /// Pages of a superpage go. A part of one of the pool's is refused, so it stays.
    pub(crate) fn unmapped(&self, whole: bool, facts: &Facts) -> Action {
        match facts.region.superpage {
            None => Action::Nothing,
            Some(_) if whole => Action::Release,
            Some(_) if facts.region.is_pooled => Action::Keep,
            Some(_) => Action::Demote,
        }
    }

    /// A part of a superpage gets another protection. For one of the pool that is refused.
    pub(crate) fn protected(&self, whole: bool, facts: &Facts) -> Action {
        let is_split = facts.region.superpage.is_some() && !facts.region.is_pooled && !whole;
        if is_split && self.rules.unmapping.on.protect { Action::Demote } else { Action::Keep }
    }

    /// Pages of a superpage are mapped once more. What an object's mappings share has base pages in each.
    pub(crate) fn shared(&self, whole: bool, private: bool, facts: &Facts) -> Action {
        match facts.region.superpage {
            None => Action::Keep,
            Some(_) if facts.region.is_pooled || whole && private => Action::Keep,
            Some(_) => Action::Demote,
        }
    }

    /// What becomes of frames of a split superpage whose pages go.
    pub(crate) fn demoted(&self, reserved: bool) -> Action {
        let holds = self.rules.deallocation.release == Release::UnderPressure;
        if holds && !reserved { Action::Hold } else { Action::Release }
    }
}
