//! Machines as files.

mod files;
mod measured;
mod presets;
