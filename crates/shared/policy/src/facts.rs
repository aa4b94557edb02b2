//! Facts about the place where an event happens. See docs/decisions/policy.md#3.

use crate::{Orders, Population};

/// The facts of one event. The policy keeps no facts between events. A fact that the event's decision does not use may
/// keep its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The mapping of the page.
    pub mapping: Mapping,
    /// The touched page.
    pub page: Page,
    /// Two page numbers: that of the touched page, and the end of the pages that its fault may map (the end of its
    /// mapping or of its superpage-sized region).
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
    /// Whether the program advised for superpages (MADV_HUGEPAGE, `true`) or against them
    /// (`false`); `None`: no advice.
    pub advised: Option<bool>,
    /// Whether the mapping is writable.
    pub writable: bool,
    /// Whether another process shares the private memory since a fork (FreeBSD: the object has a backing object).
    pub forked: bool,
    /// Whether a page of the memory was ever swapped out (FreeBSD: the object is of type OBJT_SWAP).
    pub was_swapped: bool,
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
        /// Whether the file is in the page cache.
        cached: bool,
    },
    /// A memory object that several mappings share.
    Shared,
}

impl Backing {
    /// Whether the memory is anonymous.
    #[inline]
    pub const fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap)
    }
}

/// State of a base page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Page {
    /// The page never had contents.
    #[default]
    Untouched,
    /// The contents are swapped out.
    Swapped,
    /// The page is resident in another mapping of its object.
    InObject,
    /// A pool page backs the page.
    Pooled,
    /// The page is in memory, but not mapped.
    Resident {
        /// Whether a write must copy the page while the page is shared.
        cow: bool,
        /// Whether other mappings share the page.
        shared: bool,
    },
    /// The page is mapped, but was not written through this mapping.
    Mapped {
        /// Whether a write must copy the page while the page is shared.
        cow: bool,
        /// Whether other mappings share the page.
        shared: bool,
    },
}

/// An aligned, superpage-sized region. For a scan's candidate larger than a superpage, the
/// candidate's extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// The superpage that maps the region. For a larger candidate, a superpage that maps part of
    /// it.
    pub superpage: Option<Superpage>,
    /// Whether a page table maps base pages of the region.
    pub has_table: bool,
    /// Number of base pages in memory, mapped or not.
    pub populated: u16,
    /// Number of swapped-out base pages (known once the page table was read).
    pub swapped: u16,
    /// Whether all base pages are mapped.
    pub is_mapped: bool,
    /// Whether a write to some page of the region must copy that page (after a fork).
    pub has_cow: bool,
    /// Whether some page was mapped by a fault on another page and not accessed since. Set only with
    /// [`Reads::UNACCESSED`], where all pages are mapped.
    pub has_unaccessed: bool,
    /// Whether the whole region lies in one mapping.
    pub inside: bool,
    /// Orders for which the aligned extent around the page begins inside the page's mapping.
    pub begins: Orders,
    /// Orders for which the aligned extent around the page ends inside the page's mapping.
    pub ends: Orders,
    /// Orders for which this extent has no page yet (with [`Reads::ABSENT`]).
    pub absent: Orders,
    /// Orders for which this extent has neither a resident page nor a reservation (with
    /// [`Reads::UNRESERVED`]).
    pub unreserved: Orders,
    /// The reservation that holds the page.
    pub reservation: Option<Reservation>,
    /// Written pages; set only with [`Reads::DIRTY`], where all pages are in memory. For a reservation with more pages
    /// than bits, the bits only tell whether no page, all pages (except perhaps the touched one) or some pages were
    /// written.
    pub dirty: Population,
    /// Whether a daemon saw that a page was accessed recently.
    pub accessed: bool,
    /// Number of base pages that a daemon saw accessed recently, as a moving average.
    pub coverage: u16,
    /// Whether the clean pages are write-protected.
    pub is_protected: bool,
    /// Whether some page can be written without a copy.
    pub has_writable: bool,
    /// Whether some page is shared.
    pub has_shared: bool,
    /// Number of zero-filled base pages (with [`Reads::ZEROS`]).
    pub zeros: u16,
    /// Whether the pool backs the region.
    pub is_pooled: bool,
}

