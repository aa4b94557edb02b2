//! Traces: written, read back, imported, and damaged.

#[path = "../common/mod.rs"]
mod common;

mod damage;
mod filter;
mod import;
mod round_trip;
