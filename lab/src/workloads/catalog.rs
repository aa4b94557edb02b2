//! The list of workloads.

use super::{Description, Setup, Stream, Tables, WorkloadError};
use super::{kernels, models};

/// A workload that can be set up.
#[derive(Debug)]
pub struct Entry {
    /// Its name in specifications.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The options it takes.
    pub options: &'static [&'static str],
    pub(super) build: Build,
}

/// Makes a stream of a setup.
pub(super) type Build = fn(&Setup, &Tables) -> Result<(Description, Stream), WorkloadError>;

/// Every workload, in the order of listings.
pub fn catalog() -> impl Iterator<Item = &'static Entry> {
    [kernels::ENTRIES, models::ENTRIES].into_iter().flatten()
}

pub(super) fn find(name: &str) -> Result<&'static Entry, WorkloadError> {
    catalog().find(|entry| entry.name == name).ok_or_else(|| WorkloadError::Unknown {
        name: name.to_string(),
        known: catalog().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}
