//! What is wrong with a file.

use std::fmt;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, from 1; unknown where there is no file.
    pub line: Option<usize>,
    /// The key, with its tables before it: `mapping.scan.every`. Empty for syntax.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl Problem {
    /// As a line, after the file's name.
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {self}"),
            None => format!("{file}: {self}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.what),
            key => write!(f, "{key}: {}", self.what),
        }
    }
}

/// A file that cannot be used: all that is wrong with it, a line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(|problem| problem.in_file(file)).collect::<Vec<_>>().join("\n"))]
pub struct FileError {
    /// What the caller called it.
    pub file: String,
    /// At least one, by line.
    pub problems: Vec<Problem>,
}

impl FileError {
    /// Nothing, if nothing is wrong.
    ///
    /// # Errors
    /// All that is wrong, by line.
    pub fn check(file: impl fmt::Display, mut problems: Vec<Problem>) -> Result<(), Self> {
        problems.sort();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Self { file: file.to_string(), problems }),
        }
    }
}
