//! Records unmodified programs as streams of page accesses, without a PMU.
//!
//! [`record`] runs a program under qemu-user with our plugin (`plugin/`, in C, built at first use), which sees every
//! access and every system call. The plugin's frames become a trace (`.spt`) with the program's own mappings. A
//! recorded program takes 20 to 130 times its native CPU time (docs/guide/record-and-traces.md).
//!
//! [`FaultSession`] runs a program natively and records its page faults, that is, only first
//! touches.
//!
//! Frames from the plugin (`wire`) go to the stream of all processes (`stream`), which tracks the memory of each
//! process (`space`). This crate does not print or read the environment: the caller passes the search path and the
//! plugin's directory.
#![forbid(unsafe_code)]

mod error;
mod faults;
mod kernel;
mod numbers;
mod parts;
mod plugin;
mod program;
mod session;
mod shared_state;
mod space;
mod stream;
mod wire;

pub use error::RecordError;
pub use faults::FaultSession;
pub use plugin::Tools;
pub use session::{Ended, Limits, Progress, Recorded, Recording, Session, Streams, record};
pub use stream::Counts;
