//! Event 1, allocation: what is done where no memory is free.

use crate::action::Compaction;
use crate::rules::{Effort, Reclaim, Shortage};
use crate::{Action, Attempt, Policy, Result};

/// An allocation of a superpage that compacts and reclaims (`__alloc_pages_slowpath` of an order that is costly):
/// how far it is. Executors hand it back as they got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direct {
    /// How thoroughly it compacts the second time.
    pub second: Compaction,
    /// It gives up where compaction could not be tried.
    pub gives_up: bool,
    /// It compacts for the second time.
    pub is_second: bool,
}

/// Pages that are reclaimed together at least (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

impl Policy {
    /// No base page is free: what the design keeps back is given up, then pages are reclaimed.
    pub(crate) fn no_page(&self, wanted: u64) -> Action {
        match self.breaks_reservations() {
            true => Action::BreakReservation { wanted },
            false => Action::ReleaseHeld { wanted },
        }
    }

    /// That gave nothing.
    pub(crate) fn still_no_page(&self, tried: Action) -> Action {
        match tried {
            Action::BreakReservation { wanted } => Action::ReleaseHeld { wanted },
            Action::ReleaseHeld { wanted } => self.reclaim(wanted.max(CLUSTER), None),
            _ => Action::GiveUp,
        }
    }

    /// Whether reservations are broken where memory runs out.
    pub fn breaks_reservations(&self) -> bool {
        self.rules.allocation.break_reservations
    }

    pub(crate) fn reclaim(&self, pages: u64, direct: Option<Direct>) -> Action {
        let whole = 1 << self.scale.superpage;
        let lumpy = self.rules.memory.reclaim == Reclaim::Lumpy && pages >= whole;
        Action::Reclaim { pages, lumpy, direct }
    }

    /// No superpage is free.
    pub(crate) fn no_superpage(&self, effort: Effort, daemon: bool) -> Action {
        use Compaction::{Async, SyncLight};
        let (second, gives_up) = match effort {
            Effort::None => return Action::GiveUp,
            Effort::Wake => return Action::Wake,
            Effort::Direct => (Async, true),
            Effort::DirectRetry => (SyncLight, false),
            // Linux 4.3: a fault's compaction is asynchronous, khugepaged's is SYNC_LIGHT, also the second.
            Effort::Direct43 => (if daemon { SyncLight } else { Async }, true),
        };
        let direct = Direct { second, gives_up, is_second: false };
        match self.compacts() {
            true => Action::Compact { mode: Async, direct: Some(direct) },
            false => self.reclaim_for(direct),
        }
    }

    /// There is still none after compaction.
    pub(crate) fn after_compaction(&self, direct: Direct, result: Result) -> Action {
        if direct.is_second || direct.gives_up && result == Result::Unavailable {
            return Action::GiveUp;
        }
        self.reclaim_for(direct)
    }

    /// There is still none after reclaim.
    pub(crate) fn after_reclaim(&self, direct: Direct) -> Action {
        if !self.compacts() {
            return Action::GiveUp;
        }
        let again = Direct { is_second: true, ..direct };
        Action::Compact { mode: direct.second, direct: Some(again) }
    }

    /// The pool is short of a superpage: memory is compacted for it, then pages are reclaimed.
    pub(crate) fn no_pool_page(&self, tried: Attempt) -> Action {
        let reclaims = self.rules.memory.reclaim != Reclaim::None;
        match (tried, self.rules.allocation.shortage) {
            (Attempt::Nothing, _) => Action::Compact { mode: Compaction::Sync, direct: None },
            (Attempt::Compaction, _) if reclaims => self.reclaim(1 << self.scale.superpage, None),
            (_, Shortage::Refuse) => Action::Refuse,
            (_, Shortage::BasePage | Shortage::Preempt) => Action::GiveUp,
        }
    }

    fn reclaim_for(&self, direct: Direct) -> Action {
        self.reclaim(1 << self.scale.superpage, Some(direct))
    }

    fn compacts(&self) -> bool {
        self.rules.memory.reclaim == Reclaim::Compaction
    }
}
