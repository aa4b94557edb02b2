//! Why a workload was not run, or failed its verification. Each text is one line with problem, place and remedy.

use units::ByteSize;

use crate::Workload;

/// Why a workload has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The size per thread would fit in a first-level cache.
    #[error(
        "{workload}: size {size} with {threads} thread(s) is too small to measure memory; \
         use --size {least} or more (64 KiB per thread)"
    )]
    TooSmall {
        /// The workload.
        workload: Workload,
        /// The requested size.
        size: ByteSize,
        /// The requested number of threads.
        threads: usize,
        /// The minimum size.
        least: ByteSize,
    },
    /// The workload needs more memory than is available.
    #[error(
        "{workload}: size {size} needs {footprint} of memory and only {available} is available; \
         use a smaller --size"
    )]
    TooLarge {
        /// The workload.
        workload: Workload,
        /// The requested size.
        size: ByteSize,
        /// Peak memory of the workload.
        footprint: ByteSize,
        /// Available memory according to the caller.
        available: ByteSize,
    },
    /// The workload lacks this option.
    #[error("{workload}: unknown option --{option}; this workload takes {takes}")]
    NoSuchOption {
        /// The workload.
        workload: Workload,
        /// The option's name.
        option: &'static str,
        /// The options of the workload.
        takes: String,
    },
    /// An option's value is out of range.
    #[error("{workload}: --{option} {value} is out of range; it must be {allowed}")]
    BadOption {
        /// The workload.
        workload: Workload,
        /// The option's name.
        option: &'static str,
        /// The given value.
        value: u64,
        /// The allowed range.
        allowed: String,
    },
    /// Out of memory.
    #[error(
        "cannot allocate {bytes} for {what}: out of memory; use a smaller --size or raise the \
         memory limit (ulimit -v, cgroup)"
    )]
    Allocation {
        /// Purpose of the memory.
        what: &'static str,
        /// The requested bytes.
        bytes: ByteSize,
    },
    /// The kernel could not prefault the pages.
    #[error(
        "the pages could not be populated: madvise(MADV_POPULATE_WRITE): {0}; it needs Linux 5.14 \
         (omit --populate)"
    )]
    Populate(std::io::Error),
    /// A thread could not be started.
    #[error("cannot start thread {number} of {threads}: {source}; use fewer --threads")]
    Thread {
        /// Number of the thread, from 1.
        number: usize,
        /// The requested number of threads.
        threads: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// The memory does not hold the expected contents.
    #[error(
        "{workload}: verification failed: {what}; discard the run's figures: the memory or the \
         allocator in use may be faulty; repeat with the default allocator"
    )]
    Verification {
        /// The workload.
        workload: Workload,
        /// The found and the expected contents.
        what: String,
    },
}
