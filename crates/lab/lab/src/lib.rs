//! The laboratory: runs superpage designs on a simulated machine.
#![forbid(unsafe_code)]

pub mod analysis;
mod coarse;
pub mod plot;
mod profile;
mod report;
mod run;
pub mod side_by_side;
pub mod sweep;
pub mod tables;
pub mod validation;

pub use self::report::{Cell, ENGINE, End, MemoryPart, Report, Requests, SCHEMA};
pub use crate::run::{Going, Pass, TO_THE_END, Unread, Watched};
pub use crate::run::{
    NotSimulated, fault_kernel, has_fault_table, not_simulated, not_simulated_of_faults,
    watches_contents,
};
pub use coarse::STREAM_PAGE;
pub use profile::{PROFILE_SECONDS, Profile, ProfileSpan, profile_stream, profile_watched};
pub use run::{Experiment, LabError, check, run, run_stream, run_watched};
