//! Why a workload was not run, or was run and is not believed. Each text is one line that says
//! what, where, and what would be right.

use units::ByteSize;

use crate::Workload;

/// Why a workload yields no outcome.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The size is zero or fits in a first-level cache.
    #[error(
        "{workload}: size {size} with {threads} thread(s) is too small to measure memory; \
         use --size {least} or more (64 KiB per thread)"
    )]
    TooSmall {
        /// Which workload.
        workload: Workload,
        /// The size asked for.
        size: ByteSize,
        /// The threads asked for.
        threads: usize,
        /// The least size that is accepted.
        least: ByteSize,
    },
    /// The workload would need more memory than the machine has free.
    #[error(
        "{workload}: size {size} needs {footprint} of memory and only {available} is available; \
         use a smaller --size"
    )]
    TooLarge {
        /// Which workload.
        workload: Workload,
        /// The size asked for.
        size: ByteSize,
        /// The most memory the workload holds at once.
        footprint: ByteSize,
        /// What the caller said is available.
        available: ByteSize,
    },
    /// An option this workload does not have.
    #[error("{workload}: unknown option --{option}; this workload takes {takes}")]
    NoSuchOption {
        /// Which workload.
        workload: Workload,
        /// The option's name.
        option: &'static str,
        /// The options it has, for people.
        takes: String,
    },
    /// An option's value is out of range.
    #[error("{workload}: --{option} {value} is out of range; it must be {allowed}")]
    BadOption {
        /// Which workload.
        workload: Workload,
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: u64,
        /// What is allowed, for people.
        allowed: String,
    },
    /// The allocator had no memory to give.
    #[error(
        "cannot allocate {bytes} for {what}: out of memory; use a smaller --size or raise the \
         memory limit (ulimit -v, cgroup)"
    )]
    Allocation {
        /// What the memory was for.
        what: &'static str,
        /// How much was asked for.
        bytes: ByteSize,
    },
    /// The kernel would not fault pages in ahead.
    #[error(
        "the pages could not be populated: madvise(MADV_POPULATE_WRITE): {0}; it needs Linux 5.14 \
         (omit --populate)"
    )]
    Populate(std::io::Error),
    /// A thread could not be started.
    #[error("cannot start thread {number} of {threads}: {source}; use fewer --threads")]
    Thread {
        /// Which one, from 1.
        number: usize,
        /// How many were wanted.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The memory does not hold what the kernel must have left there.
    #[error(
        "{workload}: verification failed: {what}; discard the run's figures: the memory or the \
         allocator in use may be faulty; repeat with the default allocator"
    )]
    Verification {
        /// Which workload.
        workload: Workload,
        /// What was found and what was expected.
        what: String,
    },
}
