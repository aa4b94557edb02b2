//! The operations of superpage as typed requests and results: comparisons, evaluations, benchmarks, predictions,
//! programs run on superpages. The commands `superpage` and `superpage-lab` and the Python module call them; those own
//! flags, printing and exit codes.
//!
//! Some groups of options are parsed by several programs: [`workloads::WorkloadArgs`], [`compare::RuleArgs`],
//! [`compare::ServiceArgs`], [`cluster::ClusterArgs`]. clap fills these structs directly, so that no second struct is
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
pub mod running;
pub mod signals;
pub mod this_machine;
pub mod traces;
pub mod verify_cost;
pub mod workloads;

pub use failure::{Failure, FailureKind};