/// The aligned extent that conditions are evaluated on: at a first fault, the unpopulated extent of a superpage (with
/// [`Reads::AT_FAULT`]); for a scan, the candidate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Order of the extent; 0: the PMD-level size, which one page table maps.
    pub order: u8,
    /// Number of base pages in memory.
    pub populated: u32,
    /// Number of base pages accessed in the sampling window, as a moving average.
    pub coverage: u32,
    /// Number of page-table walks to the extent in the sampling window, as a moving average (with
    /// [`Reads::MISSES`]).
    pub misses: u32,
    /// According to the profile, number of TLB misses per unit of time of a superpage at this
    /// place.
    pub profiled: u64,
}

/// A mapped superpage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Superpage {
    /// Order of the superpage; 0: the PMD-level size, which one page table maps.
    pub order: u8,
    /// Whether it is the shared zero superpage.
    pub zeros: bool,
    /// Whether it belongs to the pool.
    pub pooled: bool,
    /// Whether a write must copy, while the superpage is shared.
    pub cow: bool,
    /// Whether other mappings share the superpage.
    pub shared: bool,
}

/// A reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Order of the reservation.
    pub order: u8,
    /// Number of populated pages.
    pub populated: u32,
    /// Whether the reservation's frame for the page is already in use, by earlier contents of the
    /// page.
    pub is_taken: bool,
    /// Whether the reservation is excluded from filling.
    pub is_bad: bool,
    /// Whether all pages are populated, in the frames reserved for them, and not shared.
    pub is_full: bool,
}

/// The machine, and the progress of the running daemon. Times are in ticks of [`crate::Scale`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// Time that the daemon's pass has taken until now.
    pub spent: u64,
    /// Time that this piece of the pass has taken so far.
    pub spent_in_piece: u64,
    /// Whether the piece of work has used up its time.
    pub is_piece_done: bool,
    /// Number of candidates on the list.
    pub waiting: u32,
    /// Number of free base pages.
    pub free: u64,
    /// Number of free base pages, including unused pages of reservations.
    pub free_with_reserved: u64,
    /// Number of base pages of the machine.
    pub pages: u64,
    /// Zeroed pages among the free base pages, per mille.
    pub zeroed_permille: u64,
    /// Low and high watermark, in numbers of free pages. Reclaim starts below the first and stops at the second.
    pub watermarks: (u64, u64),
    /// Whether background compaction was requested.
    pub compaction_wanted: bool,
    /// Whether memory is fragmented enough for proactive compaction.
    pub is_fragmented: bool,
    /// Fragmentation score; higher is worse.
    pub fragmentation: u32,
    /// Number of free superpages. Set only at faults with [`Reads::AT_FAULT`], and for candidates with
    /// [`Reads::OF_CANDIDATES`]; for candidates, `free` and `pages` are also set only with this flag.
    pub free_superpages: u32,
    /// Whether the next free superpage is zeroed; set under the same conditions as `free_superpages`.
    pub is_prezeroed: bool,
}

/// The set of facts that a policy uses and that are expensive to determine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads(u16);

impl Reads {
    /// Read [`Region::absent`].
    pub const ABSENT: Self = Self(1);
    /// Read [`Region::unreserved`].
    pub const UNRESERVED: Self = Self(2);
    /// Read [`Reservation::is_full`].
    pub const FULL: Self = Self(4);
    /// Read [`Region::dirty`] at a fault on a page that is in memory.
    pub const DIRTY: Self = Self(8);
    /// Read [`Region::coverage`]: accessed bits of base pages.
    pub const COVERAGE: Self = Self(16);
    /// Read [`Region::zeros`].
    pub const ZEROS: Self = Self(32);
    /// Read whether pages were written since they were mapped.
    pub const WRITTEN: Self = Self(64);
    /// Read the facts of conditions at a first fault: [`Facts::extent`] and free memory.
    pub const AT_FAULT: Self = Self(128);
    /// Read the facts of conditions on candidates: [`Facts::extent`] and free memory.
    pub const OF_CANDIDATES: Self = Self(256);
    /// Read [`Extent::misses`]: page-table walks by region.
    pub const MISSES: Self = Self(512);
    /// Read [`Region::has_unaccessed`].
    pub const UNACCESSED: Self = Self(1024);

    pub(crate) const fn when(self, is_read: bool) -> Self {
        if is_read { self } else { Self(0) }
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this set contains all facts of `other`.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
