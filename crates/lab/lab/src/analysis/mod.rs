//! What reports say: pure functions over facts.
//!
//! `figures` computes one run's ratios, `timeline` reads when superpages came, `account` groups causes,
//! and `explain` tells in words why one run was faster than another. Nothing here knows how a run is
//! made; whatever a report does not tell is `None`.

mod account;
mod explain;
mod phrases;

pub use account::Account;
pub(crate) use account::PAGES;
pub use account::{Figures, Made, figures, incomparable, speedup};
pub use account::{mean_coverage, most_superpages, time_until};
pub use explain::{Difference, EXPLAIN_SCHEMA, Explanation, explain};
pub use phrases::end;
