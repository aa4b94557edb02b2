//! What superpages would bring a program, said before they are tried: its accesses, priced.
//!
//! Three values and a formula. A [`Demand`] is what a stream of page accesses asks of the memory
//! hierarchy: how far apart in time a page's uses lie, counted in other pages ([`demand_of`]). [`Prices`]
//! are what a machine charges for that, measured on base pages and on superpages. A [`Native`] run says
//! what the program took on base pages. [`predict`] puts them together. No I/O, no clock, nothing random.
//!
//! The prices are of whole accesses by reuse distance, not of walks by TLB geometry: whatever the
//! processor and its hypervisor do about a miss (sizes of arrays, hashed sets, walk caches, nested walks,
//! page tables in the data caches) is in them without being modelled.
#![forbid(unsafe_code)]

mod demand;
mod distance;
mod error;
mod prices;
mod solve;
mod watch;

pub use demand::{Cell, Demand, Touches};
pub use distance::{Distances, OCTAVES, octave};
pub use error::PriceError;
pub use prices::{Curve, Faults, Pair, Prices, Sequential};
pub use solve::{Native, Parts, Prediction, Range, dependent_seconds, predict};
pub use watch::{Watch, demand_of};
