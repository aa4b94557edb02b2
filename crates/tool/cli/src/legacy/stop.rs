//! Why a command of libhugetlbfs ends early.

use crate::exit::Failure;

/// Why a command ends before its work is done.
#[derive(Debug)]
pub enum Stop {
    /// Help was requested.
    Help,
    /// Invalid command line; the caller prints the usage after the error.
    Words(Failure),
    /// The work failed, and the error was already printed.
    Said,
    /// The work failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
