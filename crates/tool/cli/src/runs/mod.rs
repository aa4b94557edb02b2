//! Experiments of several runs, for the commands that make them: the flags of their arms, the job with everything
//! decided, and its progress.

pub mod arms;
pub mod designs;
mod job;
mod preload;
mod progress;

pub use arms::{WarmMemory, runs, seconds, share};
pub use job::{Job, JobOutcome};
pub use progress::Bar;
