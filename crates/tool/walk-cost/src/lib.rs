//! What translating addresses costs a program: an [`Estimate`] and the ways to one.
//!
//! An estimate names its [`Method`]: walk cycles counted by the processor, misses counted by the
//! processor times the cost of one, misses and cost that were given, or a recorded trace. Unknown
//! is a method too, with its reason; it is never zero.
//!
//! Nothing here prints, reads the environment or starts programs. Called by `cli`; calls `machine`
//! for files and `sys` for counters.
#![forbid(unsafe_code)]

pub mod events;
pub mod formula;
pub mod from;
pub mod live;

mod count;
mod estimate;
mod given;
mod interpret;

pub use crate::estimate::Interval;
pub use crate::estimate::{Attribution, Share};
pub use count::{Count, MissCost, Mode};
pub use estimate::{Estimate, Evidence, Gain, Method, Scope};
pub use given::{Given, KEYS as GIVEN_KEYS};
pub use interpret::{Context, MIN_CYCLES, interpret};
