//! Where a chase goes: sets of places that differ in their translations but not in their data, or
//! the other way round. Pure.

use units::PageSize;
use workload::rng::GOLDEN;

use crate::probe::Place;

/// The shape of a page: what placing needs to know of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Cache lines in a base page.
    pub lines: u64,
    /// Base pages in a page.
    pub parts: u64,
}

impl Shape {
    /// Of pages of `page` over base pages of `base`.
    pub fn new(page: PageSize, base: PageSize, line: u64) -> Self {
        Self { lines: base.bytes() / line, parts: page.bytes() / base.bytes() }
    }

    /// Lines in a page.
    pub fn page_lines(&self) -> u64 {
        self.lines * self.parts
    }

    /// A line of page `page` for the chase's `index`th place. Lines change with the index so that the
    /// data caches' sets are used evenly, and so do the base pages within a larger page: where a
    /// hypervisor's small pages stand behind a large one, it is they that the TLB holds, and one
    /// line at the start of each large page would put all of them into few sets.
    pub fn place(&self, page: u64, index: u64) -> Place {
        let line = index % self.lines;
        let part = (index + index / self.lines) % self.parts;
        Place { page, line: part * self.lines + line }
    }

    /// One line in each of `count` neighbouring pages.
    pub fn spread(&self, count: u64) -> Vec<Place> {
        (0..count).map(|index| self.place(index, index)).collect()
    }

    /// As many lines in as few pages as hold them.
    pub fn packed(&self, count: u64) -> Vec<Place> {
        let lines = self.page_lines();
        (0..count).map(|index| Place { page: index / lines, line: index % lines }).collect()
    }

    /// `count` lines dealt to `pages` pages, up to as many to each as a base page has lines.
    pub fn shared(&self, count: u64, pages: u64) -> Vec<Place> {
        // Eleven is odd, so a page's lines differ.
        let place = |index: u64| self.place(index % pages, index % pages + 11 * (index / pages));
        (0..count).map(place).collect()
    }

    /// One line in each of `count` pages that lie `stride` pages apart.
    pub fn strided(&self, count: u64, stride: u64) -> Vec<Place> {
        (0..count).map(|index| self.place(index * stride, index)).collect()
    }

    /// One line in each of `count` pages, dealt to `regions` regions of `size` pages each, a power of two. Each page
    /// keeps its number's low bits, and with them its set in most TLBs: only its page tables move. Regions come in an
    /// order in which no bits follow those of the index (Fibonacci hashing, Knuth): an exclusive or of both would put
    /// all pages into few sets.
    pub fn scattered(&self, count: u64, regions: u64, size: u64) -> Vec<Place> {
        let shift = 64 - regions.max(2).ilog2();
        let region = |index: u64| index.wrapping_mul(GOLDEN) >> shift;
        (0..count).map(|index| self.place(index % size + region(index) * size, index)).collect()
    }

    /// `count` lines of the first page, one in each of its base pages.
    pub fn within(&self, page: u64, count: u64) -> Vec<Place> {
        let place = |part: u64| Place { page, line: part * self.lines + part % self.lines };
        (0..count.min(self.parts)).map(place).collect()
    }

    /// `count` neighbouring lines of one page.
    pub fn together(&self, page: u64, count: u64) -> Vec<Place> {
        (0..count.min(self.page_lines())).map(|line| Place { page, line }).collect()
    }
}
