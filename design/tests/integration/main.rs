//! Designs as files.

#[path = "../common/mod.rs"]
mod common;

mod errors;
mod presets;
mod properties;
