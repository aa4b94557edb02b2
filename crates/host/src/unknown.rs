//! What could not be read, and why. Rule `unknown-is-not-zero`.

use serde::{Deserialize, Serialize};

use crate::ReadError;

/// A value that is `None` somewhere, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// What is unknown: a file's absolute path, or a few words.
    pub what: String,
    /// Why, in one line.
    pub why: String,
}

/// Gathers reasons while a snapshot is read. Owned by the reader, never shared.
#[derive(Debug, Default)]
pub(crate) struct Reasons(pub Vec<Unknown>);

impl Reasons {
    /// The value, or `None` with the reason noted.
    pub fn ask<T>(&mut self, what: &str, result: Result<T, ReadError>) -> Option<T> {
        result.map_err(|why| self.note(what, why.to_string())).ok()
    }

    /// Notes a reason.
    pub fn note(&mut self, what: &str, why: impl Into<String>) {
        self.0.push(Unknown { what: what.to_string(), why: why.into() });
    }
}
