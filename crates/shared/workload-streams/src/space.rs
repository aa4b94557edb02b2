//! Numbers for pages and addresses: every area of a program begins at a region of its own.
//!
//! Areas begin at superpage boundaries, as large mappings do on Linux since 6.7 and as the artifact
//! of Quicksilver allocates them; a program whose boundaries matter says so with an offset.

use trace::{Backing, Event, Page, Pages, Region, SLOTS};

use crate::Setup;

/// Bytes in a base page of a stream.
pub(crate) const PAGE: u64 = 4096;
/// Page numbers that a stream has (`Access::WRITE` takes the highest bit).
pub(crate) const MAX_PAGES: u64 = 1 << 31;
/// The virtual page number of the first mapping: mappings lie high, as on x86-64.
const MAPPINGS: u64 = 0x7f00_0000_0000 / PAGE;
/// The virtual page number of a heap.
const HEAP: u64 = 0x5580_0000_0000 / PAGE;

/// Hands out regions.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    first: u32,
    next: u32,
    align: u32,
}

impl Space {
    #[cfg(test)]
    pub fn new(first_region: u32) -> Self {
        Self { first: first_region, next: first_region, align: 1 }
    }

    /// The space of a workload.
    pub fn of(setup: &Setup) -> Self {
        let first = setup.first_region;
        debug_assert!(first.is_multiple_of(setup.align));
        Self { first, next: first, align: setup.align }
    }

    /// An area of `bytes` with what backs it.
    pub fn area(&mut self, bytes: u64, backing: Backing) -> Area {
        let pages = bytes.div_ceil(PAGE);
        let first = Region(self.next).first();
        let base = if backing == Backing::Heap { HEAP } else { MAPPINGS };
        let address = base + (u64::from(self.next - self.first) * u64::from(SLOTS));
        self.next += pages.div_ceil(u64::from(SLOTS)).max(1) as u32;
        self.next = self.next.next_multiple_of(self.align);
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

/// How much memory a program uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Pages touched at once, at most.
    pub pages: u64,
    /// Superpages that would back them.
    pub superpages: u64,
    /// Regions that it numbers.
    pub regions: u64,
}

impl Extent {
    /// Of a program that touches all of these areas.
    pub fn new(areas: &[Area]) -> Self {
        let regions = areas.iter().map(Area::regions).sum();
        let pages = areas.iter().map(|area| u64::from(area.pages)).sum();
        Self { pages, superpages: regions, regions }
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
        self.map_part(0, self.pages)
    }

    /// Maps `count` of its pages from number `from` on, as a mapping of its own.
    pub fn map_part(&self, from: u32, count: u32) -> Event {
        let address = self.address + u64::from(from);
        Event::Map { pages: self.part(from, count), address, backing: self.backing }
    }

    /// Makes what is mapped of it, `from` pages, `count` pages longer.
    pub fn grow(&self, from: u32, count: u32) -> Event {
        match from {
            0 => self.map_part(0, count),
            _ => Event::Grow { pages: self.part(from, count) },
        }
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
