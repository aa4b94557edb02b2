//! What is asked of a pool, how, and what came of it: plain data.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, NodeId, PageSize};

use super::spec::{SpecError, exact};
use crate::ReadError;
use crate::journal::{JournalError, Restoration};

/// A pool and the persistent pages it is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The pool.
    pub size: PageSize,
    /// On this node only; `None`: on the machine.
    pub node: Option<NodeId>,
    /// Persistent pages now.
    pub before: u64,
    /// Persistent pages asked for.
    pub target: u64,
}

/// How to go about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether a growth that cannot fit is refused.
    pub headroom: HeadroomRule,
    /// Whether memory may be compacted for it.
    pub compaction: Compaction,
    /// What becomes of a pool that did not get all.
    pub shortage: Shortage,
}

/// Whether a growth that cannot fit is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HeadroomRule {
    /// Refused, with nothing written.
    #[default]
    Check,
    /// Tried; it stops at a quarter of the margin all the same.
    Force,
}

/// Whether memory may be compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compaction {
    /// Where the free blocks of this size do not suffice.
    #[default]
    WhenNeeded,
    /// Not by us; the kernel compacts for each page as it sees fit.
    Never,
}

/// What becomes of a pool that did not get all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shortage {
    /// It keeps what it got.
    #[default]
    Keep,
    /// Every pool of the call gets its old size back.
    GiveBack,
}

/// What came of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The pool.
    pub size: PageSize,
    /// On this node only.
    pub node: Option<NodeId>,
    /// Persistent pages asked for.
    pub asked: u64,
    /// Persistent pages before.
    pub before: u64,
    /// Persistent pages the kernel gave, read back. Given back again if `Applied::given_back`.
    pub got: u64,
    /// Attempts.
    pub rounds: u32,
    /// How often memory was compacted.
    pub compactions: u32,
    /// Pages in use that kept a shrinking pool's memory: they went over to surplus, and the kernel
    /// frees each when its last user lets go of it.
    pub still_in_use: u64,
    /// Milliseconds it took.
    pub milliseconds: u64,
    /// Why `got` is not `asked`.
    pub why_short: Option<WhyShort>,
}

/// Why a pool did not get all it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum WhyShort {
    /// Memory ran out.
    Memory {
        /// Available bytes when it did.
        available: Option<ByteSize>,
    },
    /// Enough was free, but not in one piece.
    Fragmented {
        /// Free bytes.
        free: ByteSize,
        /// Of these in blocks of at least the page's size; unknown for gigantic pages.
        in_superpages: Option<ByteSize>,
    },
    /// Somebody asked to stop.
    Stopped,
    /// The kernel left it larger than asked.
    NotShrunk,
}

/// How far a resize is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub request: Request,
    /// Persistent pages now.
    pub now: u64,
    /// Memory is being compacted, which may take seconds.
    pub compacting: bool,
}

/// What came of a whole call.
#[derive(Debug)]
pub struct Applied {
    /// Of each request, in the order given.
    pub outcomes: Vec<Outcome>,
    /// With [`Shortage::GiveBack`] and a shortage, or after a stop: what was put back.
    pub given_back: Option<Vec<Restoration>>,
    /// What an earlier killed superpage had left, undone first.
    pub inherited: Vec<Restoration>,
}

impl Outcome {
    /// Whether all of it was got.
    pub fn is_full(&self) -> bool {
        self.got == self.asked
    }
}

impl Applied {
    /// Whether every pool is as asked.
    pub fn is_full(&self) -> bool {
        self.given_back.is_none() && self.outcomes.iter().all(Outcome::is_full)
    }
}

// Why something about the pools could not be done.

/// What went wrong, on which pool, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// What was asked for cannot be understood, or not of this pool.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel has no hugetlb at all.
    #[error(
        "this kernel has no hugetlb pools (/sys/kernel/mm/hugepages is missing): it needs \
         CONFIG_HUGETLB_PAGE"
    )]
    NoHugetlb,
    /// No pool of this size.
    #[error("there is no pool of {size} pages; this machine has {}", list(has))]
    NoSuchPool {
        /// The size asked for.
        size: PageSize,
        /// The sizes there are.
        has: Vec<PageSize>,
    },
    /// No such node.
    #[error("there is no node {node}; this machine has {}",
        has.iter().map(|node| format!("node {node}")).collect::<Vec<_>>().join(", "))]
    NoSuchNode {
        /// The node asked for.
        node: NodeId,
        /// The nodes there are.
        has: Vec<NodeId>,
    },
    /// A counter of the pool could not be read, so nothing may be changed.
    #[error("the pool of {size} pages cannot be changed: {what} is unknown")]
    Unknown {
        /// The pool.
        size: PageSize,
        /// What could not be read.
        what: &'static str,
    },
    /// It cannot fit.
    #[error(
        "not enough memory for {pages} more pages of {size} ({bytes}): {place} has {available} \
         available, of which {margin} must stay free; at most {fits} more fit (--force tries \
         anyway)"
    )]
    NoHeadroom {
        /// Pages that would be taken from memory.
        pages: u64,
        /// Their size.
        size: PageSize,
        /// In bytes.
        bytes: ByteSize,
        /// The machine, or a node.
        place: String,
        /// What could be taken.
        available: ByteSize,
        /// What must stay.
        margin: ByteSize,
        /// Pages that fit.
        fits: u64,
    },
    /// The kernel makes no surplus pages of this size.
    #[error(
        "pages of {size} cannot be overcommitted: they are gigantic (larger than the largest block \
         of free memory), and the kernel makes such pages only for the persistent pool; use \
         `superpage pool set {spec}:+N` instead", spec = exact(size.bytes())
    )]
    GiganticOvercommit {
        /// The size.
        size: PageSize,
    },
    /// The smallest size there is.
    #[error("pages of {size} cannot be demoted: {why}")]
    NoDemotion {
        /// The size.
        size: PageSize,
        /// Why not.
        why: &'static str,
    },
    /// The kernel refused an action (one that holds no value to put back).
    #[error("cannot {doing} ({}): {source}{}", path.display(), remedy(source))]
    Action {
        /// `compact memory`, `demote`, `create`, ...
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A mount that cannot be made.
    #[error("{0}")]
    Mount(String),
    /// A name that is in no list of users or groups.
    #[error("unknown {kind} `{name}` (not in {}); use a name from that file, or a number", file)]
    NoSuchName {
        /// `user` or `group`.
        kind: &'static str,
        /// The name.
        name: String,
        /// Where it was looked for.
        file: &'static str,
    },
    /// A setting that would get smaller.
    #[error("{what} is already {now} and is never lowered (requested: {asked})")]
    WouldLower {
        /// The setting.
        what: &'static str,
        /// Its value.
        now: u64,
        /// What was asked for.
        asked: u64,
    },
    /// A system call.
    #[error(transparent)]
    Sys(#[from] sys::SysError),
    /// Something could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A setting could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl PoolError {
    /// Whether the caller asked for something that makes no sense, as opposed to a machine that
    /// cannot do it.
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

// Words that more than one message is made of.

/// `2 MiB pages`, `2 MiB pages on node 1`.
pub fn pool_name(size: PageSize, node: Option<NodeId>) -> String {
    match node {
        None => format!("{size} pages"),
        Some(node) => format!("{size} pages on node {node}"),
    }
}
