//! Memory before it is needed: how much of it to prepare, where, and when to stop.
//!
//! Rules only: facts go in, a decision comes out. No clock, no I/O, no allocation. A *unit* is
//! whatever the user prepares at once.

mod prefault;
mod refill;

pub use prefault::Prefault;
pub use refill::{Decision, Facts, Refill};
