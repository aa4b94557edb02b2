//! Analysis of reports: pure functions.
//!
//! `account` groups causes and computes the figures of a run; `explain` says in words why one run was faster than
//! another. A figure that reports do not give is `None`.

mod account;
mod explain;
mod phrases;

pub use account::Account;
pub(crate) use account::PAGES;
pub use account::{Figures, Made, figures, incomparable, speedup};
pub use account::{mean_coverage, most_superpages, time_until};
pub use explain::{Difference, EXPLAIN_SCHEMA, Explanation, explain};
pub use phrases::end;
