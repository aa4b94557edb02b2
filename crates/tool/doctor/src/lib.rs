//! The machine's settings judged for a class of workload.
//!
//! [`Facts`] are read once from a [`host::Root`]; [`examine`] judges them without I/O. Nothing here writes to the machine.
//! A check whose facts cannot be read is unknown, never fine.
#![forbid(unsafe_code)]

mod checks;
mod configuration;
mod facts;
mod finding;
mod processes;

pub use checks::{CHECKS, Check, Checked, Report, State, Workload, examine};
pub use configuration::{BootLine, Setter, SetterKind, SysctlLine};
pub use facts::{CpuFacts, Fact, Facts, GroupRefusal, Missing, MountFacts, Setting};
pub use finding::{Evidence, Finding, Lasting, Remedy, Severity, Step};
pub use processes::{Postgres, ProcessFacts, Program};
