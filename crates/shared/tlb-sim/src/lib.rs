//! Simulation of TLBs and page walks.
//!
//! [`dispatch`] makes a machine's TLB: a [`Translate`], of the type that simulates this TLB fastest. The TLB counts
//! look-ups, hits and walks ([`machine::Tally`]), and [`machine::Machine::walk_cycles`] converts the counts to cycles.
//! No I/O, no clock, no randomness.
#![forbid(unsafe_code)]

mod dispatch;
mod fast;
mod naive;
mod near;
mod translate;

pub use dispatch::{Visitor, dispatch};
pub use naive::Naive;
pub use translate::Translate;
