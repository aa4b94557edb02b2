//! Decides for an executor inside the process how much of the program's memory is advised on this machine now.
//!
//! The facts are those that a process can learn about real memory (bytes of mappings, free blocks, counters). The
//! meaning of a superpage design is another layer (the crate `policy`), with its own facts and actions. The state is a
//! few words ([`State`]) that an executor loads before a decision and stores after it: signal handlers, threads and
//! forks share it without a lock.
//! See docs/decisions/live.md#1.
//!
//! One event may need several answers. If the decision needs an expensive fact, the answer is [`Action::Read`], and the
//! executor reports the outcome with the fact.
#![no_std]
#![forbid(unsafe_code)]

mod action;
mod advise;
mod facts;
mod prepare;
mod record;
mod state;

pub use action::{Action, Outcome};
pub use facts::{Event, Source};
pub use facts::{Facts, Kind, Use};
pub use record::{Begin, Record, Unread};
pub use state::{Pause, State};

/// What a user requested for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The pages wanted for memory.
    pub pages: Pages,
    /// Maximum bytes of unmapped memory kept for the next request.
    pub prezero: u64,
    /// Maximum bytes of a new mapping populated when it is mapped.
    pub prefault: u64,
}

/// The pages wanted for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Base pages.
    Base,
    /// The kernel's superpages of the largest size.
    Superpage,
    /// Superpages of a smaller size.
    Smaller,
    /// Superpages of the pool.
    Pool,
}

/// What happens when the pool is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The request gets base pages.
    #[default]
    Base,
    /// The request fails.
    Refuse,
    /// The request gets base pages, advised for superpages.
    Advise,
}

/// The advisor of one process: the request and the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advisor {
    /// The request.
    pub request: Request,
    /// The state kept between events.
    pub state: State,
}

impl Advisor {
    /// Makes the advisor of a new process.
    pub const fn new(request: Request) -> Self {
        Self { request, state: State::NEW }
    }

    /// Returns the action to perform, which depends only on `self`, the event and the facts.
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
            // The kept mapping can no longer serve its purpose, or must not be observed.
            Event::Claimed | Event::Pressure | Event::Shown => Action::Release,
            Event::Ended => self.ended(facts),
            Event::Outcome { action, result, cost } => self.outcome(action, result, cost, facts),
        }
    }

    fn outcome(&mut self, action: Action, result: Outcome, cost: u32, facts: &Facts) -> Action {
        match action {
            _ if facts.kind.is_loaded() => self.went_on_superpages(action, result, facts),
            Action::Read(Source::Losses) => self.looked(result, facts),
            Action::Wait { .. } => self.weigh(facts),
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

    /// Decides by the request's fallback when the pool is empty. [`Event::Mapped`] then decides how much of an advised
    /// fallback is advised.
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
