//! Facts about the place of an event.
//! See docs/decisions/policy.md#3.

use crate::{Orders, Population};

/// The facts of one event. Nothing is kept between events; a fact that the event's decision does not use may be left
/// at its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The mapping of the page.
    pub mapping: Mapping,
    /// The touched page.
    pub page: Page,
    /// Number of the touched page, and of the page after the last one that a fault on it may map: the end of its
    /// mapping or of its superpage-sized region.
    pub place: (u64, u64),
    /// The superpage-sized region of the page.
    pub region: Region,
    /// The extent that conditions are evaluated on.
    pub extent: Extent,
    /// The machine.
    pub machine: Machine,
}

/// A mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The backing of the mapping.
    pub backing: Backing,
    /// Whether the program advised for superpages (MADV_HUGEPAGE) or against them; `None`: neither.
    pub advised: Option<bool>,
    /// Whether the mapping is writable.
    pub writable: bool,
}

/// The backing of a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous memory.
    #[default]
    Anonymous,
    /// Anonymous memory that grows at its end.
    Heap,
    /// A file.
    File {
        /// Whether the file is in memory.
        cached: bool,
    },
    /// An object shared by several mappings.
    Shared,
}

impl Backing {
    /// Whether the memory is anonymous.
    #[inline]
    pub const fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap)
    }
}

/// A base page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Page {
    /// The page never had contents.
    #[default]
    Untouched,
    /// The contents are swapped out.
    Swapped,
    /// The page is resident in another mapping of its object.
    InObject,
    /// A page of the pool backs the page.
    Pooled,
    /// The page is in memory, but not mapped.
    Resident {
        /// Whether a write must copy the page, as long as it is shared.
        cow: bool,
        /// Whether other mappings have the page.
        shared: bool,
    },
    /// The page is mapped, and was not written through this mapping.
    Mapped {
        /// Whether a write must copy the page, as long as it is shared.
        cow: bool,
        /// Whether other mappings have the page.
        shared: bool,
    },
}

/// An aligned, superpage-sized region; for a larger candidate of a scan, its extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// The superpage that maps the region; for a larger candidate, one that maps some of it.
    pub superpage: Option<Superpage>,
    /// Whether the region has a page table with base pages.
    pub has_table: bool,
    /// Number of base pages in memory, mapped or not.
    pub populated: u16,
    /// Number of swapped-out base pages (known when the page table was read).
    pub swapped: u16,
    /// Whether all base pages are mapped.
    pub is_mapped: bool,
    /// Whether a write to some of its pages copies (after a fork).
    pub has_cow: bool,
    /// Whether a page that a fault on another page mapped has not been used since (with [`Reads::UNACCESSED`],
    /// where all are mapped).
    pub has_unaccessed: bool,
    /// Whether one mapping holds the whole region.
    pub inside: bool,
    /// Orders whose aligned extent around the page begins in its mapping.
    pub begins: Orders,
    /// Orders whose aligned extent around the page ends in its mapping.
    pub ends: Orders,
    /// Orders whose extent has no page yet (with [`Reads::ABSENT`]).
    pub absent: Orders,
    /// Orders whose extent has no resident page and no reservation (with [`Reads::UNRESERVED`]).
    pub unreserved: Orders,
    /// The reservation that holds the page.
    pub reservation: Option<Reservation>,
    /// Written pages: with [`Reads::DIRTY`], where all pages are in memory. For a reservation with more pages
    /// than bits: no bits, all bits (except perhaps the touched page's), or some.
    pub dirty: Population,
    /// Whether no process anywhere shares pages after a fork.
    pub nothing_shared: bool,
    /// Whether a daemon saw a recent access to a page.
    pub accessed: bool,
    /// Number of base pages that a daemon saw accessed recently, as a moving average.
    pub coverage: u16,
    /// Whether the clean pages are write-protected.
    pub is_protected: bool,
    /// Whether some page is writable without a copy.
    pub has_writable: bool,
    /// Whether some page is shared.
    pub has_shared: bool,
    /// Number of zero-filled base pages (with [`Reads::ZEROS`]).
    pub zeros: u16,
    /// Whether the pool backs the region.
    pub is_pooled: bool,
}

