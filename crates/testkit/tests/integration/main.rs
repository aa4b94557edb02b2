//! Tests of the repository's own files.

mod as_found;
mod circles;
mod commands;
mod dependencies;
mod invariants;
mod modules;
mod openings;
mod public;
mod quantities;
mod rows;
mod schemas;
mod sources;

use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}
