//! The catalogue of workloads.

use super::entry::Entry;
use super::{WorkloadError, kernels, models};

/// All workloads, in listing order.
pub fn catalog() -> impl Iterator<Item = &'static Entry> {
    [kernels::ENTRIES, models::ENTRIES].into_iter().flatten()
}

pub(super) fn find(name: &str) -> Result<&'static Entry, WorkloadError> {
    catalog().find(|entry| entry.name == name).ok_or_else(|| WorkloadError::Unknown {
        name: name.to_string(),
        known: catalog().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}
