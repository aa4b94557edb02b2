//! What can be wrong with a design: where it is, what it is, what would be right.

pub use toml_keys::{Problem, nearest};

/// Why there is no design.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// A file that is no design; all that is wrong with it, one line each, by line.
    #[error("{}", lines(file, problems))]
    File {
        /// What the caller called it.
        file: String,
        /// At least one.
        problems: Vec<Problem>,
    },
    /// No preset has this name.
    #[error("`{name}` is no design{}; known are {}", guess(*nearest), known.join(", "))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The one that is spelt most like it, if it is near.
        nearest: Option<&'static str>,
        /// The names there are.
        known: Vec<&'static str>,
    },
}

fn guess(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |near| format!(" (`{near}`?)"))
}

fn lines(file: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.in_file(file)).collect::<Vec<_>>().join("\n")
}
