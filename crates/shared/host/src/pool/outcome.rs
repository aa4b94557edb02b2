//! Requests to pools, options, and results: plain data.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, NodeId, PageSize};

use super::spec::{SpecError, exact};
use crate::ReadError;
use crate::journal::{JournalError, Restoration};

/// A pool and its wanted number of persistent pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The pool.
    pub size: PageSize,
    /// The node; `None`: the whole machine.
    pub node: Option<NodeId>,
    /// Number of persistent pages now.
    pub before: u64,
    /// Number of persistent pages requested.
    pub target: u64,
}

/// Options of a resize.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to refuse a growth that cannot fit.
    pub headroom: HeadroomRule,
    /// Whether superpage may compact memory for the growth.
    pub compaction: Compaction,
    /// What happens to a pool that did not get all pages.
    pub shortage: Shortage,
}

/// What happens to a growth that cannot fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeadroomRule {
    /// Refuse it before any write.
    #[default]
    Check,
    /// The growth is tried anyway. It stops when only a quarter of the margin is left.
    Force,
}

/// Whether superpage may compact memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compaction {
    /// Compact if too few blocks of this size are free.
    #[default]
    WhenNeeded,
    /// superpage never compacts; the kernel may compact for each page.
    Never,
}

/// What happens to a pool that did not get all pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shortage {
    /// The pool keeps the pages that it got.
    #[default]
    Keep,
    /// Every pool of the call returns to its old size.
    GiveBack,
}

/// The result of one resize.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The pool.
    pub size: PageSize,
    /// The node; `None`: the whole machine.
    pub node: Option<NodeId>,
    /// Number of persistent pages requested.
    pub asked: u64,
    /// Number of persistent pages before the request.
    pub before: u64,
    /// Number of persistent pages that the pool has, read back. If `Applied::given_back` is set, the pool returned to
    /// its old size afterwards.
    pub got: u64,
    /// Number of attempts.
    pub rounds: u32,
    /// Number of compactions.
    pub compactions: u32,
    /// Number of pages in use that a shrinking pool could not release: they became surplus pages, which the kernel
    /// frees when their last user releases them.
    pub still_in_use: u64,
    /// Duration in milliseconds.
    pub milliseconds: u64,
    /// Why `got` is not `asked`.
    pub why_short: Option<WhyShort>,
}

/// Why a pool did not get all requested pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum WhyShort {
    /// Memory ran out.
    Memory {
        /// Available bytes at that time.
        available: Option<ByteSize>,
    },
    /// Enough memory was free, but not contiguous.
    Fragmented {
        /// Free bytes.
        free: ByteSize,
        /// Free bytes in blocks of at least the page's size; unknown for gigantic pages.
        in_superpages: Option<ByteSize>,
    },
    /// The caller requested a stop.
    Stopped,
    /// The kernel left the pool larger than requested.
    NotShrunk,
}

/// Progress of a resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current request.
    pub request: Request,
    /// Number of persistent pages now.
    pub now: u64,
    /// Whether memory is being compacted, which may take seconds.
    pub compacting: bool,
}

/// The result of a whole call.
#[derive(Debug)]
pub struct Applied {
    /// The result of each request, in the given order.
    pub outcomes: Vec<Outcome>,
    /// The restored settings, if the call was stopped, or if a pool fell short with
    /// [`Shortage::GiveBack`].
    pub given_back: Option<Vec<Restoration>>,
    /// Changes of an earlier superpage process that was killed; they were undone first.
    pub inherited: Vec<Restoration>,
}

impl Outcome {
    /// Whether the pool got all requested pages.
    pub fn is_full(&self) -> bool {
        self.got == self.asked
    }
}

impl Applied {
    /// Whether every pool has the requested size.
    pub fn is_full(&self) -> bool {
        self.given_back.is_none() && self.outcomes.iter().all(Outcome::is_full)
    }
}

// Why an operation on pools failed.

