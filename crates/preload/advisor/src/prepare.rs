//! Memory prepared before it is touched: populating new mappings, and keeping unmapped ones
//! (docs/decisions/prepare.md).
//! See docs/decisions/prepare.md#2.

use crate::{Action, Outcome};
use crate::{Advisor, Facts, Pages, Request, Source, Use};

/// Superpage sizes that can be prepared in one step: 2 MiB take 0.1 to 0.4 ms (measured), 32 MiB about 5 ms.
const FITTING: core::ops::RangeInclusive<u64> = 1 << 20..=32 << 20;
/// Maximum number of bytes prepared, whatever the size of the process.
const MAX_PREPARED: u64 = 64 << 20;
/// At most 1/SHARE of the process's memory, and of its cgroup's headroom, is prepared.
const SHARE: u64 = 10;
/// Bytes populated at a time: this bounds the wait of other threads for the address space's lock.
const PORTION: u64 = 8 << 20;
/// A kept mapping is released after this many requests that did not reuse it.
const PATIENCE: u64 = 8;

impl Request {
    /// Whether anything is prepared with superpages of this size. Smaller sizes (mTHP) do not qualify: PTEs map them,
    /// so moving or freeing a part splits them.
    pub fn prepares(&self, superpage: u64) -> bool {
        let is_asked = self.prezero > 0 || self.prefault > 0;
        is_asked && self.pages == Pages::Superpage && FITTING.contains(&superpage)
    }
}

impl Facts {
    /// Bytes of `asked` that may be prepared: at most 1/SHARE of the process's memory with the `more` bytes it
    /// requests. Ignores cgroup limits.
    fn allowed(&self, asked: u64, more: u64) -> u64 {
        let memory = self.resident.unwrap_or(0).saturating_add(more);
        let bytes = asked.min(MAX_PREPARED).min(memory / SHARE);
        if bytes < self.superpage { 0 } else { bytes }
    }

    /// As [`Self::allowed`], but within cgroup limits, too.
    fn allowed_by_all(&self, asked: u64, more: u64) -> u64 {
        let bytes = self.allowed(asked, more);
        self.headroom.map_or(bytes, |headroom| bytes.min(headroom / SHARE))
    }
}

impl Advisor {
    fn prepares(&self, facts: &Facts) -> bool {
        !facts.is_sealed && self.request.prepares(facts.superpage)
    }

    /// Starts populating the beginning of a new, fully advised mapping, if requested and within the bounds.
    pub(super) fn ready(&self, facts: &Facts) -> Action {
        match self.prepares(facts) && self.prefault(facts) >= facts.superpage {
            true => Action::Read(Source::Resident),
            false => Action::Nothing,
        }
    }

    fn prefault(&self, facts: &Facts) -> u64 {
        self.request.prefault.min(facts.length)
    }

    /// Populates the next portion of the superpages within the allowed bytes.
    fn populate(&self, facts: &Facts) -> Action {
        let bytes = facts.allowed_by_all(self.prefault(facts), facts.length);
        let first = facts.offset.next_multiple_of(facts.superpage);
        let all = facts.floor(bytes).saturating_sub(first);
        let portion = PORTION.max(facts.superpage).min(all.saturating_sub(facts.prepared));
        match portion / facts.base_page {
            0 => Action::Nothing,
            most => Action::Populate { most: most as u32 },
        }
    }

    /// Decides about a request that a kept mapping may serve. Returns `Nothing` if mappings are never kept.
    pub(super) fn wanted(&mut self, facts: &Facts) -> Action {
        let is_whole = facts.length.is_multiple_of(facts.superpage);
        if self.request.prezero == 0 || !self.prepares(facts) || !is_whole {
            return Action::Nothing;
        }
        self.state.requests = self.state.requests.wrapping_add(1);
        if facts.has_fitting { Action::HandOut } else { Action::GiveUp }
    }

    /// Releases the mapping after too many requests since it was kept, not counting the current one.
    pub(super) fn passed_by(&self, facts: &Facts) -> Action {
        let before = self.state.requests.wrapping_sub(1);
        let is_old = before.wrapping_sub(facts.born) > PATIENCE;
        if is_old { Action::Release } else { Action::Keep }
    }

    /// Keeps a mapping that the program unmaps, if it lies on private superpages and is within the bounds.
    pub(super) fn unmapped(&self, facts: &Facts) -> Action {
        let is_aligned = facts.offset == 0 && facts.length.is_multiple_of(facts.superpage);
        match self.prepares(facts) && is_aligned {
            true => Action::Read(Source::Resident),
            false => Action::Release,
        }
    }

    /// Continues after an action, with the facts learned.
    pub(super) fn prepared(&mut self, action: Action, result: Outcome, facts: &Facts) -> Action {
        let is_done = matches!(result, Outcome::Done { .. });
        match action {
            Action::Populate { .. } if is_done => self.populate(facts),
            // Another thread took the mapping.
            Action::HandOut if result == Outcome::Unavailable => Action::GiveUp,
            Action::HandOut | Action::Keep if !is_done => Action::Release,
            Action::Populate { .. } | Action::HandOut | Action::Keep => Action::Nothing,
            Action::Read(source) if facts.used == Use::Unmapped => self.may_keep(source, facts),
            Action::Read(Source::Resident) => {
                match facts.allowed(self.prefault(facts), facts.length) {
                    0 => Action::Nothing,
                    _ => Action::Read(Source::Headroom),
                }
            }
            _ => self.populate(facts),
        }
    }

    fn may_keep(&self, source: Source, facts: &Facts) -> Action {
        let all = facts.kept.saturating_add(facts.length);
        let prezero = self.request.prezero;
        match source {
            Source::Resident if all <= facts.allowed(prezero, 0) => Action::Read(Source::Headroom),
            Source::Headroom if all <= facts.allowed_by_all(prezero, 0) => {
                Action::Read(Source::Whole)
            }
            Source::Whole if facts.is_unlimited && facts.is_whole => Action::Keep,
            _ => Action::Release,
        }
    }
}
