//! Page faults at scale: up to 512 CPUs that touch new memory of one address space, as an exact event
//! simulation.
//!
//! The workload is Lameter's `pft` (2004): each thread touches its own slice of one mapping, page by
//! page, and all of it `reps` times. A [`Machine`] is what faults cost there, a [`Kernel`] how it goes
//! about them (locks, counters, prefault, prezeroing), a [`Patch`] one change of a kernel.
//!
//! ```text
//! machine, kernel --prices--> engine (one repetition, all CPUs) --run--> Row, in Lameter's columns
//! ```
//!
//! Every CPU goes through the same stages at each fault; what it shares with others are servers (a
//! cache line, a lock), each with a queue, and the memory of its node. Times are whole picoseconds,
//! ties go to the lower CPU: the same experiment gives the same row everywhere. Once all CPUs and
//! queues are as they were a while ago, but for the time and the pages, whole such periods are passed
//! over at once (`period`); a test compares that with a twin that steps through every event.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod kernel;
mod machine;
mod memory;
mod patch;
mod period;
mod prices;
mod run;
mod scrub;
mod server;
#[cfg(test)]
mod tests;
mod touches;

pub use error::FaultsError;
pub use kernel::{Entries, Kernel, Lock, MapLock};
pub use machine::{Costs, Fitted, Machine, Placement, Starting, names, preset, preset_text};
pub use patch::{Patch, Patches};
pub use run::{Experiment, Row, Stepping, rows};
pub use scrub::{Engine, FreeBlocks, Scrub, ScrubSettings, ZeroedAhead, Zeroing};
pub use touches::Touches;

/// Maximum number of threads.
pub const MAX_THREADS: u32 = 512;
