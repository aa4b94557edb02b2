//! What is found of a machine, from simulated ones.

#[path = "../common/mod.rs"]
mod common;

mod backing;
mod damage;
mod documents;
mod oracle;
mod published;
