//! Errors in setting up a workload. Streams themselves never fail.

/// Why a workload could not be set up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has this name.
    #[error("unknown workload `{name}`: expected one of {known}")]
    Unknown {
        /// The given name.
        name: String,
        /// All known names.
        known: String,
    },
    /// The workload lacks this option.
    #[error("{workload}: no option `{option}`; it takes {takes}{hint}")]
    NoSuchOption {
        /// The workload.
        workload: &'static str,
        /// The option.
        option: String,
        /// Options of the workload.
        takes: String,
        /// Where the option belongs instead, with a leading separator; or empty.
        hint: &'static str,
    },
    /// A specification with an empty or missing part.
    #[error("`{spec}`: {what}; write a workload and its options: gups:size=1G,threads=2")]
    Malformed {
        /// The specification.
        spec: String,
        /// The defect.
        what: String,
    },
    /// An invalid value of an option.
    #[error("{workload}: {option}={value}: {why}")]
    BadValue {
        /// The workload.
        workload: &'static str,
        /// The option.
        option: String,
        /// The given value.
        value: String,
        /// Allowed values.
        why: String,
    },
    /// The workload needs more pages than a stream can number.
    #[error(
        "{workload}: {pages} pages do not fit the 2^31 page numbers of a stream; choose a smaller size"
    )]
    TooLarge {
        /// The workload.
        workload: &'static str,
        /// Number of pages needed.
        pages: u64,
    },
    /// The table of costs is invalid.
    #[error(
        "the workloads' table: {0}; crates/shared/workload-streams/data/workloads.toml shows every key"
    )]
    Table(String),
    /// This machine could not build a data structure that the workload's accesses depend on.
    #[error("{workload}: {why}; choose a smaller size")]
    Host {
        /// The workload.
        workload: &'static str,
        /// The failure.
        why: String,
    },
}
