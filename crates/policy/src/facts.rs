//! What executors know about the place of an event.
//! See docs/decisions/policy.md#3.

use crate::{Orders, Population};

/// What is known now. Nothing of it is remembered from one event to the next; what an event is not decided by may
/// be left at its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The mapping that holds the page.
    pub mapping: Mapping,
    /// The page that was touched.
    pub page: Page,
    /// Its number, and that of the page after the last one that a fault on it may map: the end of its mapping or
    /// of its superpage's worth.
    pub place: (u64, u64),
    /// The superpage's worth of memory around it.
    pub region: Region,
    /// What conditions are asked about.
    pub extent: Extent,
    /// The machine.
    pub machine: Machine,
}

/// A mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mapping {
    /// What backs it.
    pub backing: Backing,
    /// Superpages were advised (MADV_HUGEPAGE), or advised against; `None`: neither.
    pub advised: Option<bool>,
    /// It may be written.
    pub writable: bool,
}

/// What backs a mapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backing {
    /// Memory of the process's own.
    #[default]
    Anonymous,
    /// The same, and it grows at its end.
    Heap,
    /// A file.
    File {
        /// It is in memory.
        cached: bool,
    },
    /// An object that several mappings show.
    Shared,
}

impl Backing {
    /// Whether it is the process's own memory.
    #[inline]
    pub const fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap)
    }
}

/// A base page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Page {
    /// It never had contents.
    #[default]
    Untouched,
    /// Its contents are swapped out.
    Swapped,
    /// Another mapping of its object has it in memory.
    InObject,
    /// A page of the pool backs it.
    Pooled,
    /// It is in memory, and not mapped.
    Resident {
        /// A write must copy it, as long as others have it.
        cow: bool,
        /// Others have it.
        shared: bool,
    },
    /// It is mapped, and was not written through this mapping.
    Mapped {
        /// A write must copy it, as long as others have it.
        cow: bool,
        /// Others have it.
        shared: bool,
    },
}

/// A superpage's worth of memory, aligned; for a scan's candidate that is larger, its extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// It is mapped as a superpage; of a larger candidate: some of it is.
    pub superpage: Option<Superpage>,
    /// There is a page table with base pages for it.
    pub has_table: bool,
    /// Base pages in memory, mapped or not.
    pub populated: u16,
    /// Base pages that are swapped out (when its page table was read).
    pub swapped: u16,
    /// All base pages are mapped.
    pub is_mapped: bool,
    /// A write to some of its pages copies (after a fork).
    pub has_cow: bool,
    /// A page that a fault on another one mapped was not used since (with [`Reads::UNACCESSED`], where all are mapped).
    pub has_unaccessed: bool,
    /// It lies in one mapping.
    pub inside: bool,
    /// Sizes whose aligned extent around the page begins in its mapping.
    pub begins: Orders,
    /// Sizes whose aligned extent around the page ends in its mapping.
    pub ends: Orders,
    /// Sizes whose extent has no page yet (with [`Reads::ABSENT`]).
    pub absent: Orders,
    /// Sizes whose extent has no page in memory and no reservation (with [`Reads::UNRESERVED`]).
    pub unreserved: Orders,
    /// The reservation that the page lies in.
    pub reservation: Option<Reservation>,
    /// Pages that were written: with [`Reads::DIRTY`], where all are in memory. Of a reservation with more pages than bits: none,
    /// all (but perhaps the one that was touched), or some.
    pub dirty: Population,
    /// Nobody else has pages of the kind after a fork, anywhere.
    pub nothing_shared: bool,
    /// A daemon saw that a page was accessed lately.
    pub accessed: bool,
    /// Base pages that a daemon saw accessed lately, as a moving average.
    pub coverage: u16,
    /// Its clean pages are write-protected.
    pub is_protected: bool,
    /// Some page may be written without copying it.
    pub has_writable: bool,
    /// Some page is somebody else's too.
    pub has_shared: bool,
    /// Base pages that hold zeros only (with [`Reads::ZEROS`]).
    pub zeros: u16,
    /// It is backed by the pool.
    pub is_pooled: bool,
}

/// The aligned extent of a size around a place, as conditions see it: at a first fault that of a superpage, of
/// which nothing is populated yet (with [`Reads::AT_FAULT`]); for a scan's candidate that of the size at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its size; 0: a superpage's.
    pub order: u8,
    /// Base pages in memory.
    pub populated: u32,
    /// Base pages that were accessed in the sampling window, as a moving average.
    pub coverage: u32,
    /// Walks to it in the sampling window, as a moving average (with [`Reads::MISSES`]).
    pub misses: u32,
    /// TLB misses that the profile has for a superpage here, per unit of time.
    pub profiled: u64,
}

/// A mapped superpage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Superpage {
    /// Its size; 0: the page table's superpage.
    pub order: u8,
    /// It is the shared one of zeros.
    pub zeros: bool,
    /// It is the pool's.
    pub pooled: bool,
    /// A write must copy, as long as others have it.
    pub cow: bool,
    /// Others have it.
    pub shared: bool,
}

/// A reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Its size.
    pub order: u8,
    /// Its pages in use.
    pub populated: u32,
    /// The page's place in it is in use already, by what the page was once.
    pub is_taken: bool,
    /// It was found unfit to be filled.
    pub is_bad: bool,
    /// All of its pages are in use, in their places, and nobody else's.
    pub is_full: bool,
}

/// The machine, and the work of the daemon that asks. Times are in ticks of [`crate::Scale`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// Time that the daemon's pass took so far.
    pub spent: u64,
    /// Time that this piece of it took so far.
    pub spent_in_piece: u64,
    /// The piece of work is long enough.
    pub is_piece_done: bool,
    /// Candidates that wait.
    pub waiting: u32,
    /// Free base pages.
    pub free: u64,
    /// The same, with those that reservations keep.
    pub free_with_reserved: u64,
    /// Base pages there are.
    pub pages: u64,
    /// Free base pages that are zeroed, per mille of the free ones.
    pub zeroed_permille: u64,
    /// Below so many free pages memory is reclaimed, up to so many.
    pub watermarks: (u64, u64),
    /// Compaction in the background was asked for.
    pub compaction_wanted: bool,
    /// Memory is fragmented enough for proactive compaction.
    pub is_fragmented: bool,
    /// How fragmented it is: higher is worse.
    pub fragmentation: u32,
    /// Free superpages (with [`Reads::AT_FAULT`] at faults, [`Reads::OF_CANDIDATES`] for candidates; so are `free`
    /// and `pages` there).
    pub free_superpages: u32,
    /// The next of them is zeroed (with the same).
    pub is_prezeroed: bool,
}

/// Facts that cost something to learn, and that a policy may never look at.
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
    /// At a first fault, what a condition may name: [`Facts::extent`] and free memory.
    pub const AT_FAULT: Self = Self(128);
    /// The same of candidates.
    pub const OF_CANDIDATES: Self = Self(256);
    /// [`Extent::misses`]: walks by region.
    pub const MISSES: Self = Self(512);
    /// [`Region::has_unaccessed`].
    pub const UNACCESSED: Self = Self(1024);

    pub(crate) const fn when(self, is_read: bool) -> Self {
        if is_read { self } else { Self(0) }
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of these are read.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
