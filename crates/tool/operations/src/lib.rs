//! What superpage does, as typed requests and results: comparisons, evaluations, benchmarks, predictions, programs run
//! on superpages. Called by the commands `superpage` and `superpage-lab` and by the Python module, which own flags,
//! printing and exit codes.
//!
//! Groups of options that several programs parse ([`workloads::WorkloadArgs`], [`compare::RuleArgs`],
//! [`compare::ServiceArgs`], [`cluster::ClusterArgs`]) are requests that clap can fill, so that no second struct is
//! needed.
//! See docs/decisions/crates.md#7.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cluster;
pub mod compare;
pub mod design;
pub mod elf;
pub mod evaluate;
pub mod facts;
mod failure;
pub mod files;
pub mod fragmentation;
pub mod jobs;
pub mod json;
pub mod live_runs;
pub mod pool_guard;
pub mod predict;
pub mod programs;
pub mod reporter;
pub mod run;
pub mod signals;
pub mod this_machine;
pub mod traces;
pub mod verify_cost;
pub mod workloads;

pub use failure::{Failure, FailureKind};
