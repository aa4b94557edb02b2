//! What happens to the memory of a running program.

use crate::{Action, Result};

/// What happened. Which facts each is decided by is said at the function that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Memory is mapped, and nothing is known yet of its pages: how much of it is advised.
    Mapped,
    /// Part of a segment is loaded, and nothing of the program has run; or a large file is mapped.
    Loaded,
    /// A mapping was enlarged in place or moved, with the advice it had: how much of what was added keeps it.
    Grew,
    /// A mapping that was advised in part is to be moved or resized as one.
    Moves,
    /// The pool had no superpages for memory that was to lie on it.
    NoPoolPage,
    /// A new mapping that is advised whole is about to be handed out.
    Ready,
    /// The program asks for a mapping that may be one that was kept.
    Wanted,
    /// A request had no use for a mapping that is kept.
    PassedBy,
    /// The program unmaps a mapping that is as it was handed out.
    Unmapped,
    /// The program maps something where a mapping is kept.
    Claimed,
    /// Memory or address space is short, or nothing may be kept from now on.
    Pressure,
    /// The program asks what would show that nothing was written to memory that is there.
    Shown,
    /// The process ends.
    Ended,
    /// What was asked for is done, or failed.
    Outcome {
        /// What was asked for.
        action: Action,
        /// How it ended.
        result: Result,
        /// The longest it took, for each superpage, in microseconds ([`Action::Probe`]).
        cost: u32,
    },
}

/// Facts that cost something to learn: an executor learns them when a policy asks ([`Action::Read`]), and tells how
/// that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// What went wrong on the machine so far: [`super::Facts::stalls`], `fallbacks` and `faults`.
    Losses,
    /// Free memory by size of blocks: [`super::Facts::contiguous`], `free`, and `outstanding` at most.
    Free,
    /// `outstanding` as it is, [`super::Facts::reclaimable`], and [`super::Facts::smaller`] with what is free of it.
    Spare,
    /// What the process has: [`super::Facts::resident`].
    Resident,
    /// What its cgroups leave it: [`super::Facts::headroom`].
    Headroom,
    /// [`super::Facts::is_unlimited`], and [`super::Facts::is_whole`] where it is.
    Whole,
}
