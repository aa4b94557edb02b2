//! Streams of page accesses and operating-system events.
//!
//! Generators, recorded traces, importers and the simulated machine share these types. A **region** is 512 base pages
//! of one process's address space. A page's number is `region << 9 | slot`, unique across all processes of a stream.
//! Numbers are dense, so page tables are plain arrays. [`Event::Map`] carries the virtual address of a mapping. See
//! docs/decisions/lab.md#1.
#![forbid(unsafe_code)]

mod check;
mod error;
mod event;
mod file;
mod filter;
pub mod import;

pub use check::Checker;
pub use error::{Place, TraceError};
pub use event::{Advice, Backing, Event, Pace, Pages, Process};
pub use file::{
    CHUNK, ChunkInfo, Header, Info, Mappings, Placement, Reader, RegionRun, Run, Totals, VERSION,
    Writer,
};
pub use filter::{Filter, MruSets};

use std::fmt;

/// Number of base pages in a region.
pub const SLOTS: u32 = 512;

/// A base page of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u32);

/// 512 aligned base pages of a stream: the range of one superpage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u32);

/// One access: a page number and a write bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access(pub u32);

impl Page {
    /// The page `slot` of `region`.
    pub const fn new(region: Region, slot: u32) -> Self {
        Self(region.0 << 9 | slot)
    }
    /// The region that contains the page.
    pub const fn region(self) -> Region {
        Region(self.0 >> 9)
    }
    /// The page's index in its region, 0 to 511.
    pub const fn slot(self) -> u32 {
        self.0 & (SLOTS - 1)
    }
}

impl Region {
    /// The region's first page.
    pub const fn first(self) -> Page {
        Page(self.0 << 9)
    }
    /// All pages of the region.
    pub const fn pages(self) -> Pages {
        Pages { first: self.first(), count: SLOTS }
    }
    /// The next region.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
    /// The region's number, as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Access {
    /// The write bit; the other bits are the page number.
    pub const WRITE: u32 = 1 << 31;

    /// A read of `page`.
    pub const fn read(page: Page) -> Self {
        Self(page.0)
    }
    /// A write to `page`.
    pub const fn write(page: Page) -> Self {
        Self(page.0 | Self::WRITE)
    }
    /// The page.
    pub const fn page(self) -> Page {
        Page(self.0 & !Self::WRITE)
    }
    /// Whether the access writes.
    pub const fn writes(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.writes() { "write" } else { "read" };
        write!(f, "{kind} {}:{}", self.page().region().0, self.page().slot())
    }
}

/// A part of a stream: accesses, their repeat counts, and the events between them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// The accesses, in order.
    pub accesses: Vec<Access>,
    /// For each access, the number of consecutive accesses that it represents, never 0. Empty if
    /// all are 1.
    pub counts: Vec<u32>,
    /// Events in order, each with the index of the access before which it occurs (at most the number of accesses).
    pub events: Vec<(u32, Event)>,
}

impl Block {
    /// Clears the block but keeps its memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.counts.clear();
        self.events.clear();
    }
    /// Number of accesses that the block represents: the sum of the counts.
    pub fn total(&self) -> u64 {
        if self.counts.is_empty() {
            return self.accesses.len() as u64;
        }
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }
    /// Adds an event before the next access.
    pub fn event(&mut self, event: Event) {
        self.events.push((self.accesses.len() as u32, event));
    }
}

/// Approximate number of accesses per block: large enough to amortize the cost per block, small enough for the cache.
pub const BLOCK: usize = 16 << 10;

/// A stream, read in blocks.
pub trait Source {
    /// The error type; [`std::convert::Infallible`] for generators.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Replaces the contents of `block` by the next part of the stream. Returns `false` if the stream has ended; the
    /// block is then empty.
    ///
    /// # Errors
    /// The stream cannot be read further.
    fn next(&mut self, block: &mut Block) -> Result<bool, Self::Error>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    type Error = S::Error;

    fn next(&mut self, block: &mut Block) -> Result<bool, S::Error> {
        (**self).next(block)
    }
}
