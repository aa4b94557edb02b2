//! Designs as files.

mod errors;
mod explain;
mod presets;
