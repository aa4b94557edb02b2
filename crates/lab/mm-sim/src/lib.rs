//! Simulates a kernel's memory management: executes the decisions of a policy and charges their cost.
//!
//! [`simulation`] creates a machine under a policy. The caller feeds a stream of page accesses to the [`Simulation`].
#![forbid(unsafe_code)]

mod counts;
pub mod fragment;
pub mod hugetlb;
mod ledger;
pub mod memory;
pub mod reservation;
mod simulation;
mod supported;
mod system;
mod touched;

pub use counts::{Counters, Moment, Phase};
pub use ledger::{Cause, CycleCounts};
pub use memory::{Layout, LayoutError, Nodes, PartUse};
pub use simulation::{Simulation, simulation};
pub use supported::{
    NotSimulated, not_simulated, not_simulated_of_faults, not_simulated_on, policy_on,
    regions_of_superpage,
};
pub use system::{Observations, Outcome, Stop, kernel_memory, scale};
pub use touched::{Counts, Touched, TouchedView};
