//! Machines as files.

mod files;
mod presets;
