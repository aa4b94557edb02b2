//! Predictions.

mod predict;
mod watch;
