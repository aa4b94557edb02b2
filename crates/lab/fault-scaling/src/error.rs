//! What can be wrong with an experiment on faults.

use toml_keys::FileError;
use units::ByteSize;

/// Why there is no answer. One line each, with what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultsError {
    /// No such machine.
    #[error("unknown machine `{name}`: expected one of {known}, or a file")]
    UnknownMachine {
        /// What was asked for.
        name: String,
        /// Those that are built in.
        known: String,
    },
    /// A machine's file that cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// No such patch.
    #[error("unknown patch `{name}`: expected one of {known}")]
    UnknownPatch {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A patch whose value is none.
    #[error("{patch}: {wanted}")]
    BadValue {
        /// As it was given.
        patch: String,
        /// What would be right.
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
    /// A number of threads that this machine cannot have.
    #[error("{threads} threads: {machine} supports 1 to {largest}")]
    Threads {
        /// How many were asked for.
        threads: u32,
        /// Where.
        machine: String,
        /// The most.
        largest: u32,
    },
    /// Less than a page for each thread.
    #[error("{size} is too small for {threads} threads: each touches a page of {page} or more")]
    TooSmall {
        /// The memory.
        size: ByteSize,
        /// The threads.
        threads: u32,
        /// A page.
        page: ByteSize,
    },
    /// More than the machine has, or than times can be counted for.
    #[error("{size} exceeds what {machine} has for a program: {largest}")]
    TooLarge {
        /// The memory.
        size: ByteSize,
        /// Where.
        machine: String,
        /// The most.
        largest: ByteSize,
    },
    /// No repetition, or too many.
    #[error("{0} repetitions: expected 1 to 1000")]
    Repetitions(u32),
    /// A setting of the daemon that zeroes ahead.
    #[error("{setting}: {wanted}")]
    Scrub {
        /// As on the command line.
        setting: String,
        /// What would be right.
        wanted: String,
    },
    /// No block transfer engine.
    #[error(
        "--zeroing bte: {0} has no block transfer engine; use --zeroing cpu, or an Altix (altix-128)"
    )]
    NoEngine(String),
    /// Cache lines that a page does not have.
    #[error("{asked} cache lines: a page here has {most}")]
    CacheLines {
        /// How many were asked for.
        asked: u32,
        /// How many there are.
        most: u32,
    },
}
