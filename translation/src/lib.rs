//! What translating addresses costs a program: an [`Estimate`] and the ways to one.
//!
//! An estimate names its [`Method`]: walk cycles counted by the processor, misses counted by the
//! processor times the cost of one, misses and cost that were given, or a recorded trace. Unknown
//! is a method too, with its reason; it is never zero.
//!
//! Nothing here prints, reads the environment or starts programs. Called by `cli`; calls `machine`
//! for files and `sys` for counters.
#![forbid(unsafe_code)]

pub mod formula;

mod estimate;
mod interval;

pub use estimate::{Estimate, Evidence, Gain, Method, Scope};
pub use interval::Interval;
