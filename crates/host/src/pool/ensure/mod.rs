//! A wanted state of the pools, described in a file, and the way there. Idempotent: what is as
//! wanted is not written again.

mod carry_out;
mod plan;
mod wanted;

pub use carry_out::{Ensured, carry_out};
pub use plan::{Difference, Plan, Raise, plan};
pub use wanted::{MinFree, Wanted, WantedError, WantedMount, WantedPages, parse, read};
