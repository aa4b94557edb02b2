//! Machines as files, and what is simulated of them.

mod files;
mod presets;
mod walks;
