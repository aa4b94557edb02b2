//! Events that executors report to a policy.

use crate::rules::Effort;
use crate::{Action, Daemon};

/// Attempts already made to get a superpage for the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing yet.
    Nothing,
    /// Memory was compacted.
    Compaction,
    /// Memory was compacted, then pages were reclaimed.
    Reclaim,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program touched a page that is not mapped, or wrote to a page that is mapped read-only.
    Fault {
        /// Whether the access was a write.
        write: bool,
    },
    /// The number of populated pages in a superpage-sized region grew.
    Grew {
        /// Number of pages before.
        before: u16,
        /// Number of pages now.
        after: u16,
    },
    /// A page of a reservation was prepared and mapped.
    Populated,
    /// A fault prepared the rest of a reservation in one step.
    Prepared {
        /// Whether the faulting access was a write.
        write: bool,
    },
    /// A resident page was mapped, or made writable.
    Mapped,
    /// No base page is free.
    NoPage {
        /// Number of pages wanted.
        wanted: u64,
    },
    /// No superpage is free.
    NoSuperpage {
        /// Effort that the policy permits to get one.
        effort: Effort,
        /// Whether mapped pages are to be copied into it; else a fault needs it.
        is_copy: bool,
    },
    /// The pool has too few superpages for a mapping, and memory has no free one.
    NoPoolPage {
        /// Attempts already made to get this superpage.
        tried: Attempt,
    },
    /// The program unmaps or discards pages of a superpage.
    Unmapped {
        /// Whether all of its pages are affected.
        whole: bool,
    },
    /// The program changes the protection of pages of a superpage.
    Protected {
        /// Whether all of its pages are affected.
        whole: bool,
    },
    /// A second process or mapping now maps pages of a superpage, after a fork, or because one object is mapped twice.
    Shared {
        /// Whether all pages are shared.
        whole: bool,
        /// Whether the pages are private, so that a write copies them.
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
        /// Whether the program requested the collapse.
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
        /// Number of mappings that the action skipped.
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
    /// There was no object for the action.
    Nothing,
    /// The action was not worthwhile, or the object does not qualify.
    Unfit,
    /// Out of memory.
    NoMemory,
    /// The action could not be tried: too little free memory, too recent a failure, or contention.
    Unavailable,
}
