//! TLBs and page walks, simulated.
//!
//! [`dispatch`] makes a machine's TLB, a [`Translate`], of the type that simulates it fastest. The TLB counts
//! ([`machine::Tally`]), and [`machine::Machine::walk_cycles`] turns counts into cycles. No I/O, no clock, nothing random.
#![forbid(unsafe_code)]

mod dispatch;
mod fast;
mod naive;
mod near;
mod translate;

pub use dispatch::{Visitor, dispatch};
pub use naive::Naive;
pub use translate::Translate;
