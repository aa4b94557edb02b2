//! Recording unmodified programs as streams of page accesses, on machines without a PMU.
//!
//! [`record`] runs a program under qemu-user with a plugin of ours (`plugin/`, in C, built at first use)
//! that sees every access and every system call; what it sends becomes a trace (`.spt`) with the program's
//! own mappings. A program takes 20 to 130 times its processor time so (docs/guide/record-and-traces.md).
//!
//! [`FaultSession`] runs a program natively and has the kernel tell of its page faults: first touches only.
//!
//! Frames from the plugin (`wire`) go to the stream of all processes (`stream`), which knows each one's
//! memory (`space`). Nothing here prints or reads the environment: where to search and where to keep the
//! plugin is told by who calls.
#![forbid(unsafe_code)]

mod commons;
mod error;
mod faults;
mod kernel;
mod numbers;
mod parts;
mod plugin;
mod program;
mod session;
mod space;
mod stream;
mod wire;

pub use error::RecordError;
pub use faults::FaultSession;
pub use plugin::Tools;
pub use session::{Ended, Limits, Progress, Recorded, Recording, Session, Streams, record};
pub use stream::Counts;
