//! Numbers for pages and addresses: every area of a program begins at a region of its own.
//!
//! Areas begin at superpage boundaries, as large mappings do on Linux since 6.7 and as the artifact
//! of Quicksilver allocates them; a program whose boundaries matter says so with an offset.

use trace::{Backing, Event, Page, Pages, Region, SLOTS};

/// Bytes in a base page of a stream.
pub(crate) const PAGE: u64 = 4096;
/// Page numbers that a stream has (`Access::WRITE` takes the highest bit).
pub(crate) const MOST_PAGES: u64 = 1 << 31;
/// The virtual page number of the first mapping: mappings lie high, as on x86-64.
const MAPPINGS: u64 = 0x7f00_0000_0000 / PAGE;
/// The virtual page number of a heap.
const HEAP: u64 = 0x5580_0000_0000 / PAGE;

/// Hands out regions.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    first: u32,
    next: u32,
}

impl Space {
    pub fn new(first_region: u32) -> Self {
        Self { first: first_region, next: first_region }
    }

    /// An area of `bytes` with what backs it.
    pub fn area(&mut self, bytes: u64, backing: Backing) -> Area {
        let pages = bytes.div_ceil(PAGE);
        let first = Region(self.next).first();
        let base = if backing == Backing::Heap { HEAP } else { MAPPINGS };
        let address = base + (u64::from(self.next - self.first) * u64::from(SLOTS));
        self.next += pages.div_ceil(u64::from(SLOTS)).max(1) as u32;
        Area { first: first.0, pages: pages as u32, address, backing }
    }

    /// The first region that was not handed out.
    pub fn next_region(&self) -> u32 {
        self.next
    }

    /// An area of anonymous memory.
    pub fn anonymous(&mut self, bytes: u64) -> Area {
        self.area(bytes, Backing::Anonymous)
    }
}

/// A mapping of a program, or the place for one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    /// Its first page's number.
    pub first: u32,
    /// Its pages.
    pub pages: u32,
    /// The virtual page number of its first page.
    pub address: u64,
    /// What backs it.
    pub backing: Backing,
}

impl Area {
    /// Maps all of it.
    pub fn map(&self) -> Event {
        self.map_first(self.pages)
    }

    /// Maps its first `pages`.
    pub fn map_first(&self, pages: u32) -> Event {
        Event::Map { pages: self.part(0, pages), address: self.address, backing: self.backing }
    }

    /// Unmaps all of it.
    pub fn unmap(&self) -> Event {
        Event::Unmap(self.part(0, self.pages))
    }

    /// `count` of its pages from number `from` on.
    pub fn part(&self, from: u32, count: u32) -> Pages {
        debug_assert!(from + count <= self.pages);
        Pages { first: Page(self.first + from), count }
    }

    /// Its page `number`.
    #[inline]
    pub fn page(&self, number: u64) -> Page {
        debug_assert!(number < u64::from(self.pages));
        Page(self.first + number as u32)
    }

    /// The regions it takes.
    pub fn regions(&self) -> u64 {
        u64::from(self.pages).div_ceil(u64::from(SLOTS))
    }
}
