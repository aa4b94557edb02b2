//! A kernel's memory management on a simulated machine: what a policy decides is carried out, and charged.
//!
//! [`simulation`] makes a machine under a policy; whoever has a stream of page accesses feeds it ([`Simulation`]).
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
