//! Tests of the model as a whole.

mod experiments;
mod properties;
mod twin;
