//! TLBs and page walks, simulated.

mod presets;
mod walks;
