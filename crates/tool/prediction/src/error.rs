//! Errors in prices.

use thiserror::Error;

/// Why prices cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum PriceError {
    /// A curve has no points, or invalid numbers.
    #[error("prices: the curve {curve} {what}; measure them again (superpage tlb --save)")]
    Curve {
        /// Name of the curve.
        curve: &'static str,
        /// What is wrong with the curve.
        what: &'static str,
    },
}
