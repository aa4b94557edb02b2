//! The simulated machine, end to end.

#[path = "../common/mod.rs"]
mod common;

mod conditions;
mod determinism;
mod explain;
mod layers;
mod mechanisms;
mod mutations;
mod page_tables;
mod pictures;
mod sweeps;
mod tables;
