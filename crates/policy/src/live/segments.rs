//! Segments of the program, and large files that it maps: where they lie, on superpages of their file, or in a copy (docs/decisions/live.md#5).

use super::{Facts, Kind, Policy};
use crate::rules::Effort;
use crate::{Action, How, Result};

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
