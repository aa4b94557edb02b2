//! Errors in a file.

use std::fmt;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line number, from 1; `None` if there is no file.
    pub line: Option<usize>,
    /// The key with its table prefix: `mapping.scan.every`. Empty for syntax errors.
    pub key: String,
    /// The error and the allowed values.
    pub what: String,
}

impl Problem {
    /// Formats the error as a line that starts with the file's name.
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

/// An invalid file, with all its errors, one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(|problem| problem.in_file(file)).collect::<Vec<_>>().join("\n"))]
pub struct FileError {
    /// The file's name, given by the caller.
    pub file: String,
    /// At least one error, sorted by line.
    pub problems: Vec<Problem>,
}

impl FileError {
    /// Returns an error unless `problems` is empty.
    ///
    /// # Errors
    /// All errors, sorted by line.
    pub fn check(file: impl fmt::Display, mut problems: Vec<Problem>) -> Result<(), Self> {
        problems.sort();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Self { file: file.to_string(), problems }),
        }
    }
}
