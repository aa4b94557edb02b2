//! Recordings of real programs.

#[path = "../common/mod.rs"]
mod common;

mod faults;
mod programs;
