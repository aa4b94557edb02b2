//! `Touches`: which pages of its slice a thread touches.
//!
//! `pft` touches all of them, in order. A program that does not lets prefault miss: what a batch maps past the
//! end of a run is never touched, though its memory is taken, zeroed and counted. (A touch that nobody expected is
//! a batch of one page, so who jumps each time wastes nothing, and has nothing of it.)
//! See docs/decisions/faults.md#5.

/// Runs of pages that are touched in order, with pages between them that nobody touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touches {
    /// Pages per run; at least one.
    pub run: u32,
    /// Pages to the next run.
    pub gap: u32,
}

impl Touches {
    /// Every page.
    pub const ALL: Self = Self { run: 1, gap: 0 };

    /// Pages per run and gap.
    pub(super) fn period(self) -> u64 {
        u64::from(self.run) + u64::from(self.gap)
    }

    /// The first touched page from this one on.
    pub(super) fn next(self, page: u64) -> u64 {
        let place = page % self.period();
        if place < u64::from(self.run) { page } else { page - place + self.period() }
    }

    /// Number of touched pages before this one.
    pub(super) fn before(self, page: u64) -> u64 {
        let place = (page % self.period()).min(u64::from(self.run));
        page / self.period() * u64::from(self.run) + place
    }
}
