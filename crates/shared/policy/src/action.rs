//! Actions that policies request from executors.

use crate::fault::Direct;
use crate::rules::Effort;

/// The action to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,

    /// Serve a fault.
    Fault(FaultAction),
    /// Make a superpage of existing pages.
    MakeSuperpage {
        /// Order of the superpage.
        order: u8,
        /// How to make it.
        how: How,
        /// Effort to obtain a free one.
        effort: Effort,
    },
    /// Prepare pages of a reservation without contents, without mapping them.
    Populate {
        /// Maximum number of pages.
        most: u32,
    },
    /// Never fill this reservation.
    Exclude,
    /// Keep clean pages read-only: the next write is a fault again.
    WriteProtect,
    /// Put the region on the list of candidates.
    List,

    /// Split the superpage's mapping; the frames stay in place.
    Demote,
    /// Leave the memory as it is.
    Keep,
    /// Release the memory.
    Release,
    /// Hold frames that are no longer used, as long as the rest of their superpage is.
    Hold,
    /// Read the region's page table: [`crate::Event::Inspected`] follows.
    Inspect,
    /// Make no page of the candidate's size; report each extent of this smaller order in it as a candidate.
    Consider {
        /// Order of the extents.
        order: u8,
    },

    /// Refuse the mapping.
    Refuse,
    /// Fall back to base pages.
    GiveUp,
    /// Wake the compaction daemon, and fall back to base pages.
    Wake,
    /// Compact until a superpage is free.
    Compact {
        /// Compaction mode.
        mode: Compaction,
        /// State of the direct allocation, which continues if compaction fails.
        direct: Option<Direct>,
    },
    /// Reclaim pages.
    Reclaim {
        /// Minimum number of pages.
        pages: u64,
        /// Whether to reclaim the pages of one aligned block.
        lumpy: bool,
        /// State of the direct allocation, which continues if reclaim is not enough.
        direct: Option<Direct>,
    },
    /// Break the least recently changed reservation and free its clear pages.
    BreakReservation {
        /// Number of base pages wanted.
        wanted: u64,
    },
    /// Release held frames that are unused.
    ReleaseHeld {
        /// Number of base pages wanted.
        wanted: u64,
    },

    /// Split the superpage and free its zero-filled pages.
    Recover,
    /// Step of a daemon.
    Daemon(DaemonAction),
}

/// How a superpage is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Map the pages, which are in place, as one superpage.
    InPlace {
        /// Whether it is writable.
        writable: bool,
    },
    /// Copy the pages into a free superpage.
    Copy {
        /// Whether faults of the address space wait meanwhile.
        exclusive: bool,
    },
}

/// How thoroughly to compact memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// Only blocks of the same mobility; a block is left at the first unmovable page.
    Async,
    /// All blocks.
    SyncLight,
    /// All blocks, ignoring deferral after failures.
    Sync,
    /// All of memory, proactively.
    Proactive,
}

/// How a fault is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// Nothing: the page is mapped as the access needs it.
    Nothing,
    /// Map the shared zero page for reading.
    MapZeros {
        /// Order of the zero page; 0: a base page.
        order: u8,
    },
    /// Allocate, prepare and map base pages: the unpopulated pages from the touched page on.
    MapBase {
        /// Number of pages.
        pages: u32,
    },
    /// Prepare and map the page's slot in its reservation.
    MapReserved {
        /// Number of resident pages to map on each side.
        around: u8,
    },
    /// Map a resident page.
    MapResident {
        /// Number of resident pages to map on each side.
        around: u8,
    },
    /// Map the page that is resident in another mapping of the object.
    MapInObject,
    /// Map the page of the pool.
    MapPooled,
    /// Map the file's superpage, which is fully resident, for reading.
    MapFile,
    /// Make the page or the superpage writable.
    MakeWritable,
    /// Make the page writable: the writer is its only owner now.
    Reuse,
    /// Give the writer a private copy of the page.
    CopyPage,
    /// Split the superpage, then give the writer a private copy of the page.
    DemoteAndCopy,
    /// Reserve a physical superpage for the surrounding pages; the fault is reported again once the reservation
    /// exists.
    Reserve {
        /// Order of the superpage.
        order: u8,
        /// Effort to obtain one.
        effort: Effort,
        /// Whether the least recently changed reservation may be preempted.
        preempt: bool,
    },
    /// Prepare a whole free superpage and map it.
    MakeSuperpage {
        /// Order of the superpage.
        order: u8,
        /// Effort to obtain a free one.
        effort: Effort,
    },
    /// Map the pages of a superpage, which are in place, as one.
    MapInPlace {
        /// Whether it is writable.
        writable: bool,
    },
    /// Split the superpage's mapping, in place; the fault is reported again.
    Demote,
}

/// What a daemon does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonAction {
    /// A step of a scan for superpages to make.
    Scan(ScanAction),
    /// A step of a daemon that maintains memory.
    Upkeep(UpkeepAction),
    /// A step of the daemon that splits superpages.
    Watch(WatchAction),
    /// End this piece of work.
    Wait(Wait),
}

/// A step of a scan, or of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanAction {
    /// Go to the next candidate.
    Visit(Candidates),
    /// Restart at the beginning of memory.
    Rewind,
    /// Rank all candidates with [`crate::Policy::rank`]; visits start with the best.
    Rank {
        /// Maximum number of candidates; 0: all.
        most: u32,
        /// Whether to rank only the first process by [`crate::Policy::rank_process`].
        one_process: bool,
    },
    /// Clear accessed bits.
    ClearAccessed,
    /// Count accessed bits.
    CountAccessed {
        /// Weight of this count in the moving average, per cent.
        newest_percent: u32,
    },
}

/// The source of a scan's next candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    /// The next by address.
    Next,
    /// The first on the list of candidates, or else the next by address.
    Listed,
    /// The best of the ranking.
    Best,
}

/// A step of a daemon that maintains memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpkeepAction {
    /// Migrate the pages of reservations that have not changed for `after` ticks, oldest first.
    Evacuate {
        /// Age in ticks.
        after: u64,
    },
    /// Break the next least recently changed reservation after the one that could not be evacuated.
    BreakNext,
    /// Go to the most recently changed reservation with at least `at` pages that this piece of work has not visited.
    Fill {
        /// Minimum number of pages.
        at: u16,
    },
    /// Go to the next superpage by address.
    Inspect,
    /// Zero a free block.
    Zero {
        /// Order of the block.
        order: u8,
    },
    /// Compact.
    Compact {
        /// Compaction mode.
        mode: Compaction,
    },
    /// Release held frames that are unused.
    ReleaseHeld,
    /// Reclaim pages.
    Reclaim {
        /// Minimum number of pages.
        pages: u64,
        /// Whether to reclaim the pages of one aligned block.
        lumpy: bool,
    },
}

/// A step of the daemon that splits superpages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchAction {
    /// Map the next superpages by their base pages, in place, and clear the accessed bits of these pages. The
    /// order is by address and wraps around.
    Begin {
        /// Maximum number of superpages.
        most: u32,
    },
    /// Go to the next watched superpage; the accessed bits of its base pages are counted.
    Visit,
}

/// When a daemon continues. Times are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One period after it was due.
    Period,
    /// After this many ticks.
    After(u64),
    /// At once: the pass continues.
    More,
    /// After this many ticks, or when the list gets more candidates: the pass continues.
    Pause(u64),
}
