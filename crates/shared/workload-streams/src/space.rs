//! Allocates page numbers and addresses. Every area of a program starts at a new region.
//!
//! Areas start at superpage boundaries, as large mappings do on Linux since 6.7 and in Quicksilver's artifact. Programs
//! for which the boundaries matter use an offset.

use trace::{Backing, Event, Page, Pages, Region, SLOTS};

use crate::Setup;

/// Bytes in a base page of a stream.
pub(crate) const PAGE: u64 = 4096;
/// Number of page numbers in a stream (`Access::WRITE` takes the highest bit).
pub(crate) const MAX_PAGES: u64 = 1 << 31;
/// Virtual page number of the first mapping: high addresses, as on x86-64.
const MAPPINGS: u64 = 0x7f00_0000_0000 / PAGE;
const HEAP: u64 = 0x5580_0000_0000 / PAGE;

/// Allocator of regions.
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

    /// Allocates an area of `bytes` with this backing.
    pub fn area(&mut self, bytes: u64, backing: Backing) -> Area {
        let pages = bytes.div_ceil(PAGE);
        let first = Region(self.next).first();
        let base = if backing == Backing::Heap { HEAP } else { MAPPINGS };
        let address = base + (u64::from(self.next - self.first) * u64::from(SLOTS));
        self.next += pages.div_ceil(u64::from(SLOTS)).max(1) as u32;
        self.next = self.next.next_multiple_of(self.align);
        Area { first: first.0, pages: pages as u32, address, backing }
    }

    /// The first unallocated region.
    pub fn next_region(&self) -> u32 {
        self.next
    }

    /// Allocates an area of anonymous memory.
    pub fn anonymous(&mut self, bytes: u64) -> Area {
        self.area(bytes, Backing::Anonymous)
    }
}

/// Memory use of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Maximum number of pages touched at the same time.
    pub pages: u64,
    /// Number of superpages that would back these pages.
    pub superpages: u64,
    /// Number of regions used.
    pub regions: u64,
}

impl Extent {
    /// The extent of a program that touches all of these areas.
    pub fn new(areas: &[Area]) -> Self {
        let regions = areas.iter().map(Area::regions).sum();
        let pages = areas.iter().map(|area| u64::from(area.pages)).sum();
        Self { pages, superpages: regions, regions }
    }
}

/// A mapping, or the address range reserved for one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    /// Number of its first page.
    pub first: u32,
    /// Number of pages.
    pub pages: u32,
    /// Virtual page number of its first page.
    pub address: u64,
    /// Backing.
    pub backing: Backing,
}

impl Area {
    /// Maps the whole area.
    pub fn map(&self) -> Event {
        self.map_part(0, self.pages)
    }

    /// Maps `count` pages from index `from` on as a separate mapping.
    pub fn map_part(&self, from: u32, count: u32) -> Event {
        let address = self.address + u64::from(from);
        Event::Map { pages: self.part(from, count), address, backing: self.backing }
    }

    /// Extends the mapped part of the area from `from` pages by `count` pages.
    pub fn grow(&self, from: u32, count: u32) -> Event {
        match from {
            0 => self.map_part(0, count),
            _ => Event::Grow { pages: self.part(from, count) },
        }
    }

    /// Unmaps the whole area.
    pub fn unmap(&self) -> Event {
        Event::Unmap(self.part(0, self.pages))
    }

    /// Returns `count` pages from index `from` on.
    pub fn part(&self, from: u32, count: u32) -> Pages {
        debug_assert!(from + count <= self.pages);
        Pages { first: Page(self.first + from), count }
    }

    /// The page with index `number`.
    #[inline]
    pub fn page(&self, number: u64) -> Page {
        debug_assert!(number < u64::from(self.pages));
        Page(self.first + number as u32)
    }

    /// Number of regions.
    pub fn regions(&self) -> u64 {
        u64::from(self.pages).div_ceil(u64::from(SLOTS))
    }
}