/// The aligned extent that conditions are evaluated on: at a first fault, the still unpopulated extent of a
/// superpage (with [`Reads::AT_FAULT`]); for a scan's candidate, the extent of the candidate's order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Order of the extent; 0: a superpage's.
    pub order: u8,
    /// Number of base pages in memory.
    pub populated: u32,
    /// Number of base pages accessed in the sampling window, as a moving average.
    pub coverage: u32,
    /// Number of page-table walks to the extent in the sampling window, as a moving average (with
    /// [`Reads::MISSES`]).
    pub misses: u32,
    /// TLB misses of a superpage here according to the profile, per unit of time.
    pub profiled: u64,
}

/// A mapped superpage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Superpage {
    /// Order of the superpage; 0: the page table's superpage.
    pub order: u8,
    /// Whether it is the shared zero superpage.
    pub zeros: bool,
    /// Whether it belongs to the pool.
    pub pooled: bool,
    /// Whether a write must copy, as long as the superpage is shared.
    pub cow: bool,
    /// Whether other mappings have it.
    pub shared: bool,
}

/// A reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Order of the reservation.
    pub order: u8,
    /// Number of pages in use.
    pub populated: u32,
    /// Whether the page's slot is in use already, by earlier contents of the page.
    pub is_taken: bool,
    /// Whether the reservation is excluded from filling.
    pub is_bad: bool,
    /// Whether all of its pages are in use, in their slots, and not shared.
    pub is_full: bool,
}

/// The machine, and the progress of the running daemon. Times are in ticks of [`crate::Scale`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// Time that the daemon's pass has taken so far.
    pub spent: u64,
    /// Time that this piece of the pass has taken so far.
    pub spent_in_piece: u64,
    /// Whether the piece of work has used its time.
    pub is_piece_done: bool,
    /// Number of waiting candidates.
    pub waiting: u32,
    /// Number of free base pages.
    pub free: u64,
    /// Number of free base pages, including clear pages of reservations.
    pub free_with_reserved: u64,
    /// Number of base pages.
    pub pages: u64,
    /// Zeroed pages among the free base pages, per mille.
    pub zeroed_permille: u64,
    /// Low and high watermark: below the first number of free pages reclaim starts, at the second it stops.
    pub watermarks: (u64, u64),
    /// Whether background compaction was requested.
    pub compaction_wanted: bool,
    /// Whether memory is fragmented enough for proactive compaction.
    pub is_fragmented: bool,
    /// Fragmentation score; higher is worse.
    pub fragmentation: u32,
    /// Number of free superpages (with [`Reads::AT_FAULT`] at faults, [`Reads::OF_CANDIDATES`] for candidates;
    /// so are `free` and `pages` there).
    pub free_superpages: u32,
    /// Whether the next free superpage is zeroed (read with the same flags).
    pub is_prezeroed: bool,
}

/// The facts that are expensive to learn and that a policy uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads(u16);

impl Reads {
    /// [`Region::absent`].
    pub const ABSENT: Self = Self(1);
    /// [`Region::unreserved`].
    pub const UNRESERVED: Self = Self(2);
    /// [`Reservation::is_full`].
    pub const FULL: Self = Self(4);
    /// [`Region::dirty`], at a fault on a page that is in memory.
    pub const DIRTY: Self = Self(8);
    /// [`Region::coverage`]: accessed bits of base pages.
    pub const COVERAGE: Self = Self(16);
    /// [`Region::zeros`].
    pub const ZEROS: Self = Self(32);
    /// Whether pages were written since they were mapped.
    pub const WRITTEN: Self = Self(64);
    /// The facts of conditions at a first fault: [`Facts::extent`] and free memory.
    pub const AT_FAULT: Self = Self(128);
    /// The facts of conditions on candidates: [`Facts::extent`] and free memory.
    pub const OF_CANDIDATES: Self = Self(256);
    /// [`Extent::misses`]: page-table walks by region.
    pub const MISSES: Self = Self(512);
    /// [`Region::has_unaccessed`].
    pub const UNACCESSED: Self = Self(1024);

    pub(crate) const fn when(self, is_read: bool) -> Self {
        if is_read { self } else { Self(0) }
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of these facts are read.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
