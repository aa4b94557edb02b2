//! What policies ask of executors.

use crate::acquire::Direct;
use crate::rules::Effort;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,

    /// Map the shared zeros for reading.
    MapZeros {
        /// The superpage of them.
        superpage: bool,
    },
    /// Get base pages, prepare and map them: from the page that was touched on, those that have none.
    MapBase {
        /// How many.
        pages: u32,
    },
    /// Prepare and map the page's place in its reservation.
    MapReserved {
        /// Map pages that are in memory too, so many on each side.
        around: u8,
    },
    /// Map a page that is in memory.
    MapResident {
        /// The same.
        around: u8,
    },
    /// Map the page that another mapping of the object has.
    MapElsewhere,
    /// Map the pool's page.
    MapPooled,
    /// Map the file's superpage, which is in memory whole, for reading.
    MapFile,
    /// Let the page, or the superpage, be written.
    MakeWritable,
    /// The page is the writer's alone now: let it be written.
    Reuse,
    /// Give the writer a page of its own.
    CopyPage,
    /// Split the superpage, then give the writer a page of its own.
    DemoteAndCopy,
    /// Keep a physical superpage for the pages around: the fault is told again when there is one.
    Reserve {
        /// Its size.
        order: u8,
        /// What may be done to get one.
        effort: Effort,
        /// The reservation that changed least lately may be taken.
        preempt: bool,
    },
    /// Make a superpage.
    MakeSuperpage {
        /// Its size.
        order: u8,
        /// How.
        how: How,
        /// What may be done to get a free one.
        effort: Effort,
    },
    /// Prepare pages of a reservation that are clear; they are not mapped.
    Populate {
        /// At most so many.
        most: u32,
    },
    /// Never fill this reservation.
    Exclude,
    /// Keep clean pages read-only: the next write is a fault again.
    WriteProtect,
    /// Put it on the list of candidates.
    List,

    /// Split the superpage's mapping; frames stay where they are.
    Demote,
    /// Leave it as it is.
    Keep,
    /// Give the superpage back.
    Release,
    /// Hold frames that are not used any more, as long as the rest of their superpage is.
    Hold,
    /// Read its page table: [`crate::Event::Inspected`] follows.
    Inspect,

    /// Refuse the mapping.
    Refuse,
    /// Do without.
    GiveUp,
    /// Wake the daemon that compacts, and do without.
    Wake,
    /// Compact until a superpage is free.
    Compact {
        /// How thoroughly.
        mode: Compaction,
        /// For an allocation that goes on when that fails.
        direct: Option<Direct>,
    },
    /// Reclaim pages.
    Reclaim {
        /// At least so many.
        pages: u64,
        /// Those of one aligned block.
        lumpy: bool,
        /// For an allocation that goes on when that is not enough.
        direct: Option<Direct>,
    },
    /// Break the reservation that changed least lately: its clear pages are free.
    BreakReservation {
        /// Base pages that are wanted.
        wanted: u64,
    },
    /// Break the one that changed least lately after that which could not be evacuated.
    BreakNext,
    /// Give back frames that are held for nothing.
    ReleaseHeld {
        /// Base pages that are wanted.
        wanted: u64,
    },

    /// Go to the next candidate.
    Visit(Candidates),
    /// Go back to the beginning of memory.
    Rewind,
    /// Rank all candidates with [`crate::Policy::rank`], to be visited from the best on.
    Rank {
        /// At most so many; 0: all.
        most: u32,
        /// Of one process: the first of [`crate::Policy::rank_process`].
        one_process: bool,
    },
    /// Clear accessed bits.
    ClearAccessed,
    /// Count accessed bits.
    CountAccessed {
        /// The weight of this count in the moving average, per cent.
        newest_percent: u32,
    },
    /// Move the pages of a reservation elsewhere that did not change for so long, the oldest first.
    Evacuate {
        /// In ticks.
        after: u64,
    },
    /// Zero a free block.
    Zero {
        /// Its size.
        order: u8,
    },
    /// Split it, and give back its pages of zeros.
    Recover,
    /// The piece of work is over.
    Wait(Wait),
}

/// How a superpage is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A free one is prepared whole and mapped.
    Fresh,
    /// Its pages, which are in place, are mapped as one.
    InPlace {
        /// It may be written.
        writable: bool,
    },
    /// Its pages are copied into a free one.
    Copy {
        /// Faults of the address space wait meanwhile.
        exclusive: bool,
    },
}

/// How thoroughly memory is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// Blocks of the same mobility, left at the first page that does not move.
    Async,
    /// All blocks.
    SyncLight,
    /// The same, and however lately it failed.
    Sync,
    /// All of memory, ahead of need.
    Proactive,
}

/// Where the next candidate of a daemon comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    /// The next one by address.
    Next,
    /// The first that waits on the list, or else the next one by address.
    Listed,
    /// The best of those that were ranked.
    Best,
    /// The reservation with at least so many pages that changed last, and was not visited in this piece.
    Partial {
        /// Pages.
        at: u16,
    },
    /// The next superpage by address.
    Superpage,
}

/// When a daemon goes on. Times are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A period after it was due.
    Period,
    /// So much later.
    After(u64),
    /// At once: the pass goes on.
    More,
    /// So much later, or when there are more candidates on the list: the pass goes on.
    Pause(u64),
}
