//! Predicts the effect of superpages on a program before they are used, by pricing its accesses.
//!
//! A formula combines three values. A [`Demand`] says what a stream of page accesses requires of the memory hierarchy:
//! the reuse distances of pages, in other pages ([`demand_of`]). [`Prices`] are a machine's costs of such accesses,
//! measured on base pages and on superpages. A [`Native`] run is the program's time on base pages. The formula is
//! [`predict`]. No I/O, no clock, no randomness.
//!
//! Prices are costs of whole accesses by reuse distance, not of walks by TLB geometry. So they include all effects of
//! the processor and its hypervisor on a miss without a model: sizes of arrays, hashed sets, walk caches, nested walks,
//! page tables in the data caches.
#![forbid(unsafe_code)]

mod demand;
mod distance;
mod error;
mod frames;
mod prices;
mod solve;
mod watch;

pub use demand::{Cell, Demand, Touches};
pub use distance::{Distances, OCTAVES, octave};
pub use error::PriceError;
pub use frames::{Frames, Near};
pub use prices::{ByDistance, Curve, Faults, Pair, Prices, Sequential};
pub use solve::{Native, Parts, Prediction, Range, dependent_seconds, faults_seconds, predict};
pub use watch::{Watch, demand_of};
