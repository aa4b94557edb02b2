//! What a design means for a running program: the decisions of an executor inside its process.
//!
//! The same shape as [`crate::Policy`], and the same [`Action`]s, but a sibling: the facts are those that a process
//! can learn of real memory (bytes of mappings, free blocks, counters), not page tables, reservations and daemons of
//! a simulated machine; and what is remembered is a few words ([`State`]) that an executor loads before a decision
//! and stores after it, because a process has no place for more that its signal handlers, threads and forks could
//! share without a lock. See docs/decisions/live.md#1.
//!
//! One event may need several answers: where a fact that costs something is needed, the answer is [`Action::Read`],
//! and its outcome is told with the fact.

mod advise;
mod facts;
mod prepare;
mod record;
mod state;

pub use facts::{Event, Source};
pub use facts::{Facts, Kind, Use};
pub use record::{Begin, Record, Unread};
pub use state::{Pause, State};

use crate::{Action, Result};

/// What a user requested for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What memory is to lie on.
    pub pages: Pages,
    /// Bytes of unmapped memory that may be kept for the next request.
    pub prezero: u64,
    /// Bytes of a new mapping that may be populated when it is mapped.
    pub prefault: u64,
}

/// What memory is to lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Base pages.
    Base,
    /// Superpages, where the kernel makes them: the largest.
    Superpage,
    /// Superpages of a smaller size.
    Smaller,
    /// Superpages of the pool.
    Pool,
}

/// What is done where the pool has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The request gets base pages.
    #[default]
    Base,
    /// It fails.
    Refuse,
    /// It gets base pages, advised for superpages.
    Advise,
}

/// What is done for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The request.
    pub request: Request,
    /// What is remembered.
    pub state: State,
}

impl Policy {
    /// For a process of which nothing is known yet.
    pub const fn new(request: Request) -> Self {
        Self { request, state: State::NEW }
    }

    /// What is to be done. Depends on nothing but `self`, the event and the facts.
    pub fn on(&mut self, event: Event, facts: &Facts) -> Action {
        match event {
            Event::Mapped => self.mapped(facts),
            Event::Loaded => self.loaded(facts),
            Event::Grew => self.grew(facts),
            Event::Moves => Action::Join,
            Event::NoPoolPage => self.no_pool_page(facts),
            Event::Ready => self.ready(facts),
            Event::Wanted => self.wanted(facts),
            Event::PassedBy => self.passed_by(facts),
            Event::Unmapped => self.unmapped(facts),
            // What it was kept for cannot come true any more, or must not be seen.
            Event::Claimed | Event::Pressure | Event::Shown => Action::Release,
            Event::Ended => self.ended(facts),
            Event::Outcome { action, result, cost } => self.outcome(action, result, cost, facts),
        }
    }

    fn outcome(&mut self, action: Action, result: Result, cost: u32, facts: &Facts) -> Action {
        match action {
            _ if facts.kind.is_loaded() => self.went_on_superpages(action, result, facts),
            Action::Read(Source::Losses) => self.looked(result, facts),
            Action::Wait(_) => self.weigh(facts),
            Action::Read(Source::Free) => self.counted(facts),
            Action::Read(Source::Spare) => self.fit(None, facts),
            Action::Probe { limit, .. } => self.tried(result, cost <= limit, facts),
            Action::Advise { bytes, .. } => self.advised(bytes, result, facts),
            Action::Obtain { count } => self.obtained(count, facts),
            Action::AdviseSmaller { .. } => self.advised(facts.length, result, facts),
            Action::Unadvise { from, .. } => self.advised(from, result, facts),
            Action::Read(Source::Resident | Source::Headroom | Source::Whole)
            | Action::Populate { .. }
            | Action::Keep
            | Action::HandOut => self.prepared(action, result, facts),
            _ => Action::Nothing,
        }
    }

    /// The pool has none: as whoever asks for it wants. How much of it is advised then is told of as
    /// [`Event::Mapped`].
    fn no_pool_page(&self, facts: &Facts) -> Action {
        match facts.fallback {
            Fallback::Refuse => Action::Refuse,
            Fallback::Base => Action::GiveUp,
            Fallback::Advise => {
                Action::Advise { bytes: facts.length, order: facts.order(), promised: false }
            }
        }
    }
}
