//! `Entry`: an entry of the catalogue.

use super::{Description, Setup, Stream, Tables, WorkloadError};

/// A workload of the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// Name in specifications.
    pub name: &'static str,
    /// One-line summary.
    pub summary: &'static str,
    /// Names of its options.
    pub options: &'static [&'static str],
    pub(super) defaults: Defaults,
    pub(super) build: Build,
}

/// An option of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name in specifications.
    pub name: &'static str,
    /// Unit of its value.
    pub unit: &'static str,
    /// Description.
    pub about: &'static str,
    /// Default value.
    pub default: Given,
}

/// A default value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// A number, in the parameter's unit.
    Number(u64),
    /// A word.
    Word(&'static str),
    /// Derived from other options, as the text says.
    Follows(&'static str),
}

/// Returns the defaults of a workload, in the order of its options.
pub(super) type Defaults = fn(&Entry, &Tables) -> Vec<Given>;

/// Name, unit and description of every option.
const OPTIONS: [(&str, &str, &str); 8] = [
    ("size", "bytes", "memory to work on"),
    ("operations", "count", "operations of the run"),
    ("iterations", "count", "passes over all of it"),
    ("lines", "count", "cache lines touched in each page"),
    ("graph", "kronecker or uniform", "which graph"),
    ("step", "bytes", "growth of the heap per step"),
    ("threads", "count", "threads at work"),
    ("weight", "count", "operations of the program per simulated operation"),
];

impl Entry {
    /// The options with their defaults.
    pub fn parameters(&self) -> Vec<Parameter> {
        let defaults = (self.defaults)(self, Tables::embedded());
        let parameter = |(option, default): (&&'static str, Given)| {
            let known = OPTIONS.iter().find(|(name, ..)| name == option);
            let &(name, unit, about) = known.expect("a test reads them all");
            Parameter { name, unit, about, default }
        };
        self.options.iter().zip(defaults).map(parameter).collect()
    }
}

/// Builds the stream of a setup.
pub(super) type Build = fn(&Setup, &Tables) -> Result<(Description, Stream), WorkloadError>;
