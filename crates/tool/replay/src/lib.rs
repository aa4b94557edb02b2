//! Predicts what superpages would save by replay: short windows of a program are recorded as it runs, and executed
//! again over memory of the same shape, on base pages and on superpages.
//!
//! [`record`] records windows, [`Image`] is their machine code, [`replay`] executes it and [`saving`] compares.
//! See docs/decisions/prediction.md#11. Empty on other processors than x86-64.
#![cfg(target_arch = "x86_64")]
#![forbid(unsafe_code)]

mod cache;
mod image;
mod record;
mod times;
mod translate;

pub use image::{Image, Region};
pub use record::{Plan, Recorded, Window, record};
pub use times::{Passes, Saving, Times, replay, saving};

use sys::SysError;
use sys::expendable::ChildError;
use units::ByteSize;

/// Why there is no prediction by replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The program cannot be started.
    #[error("the program cannot be started: {0}")]
    Start(std::io::Error),
    /// The program cannot be traced.
    #[error("the program cannot be traced: {0}; see kernel.yama.ptrace_scope, or run as its user")]
    Trace(SysError),
    /// The program's windows touch too many regions.
    #[error("its windows touch {regions} superpage regions; 1 to {most} can be replayed")]
    TooLarge {
        /// Superpage regions touched.
        regions: u64,
        /// The most that can be replayed.
        most: u64,
    },
    /// Too few windows.
    #[error("only {windows} windows were recorded; give the program more work")]
    TooFew {
        /// Windows recorded.
        windows: usize,
    },
    /// Memory is short.
    #[error(
        "the replay needs {needed}, and {available} are free; free memory, or give the program less"
    )]
    NoMemory {
        /// Memory needed.
        needed: ByteSize,
        /// Memory available.
        available: ByteSize,
    },
    /// The kernel did not give the requested pages.
    #[error(
        "only {got} of {of} replayed memory are on {on}; free memory may be fragmented: superpage pool"
    )]
    NotGot {
        /// Bytes on the requested pages.
        got: ByteSize,
        /// Bytes requested.
        of: ByteSize,
        /// The requested pages.
        on: &'static str,
    },
    /// A call failed.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// The replay's process failed.
    #[error("the replay: {0}")]
    Child(#[from] ChildError),
}
