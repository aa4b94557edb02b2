//! Simulates the scaling of page faults: up to 512 CPUs touch new memory of one address space.
//!
//! The workload is Lameter's `pft` (2004). Each thread touches its own slice of one mapping, page by page. The whole
//! workload is repeated `reps` times. A [`Machine`] gives the costs of a fault. A [`Kernel`] says how a fault is served
//! (locks, counters, prefault, prezeroing). A [`Patch`] is one change of a kernel.
//!
//! ```text
//! machine, kernel --prices--> engine (one repetition, all CPUs) --run--> Row, in Lameter's columns
//! ```
//!
//! Every CPU passes through the same stages at each fault. CPUs share servers (a cache line or a lock), each with a
//! queue, and the memory of their node. Times are integers, in picoseconds, and the lower CPU wins ties, so the same
//! experiment gives the same row on every machine. When the state repeats, apart from the time and the page numbers,
//! the engine skips whole periods (`period`). A test compares the result with a reference model that steps through
//! every event.
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
pub use machine::{
    Constant, Costs, Fitted, Machine, Placement, Starting, names, preset, preset_text,
};
pub use patch::{Patch, Patches};
pub use run::{Experiment, Row, Stepping, rows};
pub use scrub::{Engine, FreeBlocks, Scrub, ScrubSettings, ZeroedAhead, Zeroing};
pub use touches::Touches;

/// Maximum number of threads.
pub const MAX_THREADS: u32 = 512;
