//! What policies ask of executors.

use crate::fault::Direct;
use crate::live::Source;
use crate::rules::Effort;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,

    /// Map the shared zeros for reading.
    MapZeros {
        /// The size of the page of them; 0: a base page.
        order: u8,
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
    MapInObject,
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
    /// Prepare pages that have no contents: of a reservation, without mapping them; of a program's mapping, from
    /// where the last ones ended.
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
    /// Leave it as it is; keep what the program unmaps.
    Keep,
    /// Give it back.
    Release,
    /// Hold frames that are not used any more, as long as the rest of their superpage is.
    Hold,
    /// Read its page table: [`crate::Event::Inspected`] follows.
    Inspect,
    /// Nothing of its size: tell of each extent of this size in it, as candidates.
    Consider {
        /// The size.
        order: u8,
    },

    /// Advise the first bytes of the piece (MADV_HUGEPAGE), so that its first touch makes superpages.
    Advise {
        /// Number of bytes.
        bytes: u64,
        /// Their size.
        order: u8,
        /// They count as taken until they are touched.
        promised: bool,
    },
    /// Advise all of the piece, but let only superpages of a smaller size be made from a place of it on: where there are
    /// page tables already, the kernel does not try the largest.
    AdviseSmaller {
        /// The place, in bytes from its beginning.
        from: u64,
        /// The size of those before it.
        order: u8,
        /// What lies before it counts as taken until it is touched.
        promised: bool,
    },
    /// Let none be made from a place of the piece on; what lies before it is advised again, and the piece stays one
    /// that can be moved as a whole.
    Unadvise {
        /// The place, in bytes from its beginning.
        from: u64,
        /// The size of the superpages before it.
        order: u8,
        /// They count as taken until they are touched.
        promised: bool,
    },
    /// Leave to what was added to a piece the advice that the piece has.
    Inherit {
        /// Its superpages count as taken until they are touched.
        promised: bool,
    },
    /// Advise all of a piece that was advised in part, so that it is one mapping.
    Join,
    /// Try whether so many superpages are to be had at once, and how long each takes.
    Probe {
        /// How many.
        count: u64,
        /// More microseconds than this for one are too many: the rest need not be tried.
        limit: u32,
    },
    /// Have so many superpages made free, by somebody who may.
    Obtain {
        /// How many.
        count: u64,
    },
    /// Clear what is kept and hand it out.
    HandOut,
    /// Learn facts; the outcome is told with them.
    Read(Source),

    /// Refuse the mapping.
    Refuse,
    /// Fall back to base pages.
    GiveUp,
    /// Wake the compaction daemon, and fall back to base pages.
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
    /// Map the next superpages by their base pages, where they are, and clear those pages' accessed bits. After the
    /// last one by address comes the first.
    Watch {
        /// At most so many.
        most: u32,
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
    /// The kernel makes it of what is there, or maps the one that the file has.
    Collapse,
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
    /// The next of those that are watched; the accessed bits of its base pages are counted.
    Watched,
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
    /// When a program asked for so many more bytes: nothing is advised until then.
    Bytes(u64),
}
