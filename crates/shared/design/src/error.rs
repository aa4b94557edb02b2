//! What can be wrong with a design: where it is, what it is, what would be right.

use toml_keys::guess;
pub use toml_keys::{Problem, nearest};

/// Why a design cannot be read or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// An invalid file: all that is wrong with it, one line each, by line.
    #[error("{}", lines(file, problems))]
    File {
        /// What the caller called it.
        file: String,
        /// At least one.
        problems: Vec<Problem>,
    },
    /// No preset has this name.
    #[error("unknown design `{name}`{} known designs: {}", guess(*nearest, "`"), known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The one that is spelt most like it, if it is near.
        nearest: Option<&'static str>,
        /// The names there are.
        known: Vec<&'static str>,
    },
}

fn lines(file: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.in_file(file)).collect::<Vec<_>>().join("\n")
}
