//! Samples of running processes and of the machine: memory, superpages, faults and stalls, again and again at a bounded
//! price; and the same as metrics.
//!
//! Nothing here writes to a process or to a setting, and nothing reads smaps, which holds a process's mmap lock for as
//! long as the kernel walks a whole mapping.
#![forbid(unsafe_code)]

mod cgroup;
mod machine;
mod metrics;
mod sample;
mod sampler;
pub mod serve;
mod walk;

pub use cgroup::CgroupCounters;
pub use machine::{Machine, MachineMemory, Pool, Rates};
pub use metrics::Metrics;
pub use sample::{Cost, Group, Grouping, Row, Sample, Unread, groups};
pub use sampler::{Budget, Progress, Sampler};
pub use walk::{Mapped, Step, Walk};
