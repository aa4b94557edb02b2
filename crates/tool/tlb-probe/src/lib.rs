//! Measures address translation on a machine: TLB levels with entries, ways and the cycles of a hit; the cycles of a
//! walk; the sizes of the page-walk caches; and in a virtual machine, whether the guest's superpages take single TLB
//! entries.
//!
//! A [`Probe`] is the only interface to the machine: [`Live`] is this machine; tests use simulated machines of known
//! geometry. This crate prints nothing.
#![forbid(unsafe_code)]

mod agree;
mod backing;
mod bench;
mod calibrate;
mod document;
mod doubts;
mod end;
mod fetch;
mod levels;
mod live;
mod machine_file;
mod picture;
mod place;
mod probe;
mod statistics;
mod variables;
mod walks;
mod ways;

pub use agree::{Cost, TOLERANCE};
pub use backing::{Backing, Verdict};
pub use bench::Effort;
pub use calibrate::{Options, calibrate};
pub use document::{
    Accesses, Calibration, ClockReport, CurvePoint, LevelReport, OnPages, Processor, SCHEMA,
    SizeReport, cycles, nanoseconds,
};
pub use live::{Live, LiveCode, clock};
pub use machine_file::THIS;
pub use place::Shape;
pub use probe::{Clock, NotOffered, Offer, Place, Probe, ProbeError};
pub use walks::Step;
