//! The cost of address translation for a program: an [`Estimate`] and the methods to obtain one.
//!
//! An estimate names its [`Method`]: walk cycles counted by the CPU, misses counted by the CPU and multiplied by a
//! cost, misses and cost given by the user, or a recorded trace. If no method is possible, the estimate is unknown and
//! has a reason. It is never zero.
//!
//! This crate does not print, read the environment or start programs. It uses `host` and `sys` for counters.
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
pub use count::{Count, Gap, MissCost, Mode};
pub use estimate::{Estimate, Evidence, Figure, Gain, Hits, Method, Missing, Recount, Scope};
pub use given::{Given, KEYS as GIVEN_KEYS};
pub use interpret::{Context, MIN_CYCLES, interpret};
