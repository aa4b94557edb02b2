//! Who uses a frame: one word per frame, which is also the reverse map from frames to pages.

use trace::Page;

/// Who uses a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody: it is free, or held without contents (a reservation's unpopulated part).
    None,
    /// The kernel; it can neither be moved nor evicted.
    Kernel,
    /// A program that holds it in its place (mlock is movable, a long-term pin is not).
    Pinned,
    /// The page cache: a clean page of a file, by a number of its own (30 bits).
    Cache(u32),
    /// Anonymous memory: the page of the stream (31 bits).
    Page(Page),
}

const KERNEL: u32 = 1;
const PINNED: u32 = 2;
const CACHE: u32 = 1 << 30;
const PAGE: u32 = 1 << 31;

impl Owner {
    /// Whether compaction and reclaim may try their hand at it.
    pub const fn movable(self) -> bool {
        matches!(self, Self::Cache(_) | Self::Page(_))
    }

    /// As the word that a frame has. Zero is `None`, so that memory that was never used costs nothing.
    pub(crate) const fn pack(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Kernel => KERNEL,
            Self::Pinned => PINNED,
            Self::Cache(number) => CACHE | number & (CACHE - 1),
            Self::Page(page) => PAGE | page.0,
        }
    }

    /// From the word.
    pub(crate) const fn unpack(word: u32) -> Self {
        if word & PAGE != 0 {
            return Self::Page(Page(word & !PAGE));
        }
        if word & CACHE != 0 {
            return Self::Cache(word & !CACHE);
        }
        match word {
            0 => Self::None,
            PINNED => Self::Pinned,
            _ => Self::Kernel,
        }
    }
}

/// Whether a frame's word says "page cache".
pub(crate) const fn is_cache(word: u32) -> bool {
    word >> 30 == 1
}

/// Whether a frame's word says something that can be moved.
pub(crate) const fn is_movable(word: u32) -> bool {
    word >> 30 != 0
}
