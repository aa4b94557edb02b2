//! Workloads as streams of page accesses: the live kernels' own sequences, and models of published programs.
//!
//! A [`Setup`] is parsed from a specification (`gups:size=8G,weight=64`), and builds a [`Stream`] and its
//! [`Description`]. The simulator reads the stream; reports use the description. The programs' costs per access are in
//! `crates/shared/workload-streams/data/workloads.toml` ([`Tables`]).
#![forbid(unsafe_code)]

mod catalog;
mod emit;
mod entry;
mod error;
mod kernels;
mod models;
mod program;
mod setup;
mod space;
mod tables;

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;

pub use catalog::catalog;
pub use entry::{Entry, Given, Parameter};
pub use error::WorkloadError;
pub use kernels::Both;
pub use models::{AreaTable, Build, Gcc, Kind, Model, Order, Redis, Visit};
pub use program::Stream;
pub use setup::{Description, Figure, Setup};
pub use tables::{Cost, Independent, Kernel, TABLES, Tables};

pub(crate) use emit::Emit;
