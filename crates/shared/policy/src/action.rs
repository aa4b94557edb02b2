//! Actions that a policy requests from its executor.

use crate::fault::Direct;
use crate::rules::Effort;

/// The action to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,

    /// Serve a fault.
    Fault(FaultAction),
    /// Make a superpage out of existing pages.
    MakeSuperpage {
        /// Order of the superpage.
        order: u8,
        /// How to make it.
        how: How,
        /// Effort to obtain a free superpage.
        effort: Effort,
    },
    /// Prepare all empty pages of a reservation, but do not map them.
    Populate,
    /// Never fill this reservation.
    Exclude,
    /// Keep clean pages read-only, so that the next write faults again.
    WriteProtect,
    /// Put the region on the list of candidates.
    List,

    /// Split the superpage's mapping; the page frames stay where they are.
    Demote,
    /// Leave the memory as it is.
    Keep,
    /// Release the memory.
    Release,
    /// Hold unused frames while other frames of their superpage are in use.
    Hold,
    /// Read the region's page table, then report [`crate::Event::Inspected`].
    Inspect,
    /// Do not make a page of the candidate's size. Instead report each extent of this smaller order inside it as a
    /// candidate.
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
        /// State of the direct allocation, to continue with if compaction fails.
        direct: Option<Direct>,
    },
    /// Reclaim pages.
    Reclaim {
        /// Minimum number of pages to reclaim.
        pages: u64,
        /// Whether to reclaim the pages of one aligned block.
        lumpy: bool,
        /// State of the direct allocation, to continue with if reclaim frees too little.
        direct: Option<Direct>,
    },
    /// Break the least recently changed reservation and free its unused pages.
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
    /// Perform a daemon's next step.
    Daemon(DaemonAction),
}

/// How a superpage is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Map the pages as one superpage without moving them.
    InPlace {
        /// Whether the superpage is writable.
        writable: bool,
    },
    /// Copy the pages into a free superpage.
    Copy {
        /// Whether faults in the address space wait for the copy.
        exclusive: bool,
    },
}

/// How thoroughly to compact memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compaction {
    /// Compact only blocks of the same mobility. Leave a block at its first unmovable page.
    Async,
    /// Compact all blocks.
    SyncLight,
    /// Compact all blocks, even if earlier failures have deferred compaction.
    Sync,
    /// Compact all of memory, before a request needs it.
    Proactive,
}

/// How a fault is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAction {
    /// Do nothing: the page is already mapped as the access requires.
    Nothing,
    /// Map the shared zero page read-only.
    MapZeros {
        /// Order of the zero page; 0: a base page.
        order: u8,
    },
    /// Allocate, prepare and map base pages, from the touched page on, skipping populated ones.
    MapBase {
        /// Number of pages.
        pages: u32,
    },
    /// Prepare and map the frame that the reservation holds for the page.
    MapReserved {
        /// Number of resident pages to map on each side.
        around: u8,
    },
    /// Map a resident page.
    MapResident {
        /// Number of resident pages to map on each side.
        around: u8,
    },
    /// Map the page, which is resident in another mapping of the object.
    MapInObject,
    /// Map the page, which the pool has set aside.
    MapPooled,
    /// Map the file's superpage, which is fully resident, read-only.
    MapFile,
    /// Make the page or the superpage writable.
    MakeWritable,
    /// Make the page writable: the writer is now its only user.
    Reuse,
    /// Give the writer a private copy of the page.
    CopyPage,
    /// Split the superpage, then give the writer a private copy of the page.
    DemoteAndCopy,
    /// Reserve a physical superpage for the surrounding pages; report the fault again once the reservation exists.
    Reserve {
        /// Order of the superpage.
        order: u8,
        /// Effort to obtain a free superpage.
        effort: Effort,
        /// Whether the least recently changed reservation may be preempted.
        preempt: bool,
    },
    /// Prepare a whole free superpage and map it.
    MakeSuperpage {
        /// Order of the superpage.
        order: u8,
        /// Effort to obtain a free superpage.
        effort: Effort,
    },
    /// Map the pages as one superpage without moving them.
    MapInPlace {
        /// Whether the superpage is writable.
        writable: bool,
    },
    /// Split the superpage's mapping; the frames stay. Then report the fault again.
    Demote,
}

/// What a daemon does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonAction {
    /// A step of a scan that makes superpages.
    Scan(ScanAction),
    /// A step of a daemon that maintains memory.
    Upkeep(UpkeepAction),
    /// A step of the daemon that splits superpages.
    Watch(WatchAction),
    /// End this piece of work until a later time.
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
    /// The next region by address.
    Next,
    /// The first region on the list of candidates, or else the next region by address.
    Listed,
    /// The region with the highest rank.
    Best,
}

/// A step of a daemon that maintains memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpkeepAction {
    /// Migrate the pages of reservations that have not changed for `after` ticks, oldest first.
    Evacuate {
        /// Minimum time without changes, in ticks.
        after: u64,
    },
    /// Break the least recently changed reservation after the one that could not be evacuated.
    BreakNext,
    /// Among reservations with at least `at` populated pages that this piece of work has not visited, go to the most
    /// recently changed one.
    Fill {
        /// Minimum number of populated pages.
        at: u16,
    },
    /// Go to the next superpage by address.
    Inspect,
    /// Zero a free block.
    Zero {
        /// Order of the block.
        order: u8,
    },
    /// Compact memory.
    Compact {
        /// Compaction mode.
        mode: Compaction,
    },
    /// Release held frames that are unused.
    ReleaseHeld,
    /// Reclaim pages.
    Reclaim {
        /// Minimum number of pages to reclaim.
        pages: u64,
        /// Whether to reclaim the pages of one aligned block.
        lumpy: bool,
    },
}

/// A step of the daemon that splits superpages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchAction {
    /// Map the next superpages by their base pages, in place, and clear the accessed bits of these pages. Superpages
    /// are taken by address, and the order wraps around.
    Begin {
        /// Maximum number of superpages.
        most: u32,
    },
    /// Go to the next watched superpage and count the accessed bits of its base pages.
    Visit,
}

/// When a daemon continues. Times are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One period after the previous pass was due.
    Period,
    /// After this many ticks.
    After(u64),
    /// At once: the pass continues.
    More,
    /// The pass continues after this many ticks, or earlier if the list gets more candidates.
    Pause(u64),
}
