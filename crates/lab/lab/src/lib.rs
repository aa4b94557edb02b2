//! The laboratory: a superpage design carried out on a simulated machine.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod faults;
pub mod hugetlb;
mod ledger;
mod load;
pub mod memory;
pub mod plot;
mod profile;
mod report;
pub mod reservation;
mod run;
mod side_by_side;
pub mod sweep;
mod system;
pub mod tables;
mod touched;
mod watch;

pub mod fragment;
pub mod workloads;

pub use self::report::{Cell, Counters, ENGINE, End, Moment, Phase, Report, Requests, SCHEMA};
pub use ledger::{Cause, Ledger};
pub use load::{NotSimulated, not_simulated, watches_contents};
pub use profile::{PROFILE_SECONDS, Profile, ProfileSpan, profile_stream, profile_watched};
pub use run::{Experiment, LabError, run, run_stream, run_watched};
pub use system::kernel_memory;
pub use touched::Touched;
pub use watch::{Pass, Watched};
