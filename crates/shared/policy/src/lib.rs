//! The behaviour of a superpage design, as a function from events and facts to actions.
//!
//! A design's [`Rules`] are values that `design` reads from a file, and a [`Policy`] interprets the rules. An executor
//! passes an event ([`Event`]) and the facts of its place ([`Facts`]) to the policy, and performs the returned
//! [`Action`]. The executor reports the result of the action as the next event ([`Event::Outcome`]). Executors decide
//! nothing:
//!
//! | executor | performs on |
//! |---|---|
//! | `lab` | a simulated machine, where actions cost cycles |
//! | `live` | memory of other, running programs, with the kernel's MADV_COLLAPSE |
//!
//! Pure: no clock, no I/O, no kernel, and no allocation after [`Policy::new`]. See
//! docs/decisions/policy.md#2.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod action;
pub mod ahead;
mod daemon;
mod display;
mod event;
mod expression;
mod facts;
mod fault;
mod orders;
pub mod rules;
mod scan;
mod settings;
mod upkeep;

pub use crate::display::{Fact, Rule};
pub use crate::fault::Direct;
pub use crate::orders::Population;
pub use crate::scan::Criterion;
pub use crate::scan::{Pages, Promotion, Refused, SoftFault, direct, promotion};
pub use action::{
    Action, Candidates, Compaction, DaemonAction, FaultAction, How, ScanAction, UpkeepAction, Wait,
    WatchAction,
};
pub use daemon::Daemon;
pub use display::ActionDisplay;
pub use event::{Attempt, Event, Result};
pub use expression::{Condition, Kind, Malformed, Operation, Step};
pub use facts::{
    Backing, Extent, Facts, Machine, Mapping, Page, Reads, Region, Reservation, Superpage,
};
pub use fault::Plain;
pub use orders::Orders;
pub use rules::{Rules, table};
pub use scan::Process;
pub use settings::{FaultPath, Launch, LaunchPages, Physical, Scale, Zeroing};

use fault::AtFault;

/// A design's rules on one machine, and the state kept between events.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Rules,
    scale: Scale,
    at_fault: AtFault,
    sequence: fault::Sequence,
    passes: [daemon::Pass; 9],
    running: Option<Daemon>,
    is_sampling: bool,
    upkeep: upkeep::State,
}

impl Policy {
    /// Makes the policy of `rules` on a machine of this scale.
    pub fn new(rules: &Rules, scale: Scale) -> Self {
        Self {
            at_fault: AtFault::new(rules, &scale),
            sequence: fault::Sequence::new(rules),
            passes: Default::default(),
            running: None,
            is_sampling: false,
            upkeep: upkeep::State::default(),
            rules: rules.clone(),
            scale,
        }
    }

    /// Returns the action to perform after an event.
    #[inline(always)]
    pub fn on(&mut self, event: Event, facts: &Facts) -> Action {
        match event {
            Event::Fault { write } => Action::Fault(self.fault(write, facts)),
            Event::Grew { before, after } => self.grew(before, after, facts),
            Event::Populated => self.populated(facts),
            Event::Prepared { write } => self.mapped_at_once(write, facts),
            Event::Mapped => self.mapped(facts),
            Event::NoPage { wanted } => self.no_page(wanted),
            Event::NoSuperpage { effort, is_copy } => self.no_superpage(effort, is_copy),
            Event::NoPoolPage { tried } => self.no_pool_page(tried),
            Event::Unmapped { whole } => self.unmapped(whole, facts),
            Event::Protected { whole } => self.protected(whole, facts),
            Event::Shared { whole, private } => self.shared(whole, private, facts),
            Event::Demoted { reserved } => self.demoted(reserved),
            Event::CollapseRequested => self.collapsible(true, facts),
            Event::Candidate => self.candidate(facts),
            Event::Inspected { requested } => self.inspected(requested, facts),
            Event::Tick(daemon) => Action::Daemon(self.tick(daemon, facts)),
            Event::Outcome { action, result, cost } => self.outcome(action, result, cost, facts),
        }
    }

    /// Returns the next action after `action` ended with `result`.
    fn outcome(&mut self, action: Action, result: Result, cost: u32, facts: &Facts) -> Action {
        match action {
            Action::Fault(action) => Action::Fault(self.no_memory(action, facts)),
            Action::MakeSuperpage { order, how: How::Copy { .. }, .. }
                if result == Result::NoMemory && order > self.scale.superpage =>
            {
                self.consider_below(order)
            }
            Action::Compact { direct: Some(direct), .. } => self.after_compaction(direct, result),
            Action::Reclaim { direct: Some(direct), .. } => self.after_reclaim(direct),
            Action::Daemon(action) => Action::Daemon(self.worked(action, result, cost, facts)),
            _ => self.still_no_page(action),
        }
    }
}
