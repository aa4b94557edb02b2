//! Compaction on demand: moving pages together so that superpages can be made of what is free.
//!
//! Not a [`crate::journal::Knob`]: it holds no value that could be put back. It takes no memory and
//! changes no setting; it costs CPU time in the kernel and holds up whoever uses the pages moved.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

use units::NodeId;

use crate::{Root, hugetlb};

/// The kernel would not compact.
#[derive(Debug, thiserror::Error)]
#[error("cannot compact memory ({}): {source}", path.display())]
pub struct CompactError {
    /// The file written.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// Compacts every zone of the machine, or of one node, and returns when that is done
/// (`/proc/sys/vm/compact_memory`, `nodeN/compact`). Needs root and CONFIG_COMPACTION.
pub fn compact(root: &Root, node: Option<NodeId>) -> Result<(), CompactError> {
    let path = root.path(&match node {
        None => "/proc/sys/vm/compact_memory".to_string(),
        Some(node) => format!("{}/node{node}/compact", hugetlb::NODES),
    });
    // Only 1 is taken (mm/compaction.c sysctl_compaction_handler, since Linux 5.13).
    let written =
        OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"1\n"));
    written.map_err(|source| CompactError { path, source })
}
