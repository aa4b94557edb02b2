//! Memory before it is needed: how much of it to prepare, where, and when to stop.
//!
//! Rules only: facts go in, a decision comes out. No clock, no I/O, no allocation, no `std`, because
//! the same values decide in the library that lives inside other people's programs and in the
//! laboratory's model of page faults. A *unit* is whatever the user prepares at once: a base page there,
//! a superpage here.
#![no_std]
#![forbid(unsafe_code)]

mod prefault;
mod refill;
mod rests;
mod sequence;

pub use prefault::Prefault;
pub use refill::{Decision, Facts, Refill};
pub use rests::Rests;
pub use sequence::Sequence;
