//! Errors of designs: each has the place, the problem and the allowed values.

use toml_keys::guess;
pub use toml_keys::{Problem, nearest};

/// Why a design cannot be read or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// An invalid file. All its errors are listed, one line each, sorted by line.
    #[error("{}", lines(file, problems))]
    File {
        /// The file's name, given by the caller.
        file: String,
        /// At least one error.
        problems: Vec<Problem>,
    },
    /// No preset has this name.
    #[error("unknown design `{name}`{} known designs: {}", guess(*nearest, "`"), known.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar name, if any is similar.
        nearest: Option<&'static str>,
        /// All names.
        known: Vec<&'static str>,
    },
}

fn lines(file: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.in_file(file)).collect::<Vec<_>>().join("\n")
}
