//! Demotion: splitting free pages of one pool into pages of a smaller one, without giving memory
//! back in between (1 GiB page -> 512 pages of 2 MiB, in about 3 ms).
//!
//! An action, not a setting: the kernel cannot put the pieces together again, so there is nothing
//! to journal. The journal's lock is held all the same, so that nobody resizes meanwhile.

use std::fs::OpenOptions;
use std::io::Write;

use serde::{Deserialize, Serialize};
use units::{NodeId, PageSize};

use super::error::PoolError;
use super::status::Status;
use crate::journal::Journal;
use crate::{Root, hugetlb, text};

/// What a demotion came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demoted {
    /// The pool whose pages were split.
    pub from: PageSize,
    /// The pool that got the pieces.
    pub into: PageSize,
    /// Pages that were to be split.
    pub asked: u64,
    /// Pages that were.
    pub got: u64,
    /// Persistent pages of the smaller size before.
    pub pieces_before: u64,
    /// And after.
    pub pieces: u64,
}

/// The size that pages of `size` can be split into.
pub fn demotes_into(status: &Status, size: PageSize) -> Result<PageSize, PoolError> {
    let why = "no smaller pool, or a kernel before 5.16";
    status.pool(size)?.demote_size.ok_or(PoolError::NoDemotion { size, why })
}

/// Splits up to `pages` free, unreserved pages of `size`. Needs root.
pub fn demote(
    root: &Root,
    _lock: &mut Journal,
    size: PageSize,
    node: Option<NodeId>,
    pages: u64,
) -> Result<Demoted, PoolError> {
    let status = Status::read(root)?;
    let into = demotes_into(&status, size)?;
    let before = status.persistent(size, node)?;
    let pieces_before = status.persistent(into, node)?;
    let dir = match node {
        None => hugetlb::DIR.to_string(),
        Some(node) => format!("{}/node{node}/hugepages", hugetlb::NODES),
    };
    let path = root.path(&format!("{dir}/{}/demote", text::dir_of_size(size)));
    let written = OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{pages}\n").as_bytes()));
    written.map_err(|source| PoolError::action("demote pages", path, source))?;
    let status = Status::read(root)?;
    let got = before.saturating_sub(status.persistent(size, node)?);
    let pieces = status.persistent(into, node)?;
    Ok(Demoted { from: size, into, asked: pages, got, pieces_before, pieces })
}
