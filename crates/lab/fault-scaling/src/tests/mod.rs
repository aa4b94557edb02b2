//! Tests of the model as a whole.

mod daemon;
mod experiments;
mod properties;
mod twin;