/// The error, the pool, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The request is invalid, or invalid for this pool.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel has no hugetlb.
    #[error(
        "this kernel has no hugetlb pools (/sys/kernel/mm/hugepages is missing): it needs \
         CONFIG_HUGETLB_PAGE"
    )]
    NoHugetlb,
    /// There is no pool of this size.
    #[error("there is no pool of {size} pages; this machine has {}", list(has))]
    NoSuchPool {
        /// Requested size.
        size: PageSize,
        /// Available sizes.
        has: Vec<PageSize>,
    },
    /// There is no such node.
    #[error("there is no node {node}; this machine has {}",
        has.iter().map(|node| format!("node {node}")).collect::<Vec<_>>().join(", "))]
    NoSuchNode {
        /// Requested node.
        node: NodeId,
        /// Existing nodes.
        has: Vec<NodeId>,
    },
    /// A counter of the pool could not be read, so nothing may be changed.
    #[error("the pool of {size} pages cannot be changed: {what} is unknown")]
    Unknown {
        /// The pool.
        size: PageSize,
        /// The unreadable counter.
        what: &'static str,
    },
    /// The growth does not fit into memory.
    #[error(
        "not enough memory for {pages} more pages of {size} ({bytes}): {place} has {available} \
         available, of which {margin} must stay free; at most {fits} more fit (--force tries \
         anyway)"
    )]
    NoHeadroom {
        /// Number of pages that would be taken from memory.
        pages: u64,
        /// Page size.
        size: PageSize,
        /// `pages` in bytes.
        bytes: ByteSize,
        /// The machine, or a node.
        place: String,
        /// Available memory.
        available: ByteSize,
        /// Memory that must stay free.
        margin: ByteSize,
        /// Number of pages that fit.
        fits: u64,
    },
    /// The kernel cannot make surplus pages of this size.
    #[error(
        "pages of {size} cannot be overcommitted: they are gigantic (larger than the largest block \
         of free memory), and the kernel makes such pages only for the persistent pool; use \
         `superpage pool set {spec}:+N` instead", spec = exact(size.bytes())
    )]
    GiganticOvercommit {
        /// The size.
        size: PageSize,
    },
    /// Pages of this size cannot be demoted: it is the smallest size.
    #[error("pages of {size} cannot be demoted: {why}")]
    NoDemotion {
        /// The size.
        size: PageSize,
        /// The reason.
        why: &'static str,
    },
    /// The kernel refused an action that has no value to restore.
    #[error("cannot {doing} ({}): {source}{}", path.display(), remedy(source))]
    Action {
        /// `compact memory`, `demote`, `create`, ...
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A mount that cannot be made.
    #[error("{0}")]
    Mount(String),
    /// An unknown user or group name.
    #[error("unknown {kind} `{name}` (not in {}); use a name from that file, or a number", file)]
    NoSuchName {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The file that was searched.
        file: &'static str,
    },
    /// The new value would lower a setting that is only ever raised.
    #[error("{what} is already {now} and is never lowered (requested: {asked})")]
    WouldLower {
        /// The setting.
        what: &'static str,
        /// Current value.
        now: u64,
        /// Requested value.
        asked: u64,
    },
    /// A system call failed.
    #[error(transparent)]
    Sys(#[from] sys::SysError),
    /// A read failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A setting could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl PoolError {
    /// Whether the caller's request is invalid, rather than impossible on this machine.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Spec(_) | Self::Mount(_) | Self::NoSuchName { .. } | Self::WouldLower { .. }
        )
    }

    /// Whether more privilege would help.
    pub fn is_denied(&self) -> bool {
        let denied = |error: &io::Error| matches!(error.kind(), io::ErrorKind::PermissionDenied);
        match self {
            Self::Journal(JournalError::Io { source, .. }) => denied(source),
            Self::Action { source, .. } => denied(source),
            Self::Sys(error) => denied(&error.source),
            Self::Read(error) => error.is_denied(),
            _ => false,
        }
    }

    pub(super) fn action(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Action { doing, path: path.into(), source }
    }
}

fn list(sizes: &[PageSize]) -> String {
    match sizes {
        [] => "none".to_string(),
        sizes => sizes.iter().map(|size| exact(size.bytes())).collect::<Vec<_>>().join(", "),
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run as root",
        io::ErrorKind::ReadOnlyFilesystem => "; it is mounted read-only here: run on the host",
        io::ErrorKind::NotFound => "; not supported by this kernel",
        _ => "",
    }
}

// Text shared by several messages.

/// `2 MiB pages`, `2 MiB pages on node 1`.
pub fn pool_name(size: PageSize, node: Option<NodeId>) -> String {
    match node {
        None => format!("{size} pages"),
        Some(node) => format!("{size} pages on node {node}"),
    }
}
