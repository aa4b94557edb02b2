//! What is asked of a pool, how, and what came of it: plain data.

use serde::{Deserialize, Serialize};
use units::{ByteSize, NodeId, PageSize};

use crate::journal::Restoration;

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
