//! Streams of page accesses with the operating system's events between them.
//!
//! The vocabulary that generators, recorded traces, importers and the simulated machine share. Pages
//! are numbered densely: a **region** is 512 base pages of one process's address space, and a page's
//! number is `region << 9 | slot`, unique over all processes of a stream. Dense numbers make page
//! tables plain arrays; a region's true address travels in [`Event::Map`].
//! See docs/decisions/lab.md#1.
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

/// Base pages in a region.
pub const SLOTS: u32 = 512;

/// A base page of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u32);

/// 512 base pages of a stream, aligned: what one superpage can back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u32);

/// One access: the page, and whether it writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access(pub u32);

impl Page {
    /// The page `slot` of `region`.
    pub const fn new(region: Region, slot: u32) -> Self {
        Self(region.0 << 9 | slot)
    }
    /// The region it lies in.
    pub const fn region(self) -> Region {
        Region(self.0 >> 9)
    }
    /// Its index there, 0 to 511.
    pub const fn slot(self) -> u32 {
        self.0 & (SLOTS - 1)
    }
}

impl Region {
    /// Its first page.
    pub const fn first(self) -> Page {
        Page(self.0 << 9)
    }
    /// All its pages.
    pub const fn pages(self) -> Pages {
        Pages { first: self.first(), count: SLOTS }
    }
    /// The region after it.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
    /// Its number, for arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Access {
    /// The bit that says "writes"; the page number is in the others.
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
    /// Whether it writes.
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

/// A piece of a stream: accesses, how often each is repeated at once, and what happens between them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// The accesses, in order.
    pub accesses: Vec<Access>,
    /// How many accesses each stands for, in a row. Empty: one each. Never 0.
    pub counts: Vec<u32>,
    /// What happens, and before which access (an index into `accesses`, or its length), ascending.
    pub events: Vec<(u32, Event)>,
}

impl Block {
    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.counts.clear();
        self.events.clear();
    }
    /// How many accesses it stands for: the sum of the counts.
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

/// Accesses that a block of a source holds, about: so much that the work per block is nothing, so
/// little that it stays in the cache.
pub const BLOCK: usize = 16 << 10;

/// A stream, read a block at a time.
pub trait Source {
    /// Why it could fail; [`std::convert::Infallible`] for generators.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Replaces the contents of `block` by the stream's next piece. `false`: the stream is at its end,
    /// and the block is empty.
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
