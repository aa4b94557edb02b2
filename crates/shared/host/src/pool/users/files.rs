//! Files in hugetlbfs: each file keeps its pages until it is removed, even if no process uses it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use super::processes::Held;
use crate::Root;
use crate::pool::mounts::Mount;
use crate::root::Reasons;

/// A file in a hugetlbfs mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugeFile {
    /// Its path.
    pub path: PathBuf,
    /// Page size of its pool.
    pub page_size: Option<PageSize>,
    /// Its length in bytes.
    pub size: ByteSize,
    /// Bytes of the pages that the file holds.
    pub allocated: ByteSize,
    /// Its owner.
    pub uid: u32,
    /// Whether a process uses the file.
    pub stale: Stale,
}

/// Whether a process uses a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stale {
    /// A process maps the file or has it open.
    InUse,
    /// No process maps the file or has it open.
    Stale,
    /// No readable process uses the file, but some processes could not be read.
    Unknown,
}

/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;

pub(super) fn scan(
    root: &Root,
    mounts: &[Mount],
    held: &Held,
    reasons: &mut Reasons,
) -> Vec<HugeFile> {
    let mut files = Vec::new();
    for mount in mounts {
        let point = root.path(&mount.point.to_string_lossy());
        let mut found = Vec::new();
        if let Err(error) = walk(&point, MAX_DEPTH, &mut found) {
            reasons.note(&mount.point.display().to_string(), error.to_string());
        }
        for (path, metadata) in found {
            let shown = path.strip_prefix(&point).map(|rest| mount.point.join(rest));
            let is_held = held.files.contains(&(metadata.dev(), metadata.ino()));
            let stale = match (is_held, held.is_complete) {
                (true, _) => Stale::InUse,
                (false, true) => Stale::Stale,
                (false, false) => Stale::Unknown,
            };
            files.push(HugeFile {
                path: shown.unwrap_or(path),
                page_size: mount.page_size,
                size: ByteSize(metadata.len()),
                // stat(2) counts blocks of 512 bytes on every file system.
                allocated: ByteSize(metadata.blocks().saturating_mul(512)),
                uid: metadata.uid(),
                stale,
            });
        }
    }
    files
}

/// Whether any mount has a file, or cannot be read.
pub(super) fn are_there(root: &Root, mounts: &[Mount]) -> bool {
    mounts.iter().any(|mount| {
        let mut found = Vec::new();
        let point = root.path(&mount.point.to_string_lossy());
        walk(&point, MAX_DEPTH, &mut found).is_err() || !found.is_empty()
    })
}

fn walk(
    dir: &Path,
    depth: usize,
    found: &mut Vec<(PathBuf, fs::Metadata)>,
) -> Result<(), std::io::Error> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    entries.sort();
    for path in entries {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() && depth > 0 {
            walk(&path, depth - 1, found)?;
        } else if metadata.is_file() {
            found.push((path, metadata));
        }
    }
    Ok(())
}
