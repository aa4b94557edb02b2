//! Why a workload could not be set up. Its streams never fail.

/// Why a workload could not be set up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("unknown workload `{name}`: expected one of {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// All names.
        known: String,
    },
    /// The workload lacks this option.
    #[error("{workload}: no option `{option}`; it takes {takes}{hint}")]
    NoSuchOption {
        /// The workload.
        workload: &'static str,
        /// The option.
        option: String,
        /// The options it has.
        takes: String,
        /// Where it is to be said instead, with a separator before it; or nothing.
        hint: &'static str,
    },
    /// A specification says nothing where it should say something.
    #[error("`{spec}`: {what}; write a workload and its options: gups:size=1G,threads=2")]
    Malformed {
        /// The specification.
        spec: String,
        /// What is wrong with it.
        what: String,
    },
    /// An option's value makes no sense.
    #[error("{workload}: {option}={value}: {why}")]
    BadValue {
        /// The workload.
        workload: &'static str,
        /// The option.
        option: String,
        /// What was given.
        value: String,
        /// What is allowed.
        why: String,
    },
    /// More pages than a stream can number.
    #[error(
        "{workload}: {pages} pages do not fit the 2^31 page numbers of a stream; choose a smaller size"
    )]
    TooLarge {
        /// The workload.
        workload: &'static str,
        /// The pages it would need.
        pages: u64,
    },
    /// The table of costs is not readable.
    #[error(
        "the workloads' table: {0}; crates/shared/workload-streams/data/workloads.toml shows every key"
    )]
    Table(String),
    /// A structure that the sequence depends on could not be built on this machine.
    #[error("{workload}: {why}; choose a smaller size")]
    Host {
        /// The workload.
        workload: &'static str,
        /// What failed.
        why: String,
    },
}
