//! One reservation's record, 96 bytes. Only the table reads and writes it.

use std::num::NonZeroU32;

use crate::memory::Frame;

use super::Population;

/// The virtual extent that a reservation serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its first page, a multiple of the extent's size.
    pub page: u32,
    /// It has 2^order pages.
    pub order: u8,
}

/// A live reservation. Numbers are used again after a reservation is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub(super) NonZeroU32);

impl ReservationId {
    /// The id of the record at this place. Place 0 is a queue's end.
    #[inline]
    pub(super) fn new(at: u32) -> Self {
        Self(NonZeroU32::new(at).expect("place 0 is the first queue's end"))
    }
    /// Its place in the slab.
    #[inline]
    pub(super) fn at(self) -> usize {
        self.0.get() as usize
    }
}

/// What is known of a reservation beside its pages (Quicksilver's flag names in brackets).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// On the queue of the partly populated (INPARTPOPQ).
    pub const QUEUED: Self = Self(1);
    /// It came from another extent (TRANSFERRED).
    pub const TRANSFERRED: Self = Self(2);
    /// Its pages should be migrated whatever its age (NEEDMIGRATE).
    pub const NEEDS_MIGRATION: Self = Self(4);
    /// Filling it failed: it is not tried again (BADBOY).
    pub const BAD: Self = Self(8);
    /// Another reservation serves its extent; it is found by its frames only.
    pub const DISPLACED: Self = Self(16);
    /// Not a free record.
    pub(super) const LIVE: Self = Self(32);

    /// Whether `flag` is set.
    #[inline]
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
    /// Partly populated and nothing else: what Quicksilver asks of a reservation that it fills.
    #[inline]
    pub const fn is_plain(self) -> bool {
        self.0 == Self::QUEUED.0 | Self::LIVE.0
    }
    #[inline]
    pub(super) const fn set(&mut self, flag: Self) {
        self.0 |= flag.0;
    }
    #[inline]
    pub(super) const fn clear(&mut self, flag: Self) {
        self.0 &= !flag.0;
    }
}

/// A reservation, a queue's end, or a free record.
#[derive(Debug)]
pub(super) struct Record {
    /// The populated pages; not of a reservation larger than a superpage.
    pub population: Population,
    /// The last populating or depopulating (or the creation).
    pub changed: u64,
    /// First page of the extent.
    pub page: u32,
    /// First frame of the block.
    pub base: u32,
    /// The next on the queue towards its tail; of a free record: the next free one.
    pub newer: u32,
    /// The next on the queue towards its head.
    pub older: u32,
    /// How many pages are populated.
    pub count: u32,
    pub order: u8,
    pub flags: Flags,
    /// The queue it belongs to.
    pub queue: u8,
}

impl Record {
    pub fn new(key: super::Key, base: Frame, queue: u8, now: u64) -> Self {
        Self {
            population: [0; 8],
            changed: now,
            page: key.page,
            base: base.0,
            newer: 0,
            older: 0,
            count: 0,
            order: key.order,
            flags: Flags::LIVE,
            queue,
        }
    }

    /// How many pages it can have.
    #[inline]
    pub const fn capacity(&self) -> u32 {
        1 << self.order
    }
}

// 16-byte tail of small fields behind the 64-byte map and the time.
const _: () = assert!(size_of::<Record>() == 96);
