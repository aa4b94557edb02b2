//! Designs as files.

mod errors;
mod presets;
