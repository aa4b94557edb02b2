//! What can be wrong with prices.

use thiserror::Error;

/// Prices that cannot be used.
#[derive(Debug, Error, PartialEq)]
pub enum PriceError {
    /// A curve without points, or of numbers that are none.
    #[error("prices: the curve {curve} {what}; measure them again (superpage tlb --save)")]
    Curve {
        /// Which.
        curve: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
}
