//! Events that executors report to a policy.

use crate::rules::Effort;
use crate::{Action, Daemon};

/// Efforts already made to get a superpage for the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing yet.
    Nothing,
    /// Memory was compacted.
    Compaction,
    /// Memory was compacted, then pages were reclaimed.
    Reclaim,
}

/// An event. The function that decides it names the facts that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program touched a page that is not mapped, or not for writing.
    Fault {
        /// Whether the access was a write.
        write: bool,
    },
    /// More pages of a superpage-sized region have contents than before.
    Grew {
        /// Number of pages before.
        before: u16,
        /// Number of pages now.
        after: u16,
    },
    /// A page of a reservation was prepared and mapped.
    Populated,
    /// A fault prepared the rest of a reservation at once.
    Prepared {
        /// Whether the access was a write.
        write: bool,
    },
    /// A page with contents was mapped, or mapped writable.
    Mapped,
    /// No base page is free.
    NoPage {
        /// Number of pages wanted.
        wanted: u64,
    },
    /// No superpage is free.
    NoSuperpage {
        /// Permitted effort.
        effort: Effort,
        /// Whether a daemon wants the superpage.
        daemon: bool,
    },
    /// The pool has too few superpages for a mapping, and memory has no free one.
    NoPoolPage {
        /// Efforts already made for this superpage.
        tried: Attempt,
    },
    /// Pages of a superpage are unmapped or discarded.
    Unmapped {
        /// Whether all pages are.
        whole: bool,
    },
    /// The protection of pages of a superpage changes.
    Protected {
        /// Whether it changes for all pages.
        whole: bool,
    },
    /// Another process or mapping maps pages of a superpage too: a fork, or one object mapped twice.
    Shared {
        /// Whether all pages are shared.
        whole: bool,
        /// Whether the pages are private: a write copies.
        private: bool,
    },
    /// A superpage's mapping was split.
    Demoted {
        /// Whether a reservation holds its frames.
        reserved: bool,
    },
    /// The program requests a collapse of its base pages (MADV_COLLAPSE).
    CollapseRequested,
    /// A scan reached a superpage-sized region.
    Candidate,
    /// A candidate's page table was read.
    Inspected {
        /// Whether the program requested it.
        requested: bool,
    },
    /// A daemon begins or continues a piece of its work.
    Tick(Daemon),
    /// An action was completed or failed.
    Outcome {
        /// The action.
        action: Action,
        /// Its result.
        result: Result,
        /// Additional cost: number of mappings passed over.
        cost: u32,
    },
}

/// The result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Result {
    /// The action was carried out.
    Done {
        /// Number of pages affected: moved, filled.
        pages: u32,
    },
    /// There was nothing to act on.
    Nothing,
    /// The action was not worthwhile, or its object does not qualify.
    Unfit,
    /// Out of memory.
    NoMemory,
    /// The action could not be tried: too little free memory, too recent a failure, or contention.
    Unavailable,
}
