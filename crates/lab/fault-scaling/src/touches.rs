//! `Touches`: which pages of its slice a thread touches.
//!
//! `pft` touches all of them, in order. A sparse program makes prefault miss: pages that a batch maps past the end of a
//! run are never touched, but they are allocated, zeroed and counted. (An unexpected touch maps one page. So a program
//! that jumps at each touch neither wastes pages nor gains from prefault.) See docs/decisions/faults.md#5.

/// Runs of pages that are touched in order, with pages between them that nobody touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touches {
    /// Pages per run; at least one.
    pub run: u32,
    /// Pages from the end of a run to the next run.
    pub gap: u32,
}

impl Touches {
    /// Every page.
    pub const ALL: Self = Self { run: 1, gap: 0 };

    /// Pages of a run with its gap.
    pub(super) fn period(self) -> u64 {
        u64::from(self.run) + u64::from(self.gap)
    }

    /// Returns the first touched page from `page` on.
    pub(super) fn next(self, page: u64) -> u64 {
        let place = page % self.period();
        if place < u64::from(self.run) { page } else { page - place + self.period() }
    }

    /// Returns the number of touched pages before `page`.
    pub(super) fn before(self, page: u64) -> u64 {
        let place = (page % self.period()).min(u64::from(self.run));
        page / self.period() * u64::from(self.run) + place
    }
}
