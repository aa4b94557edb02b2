//! Calibrations of simulated machines.

#[path = "../common/mod.rs"]
mod common;

mod backing;
mod damage;
mod documents;
mod oracle;
mod published;
