//! Places of a chase: sets of cache lines that differ in their translations but not in their data-cache use, or vice
//! versa.

use units::PageSize;
use workload::rng::GOLDEN;

use crate::probe::Place;

/// Geometry of a page.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of cache lines in a base page.
    pub lines: u64,
    /// Number of base pages in a page.
    pub parts: u64,
}

impl Shape {
    /// Geometry of pages of `page`, with base pages of `base` and cache lines of `line` bytes.
    pub fn new(page: PageSize, base: PageSize, line: u64) -> Self {
        Self { lines: base.bytes() / line, parts: page.bytes() / base.bytes() }
    }

    /// Number of cache lines in a page.
    pub fn page_lines(&self) -> u64 {
        self.lines * self.parts
    }

    /// Chooses a line of page `page` for place number `index` of a chase. The line varies with the index to use all
    /// sets of the data caches evenly. So does the base page within a larger page: if a hypervisor backs a large page
    /// with small pages, the TLB holds small pages, and always choosing the first small page would use only few sets.
    pub fn place(&self, page: u64, index: u64) -> Place {
        let line = index % self.lines;
        let part = (index + index / self.lines) % self.parts;
        Place { page, line: part * self.lines + line }
    }

    /// Returns one line in each of `count` adjacent pages.
    pub fn spread(&self, count: u64) -> Vec<Place> {
        (0..count).map(|index| self.place(index, index)).collect()
    }

    /// Returns `count` adjacent lines in as few pages as possible.
    pub fn packed(&self, count: u64) -> Vec<Place> {
        let lines = self.page_lines();
        (0..count).map(|index| Place { page: index / lines, line: index % lines }).collect()
    }

    /// Returns `count` lines distributed over `pages` pages, with at most as many lines per page as a base page has.
    pub fn shared(&self, count: u64, pages: u64) -> Vec<Place> {
        // The factor 11 is odd, so the lines of a page differ.
        let place = |index: u64| self.place(index % pages, index % pages + 11 * (index / pages));
        (0..count).map(place).collect()
    }

    /// Returns one line in each of `count` pages at distance `stride`.
    pub fn strided(&self, count: u64, stride: u64) -> Vec<Place> {
        (0..count).map(|index| self.place(index * stride, index)).collect()
    }

    /// Returns one line in each of `count` pages, distributed over `regions` regions of `size` pages (a power of two).
    /// Each page keeps the low bits of its number, and thus its set in most TLBs; only its page tables differ. A
    /// Fibonacci hash (Knuth) of the index selects the region. If the region bits equalled the index bits, a TLB that
    /// indexes by the exclusive or of both would put all pages into few sets.
    pub fn scattered(&self, count: u64, regions: u64, size: u64) -> Vec<Place> {
        let shift = 64 - regions.max(2).ilog2();
        let region = |index: u64| index.wrapping_mul(GOLDEN) >> shift;
        (0..count).map(|index| self.place(index % size + region(index) * size, index)).collect()
    }

    /// Returns `count` lines of page `page`, one in each of its base pages.
    pub fn within(&self, page: u64, count: u64) -> Vec<Place> {
        let place = |part: u64| Place { page, line: part * self.lines + part % self.lines };
        (0..count.min(self.parts)).map(place).collect()
    }

    /// Returns `count` adjacent lines of page `page`.
    pub fn together(&self, page: u64, count: u64) -> Vec<Place> {
        (0..count.min(self.page_lines())).map(|line| Place { page, line }).collect()
    }
}
