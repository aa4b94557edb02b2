//! What executors tell a policy.

use crate::rules::Effort;
use crate::{Action, Daemon};

/// What was done to get a superpage for the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing yet.
    Nothing,
    /// Memory was compacted.
    Compaction,
    /// Memory was compacted, then pages were reclaimed.
    Reclaim,
}

/// What happened. Which facts each is decided by is said at the function that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program touched a page that is not mapped, or not for writing.
    Fault {
        /// It wrote.
        write: bool,
    },
    /// A superpage's worth of memory has more pages with contents than before.
    Grew {
        /// Pages it had.
        before: u16,
        /// Pages it has.
        after: u16,
    },
    /// A page of a reservation got its contents and is mapped.
    Populated,
    /// The rest of a reservation was prepared at once, in a fault.
    Prepared {
        /// The program wrote.
        write: bool,
    },
    /// A page that had contents is mapped, or mapped writable.
    Mapped,
    /// No base page is free.
    NoPage {
        /// How many are wanted.
        wanted: u64,
    },
    /// No superpage is free.
    NoSuperpage {
        /// What may be done.
        effort: Effort,
        /// A daemon wants it.
        daemon: bool,
    },
    /// Memory has no superpage for the pool, which has too few for a mapping.
    NoPoolPage {
        /// What was done to get this one.
        tried: Attempt,
    },
    /// Pages of a superpage are unmapped or discarded.
    Unmapped {
        /// All of them.
        whole: bool,
    },
    /// Pages of a superpage get another protection.
    Protected {
        /// All of them.
        whole: bool,
    },
    /// Pages of a superpage are mapped by another process or mapping, too: a fork, or one object mapped twice.
    Shared {
        /// All of them.
        whole: bool,
        /// They are private: a write copies.
        private: bool,
    },
    /// A superpage's mapping was split.
    Demoted {
        /// Its frames are those of a reservation.
        reserved: bool,
    },
    /// The program asks for its base pages to be collapsed (MADV_COLLAPSE).
    CollapseRequested,
    /// A scan came to a superpage's worth of memory.
    Candidate,
    /// A candidate's page table was read.
    Inspected {
        /// The program asked for it.
        requested: bool,
    },
    /// A daemon begins a piece of its work, or goes on with it.
    Tick(Daemon),
    /// What was asked for is done, or failed.
    Outcome {
        /// What was asked for.
        action: Action,
        /// How it ended.
        result: Result,
        /// What else it cost: mappings that were passed over.
        cost: u32,
    },
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// It was carried out.
    Done {
        /// How many pages it was about: moved, filled.
        pages: u32,
    },
    /// There was nothing to carry it out on.
    Nothing,
    /// It was not worth it, or does not qualify.
    Unfit,
    /// No memory was to be had.
    NoMemory,
    /// It could not be tried: too little memory is free, it failed too lately, or somebody else was in the way.
    Unavailable,
}
