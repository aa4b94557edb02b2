//! Errors of an experiment on faults.

use toml_keys::FileError;
use units::ByteSize;

/// Why an experiment failed. Each message is one line and says what would be valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultsError {
    /// An unknown machine.
    #[error("unknown machine `{name}`: expected one of {known}, or a file")]
    UnknownMachine {
        /// The requested name.
        name: String,
        /// The built-in machines.
        known: String,
    },
    /// An unusable machine file.
    #[error(transparent)]
    File(#[from] FileError),
    /// An unknown patch.
    #[error("unknown patch `{name}`: expected one of {known}")]
    UnknownPatch {
        /// The requested name.
        name: String,
        /// The known patches.
        known: String,
    },
    /// A patch with an invalid value.
    #[error("{patch}: {wanted}")]
    BadValue {
        /// The patch as given.
        patch: String,
        /// Valid values.
        wanted: &'static str,
    },
    /// Two patches that change the same thing.
    #[error("`{one}` and `{other}` change the same thing; use only one of them")]
    Clash {
        /// The first.
        one: String,
        /// The second.
        other: String,
    },
    /// A number of threads that the machine does not support.
    #[error("{threads} threads: {machine} supports 1 to {largest}")]
    Threads {
        /// The requested number.
        threads: u32,
        /// The machine.
        machine: String,
        /// Maximum.
        largest: u32,
    },
    /// Less memory than a page per thread.
    #[error("{size} is too small for {threads} threads: each touches a page of {page} or more")]
    TooSmall {
        /// The memory.
        size: ByteSize,
        /// The threads.
        threads: u32,
        /// A page.
        page: ByteSize,
    },
    /// More memory than the machine has, or than the clock can represent.
    #[error("{size} exceeds what {machine} has for a program: {largest}")]
    TooLarge {
        /// The memory.
        size: ByteSize,
        /// The machine.
        machine: String,
        /// Maximum.
        largest: ByteSize,
    },
    /// Zero or too many repetitions.
    #[error("{0} repetitions: expected 1 to 1000")]
    Repetitions(u32),
    /// An invalid setting of the prezeroing daemon.
    #[error("{setting}: {wanted}")]
    Scrub {
        /// The setting as on the command line.
        setting: String,
        /// Valid values.
        wanted: String,
    },
    /// The machine has no block transfer engine.
    #[error(
        "--zeroing bte: {0} has no block transfer engine; use --zeroing cpu, or an Altix (altix-128)"
    )]
    NoEngine(String),
    /// More cache lines than a page has.
    #[error("{asked} cache lines: a page here has {most}")]
    CacheLines {
        /// The requested number.
        asked: u32,
        /// Maximum.
        most: u32,
    },
}
