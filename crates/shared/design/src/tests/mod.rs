//! Property tests that need access to a design's private fields.

mod generate;
mod properties;
