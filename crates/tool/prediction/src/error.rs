//! Errors in prices.

use thiserror::Error;

/// Prices that cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum PriceError {
    /// A curve without points, or with invalid numbers.
    #[error("prices: the curve {curve} {what}; measure them again (superpage tlb --save)")]
    Curve {
        /// Name of the curve.
        curve: &'static str,
        /// What is wrong with the curve.
        what: &'static str,
    },
}
