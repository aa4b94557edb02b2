//! Why a command of libhugetlbfs ends early.

use crate::exit::Failure;

/// Why a command ends before its work is done.
#[derive(Debug)]
pub enum Stop {
    /// Only help was asked for.
    Help,
    /// The words are not a command line: the usage follows what is said.
    Words(Failure),
    /// It failed, and that has been said.
    Said,
    /// It failed.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
