//! Superpages made and split in running processes from outside, once or for as long as a service runs.
#![forbid(unsafe_code)]

pub mod config;
pub mod operation;
