//! What the list says of a workload.

use super::{Description, Setup, Stream, Tables, WorkloadError};

/// A workload that can be set up.
#[derive(Debug)]
pub struct Entry {
    /// Its name in specifications.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The options it takes.
    pub options: &'static [&'static str],
    pub(super) defaults: Defaults,
    pub(super) build: Build,
}

/// An option of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name in specifications.
    pub name: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it is if nobody says.
    pub default: Given,
}

/// What an option is if nobody says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// This many, of the parameter's unit.
    Number(u64),
    /// This word.
    Word(&'static str),
    /// It follows from other options, so.
    Follows(&'static str),
}

/// The defaults of a workload, in the order of its options.
pub(super) type Defaults = fn(&Entry, &Tables) -> Vec<Given>;

/// Every option of any workload: its name, unit, and what it is.
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
    /// Its options, with what they are if nobody says.
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

/// Makes a stream of a setup.
pub(super) type Build = fn(&Setup, &Tables) -> Result<(Description, Stream), WorkloadError>;
