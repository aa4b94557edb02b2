//! The pages that a stream has touched: a property of the program, independent of designs.
//!
//! All designs of a pass share one record. Resident pages that were never touched are bloat, and contain zeros. See
//! docs/decisions/lab.md#3.

use trace::{Access, Advice, Block, Event, Page, Pages, Region, SLOTS};

/// Maximum number of regions in a stream: 2 TiB of virtual memory, more than any machine's [`crate::memory::Frame`]s.
/// Each region costs about 20 bytes per design of a pass.
pub(crate) const MAX_REGIONS: u32 = 1 << 20;

/// The pages that were touched and not freed since.
#[derive(Debug, Default)]
pub struct Touched {
    regions: Vec<[u64; 8]>,
    /// One bit per region, set if all its pages are touched. Most accesses need only these bits, which stay in the
    /// cache.
    full: Vec<u64>,
    pages: u64,
    /// Number of touched pages before the last block.
    before: u64,
    /// Maximum number of touched pages within the last block.
    most: u64,
    /// Mapped pages of each process, until it exits: (process, pages), in order of mapping.
    mapped: Vec<(u32, Pages)>,
    running: u32,
    /// The region after the last mapped one.
    end: usize,
}

/// [`Touched::before`] and [`Touched::most`], if counted.
pub type Counts = Option<(u64, u64)>;

/// Touched pages, as a design's machine sees them.
#[derive(Debug, Clone, Copy, Default)]
pub struct TouchedView<'a> {
    /// Number of touched pages.
    pub counts: Counts,
    /// The touched pages at the end of the current block.
    pub pages: Option<&'a Touched>,
}

impl Touched {
    /// Follows the stream through a block.
    pub fn follow(&mut self, block: &Block) {
        (self.before, self.most) = (self.pages, self.pages);
        let mut from = 0;
        for (at, event) in &block.events {
            self.touch(&block.accesses[from..*at as usize]);
            from = *at as usize;
            self.event(event);
        }
        self.touch(&block.accesses[from..]);
    }

    /// Returns the view for a machine that executes the last followed block.
    pub fn view(&self) -> TouchedView<'_> {
        TouchedView { counts: Some((self.before(), self.most)), pages: Some(self) }
    }

    /// Returns a bitmap of the touched pages of a region.
    pub fn region(&self, region: Region) -> [u64; 8] {
        self.regions.get(region.index()).copied().unwrap_or_default()
    }

    /// Returns the number of touched pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the maximum number of touched pages during the last followed block. The number at its end can be lower:
    /// a program that ends has no touched pages.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns the number of touched pages before the last followed block.
    pub fn before(&self) -> u64 {
        self.before
    }

    fn touch(&mut self, accesses: &[Access]) {
        let mut last = u32::MAX;
        for access in accesses {
            let page = access.page();
            if page.0 == last {
                continue;
            }
            last = page.0;
            let at = page.region().0 as usize;
            if self.full.get(at / 64).is_some_and(|full| full >> (at % 64) & 1 != 0) {
                continue;
            }
            if at >= self.regions.len() {
                if at >= self.end {
                    // Unmapped: every design's machine reports the error.
                    continue;
                }
                self.regions.resize(at + 1, [0; 8]);
                self.full.resize(at / 64 + 1, 0);
            }
            let region = &mut self.regions[at];
            let word = &mut region[(page.slot() / 64) as usize];
            let bit = 1 << (page.slot() % 64);
            self.pages += u64::from(*word & bit == 0);
            *word |= bit;
            if *word == !0 && *region == [!0; 8] {
                self.full[at / 64] |= 1 << (at % 64);
            }
        }
        self.most = self.most.max(self.pages);
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Spawn(process) | Event::Run(process) => self.running = process.0,
            Event::Map { pages, .. } | Event::Grow { pages } => self.map(self.running, *pages),
            Event::Unmap(pages) | Event::Advise(pages, Advice::DontNeed | Advice::Free) => {
                self.forget(*pages);
            }
            Event::Fork { child, offset } => {
                let own: Vec<_> = self
                    .mapped
                    .iter()
                    .filter(|(process, _)| *process == self.running)
                    .copied()
                    .collect();
                for (_, pages) in own {
                    let first = Page(pages.first.0.saturating_add(*offset));
                    self.map(child.0, Pages { first, count: pages.count });
                }
            }
            Event::Exit(process) => {
                let mapped = std::mem::take(&mut self.mapped);
                for (owner, pages) in mapped {
                    if owner == process.0 {
                        self.forget(pages);
                    } else {
                        self.mapped.push((owner, pages));
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds pages of a process. Pages that no machine would map (in an ill-formed stream) are ignored.
    fn map(&mut self, process: u32, pages: Pages) {
        let end = u64::from(pages.first.0) + u64::from(pages.count);
        if end <= u64::from(MAX_REGIONS) * u64::from(SLOTS) {
            self.mapped.push((process, pages));
            self.end = self.end.max((end as u32).div_ceil(SLOTS) as usize);
        }
    }

    fn forget(&mut self, pages: Pages) {
        let (mut at, end) = (pages.first.0, pages.first.0.saturating_add(pages.count));
        while at < end && ((at / SLOTS) as usize) < self.regions.len() {
            let number = (at / SLOTS) as usize;
            self.full[number / 64] &= !(1 << (number % 64));
            let region = &mut self.regions[number];
            let stop = end.min((at / 64 + 1) * 64);
            let mask = (!0 >> (64 - (stop - at))) << (at % 64);
            let word = &mut region[(at % SLOTS / 64) as usize];
            self.pages -= u64::from((*word & mask).count_ones());
            *word &= !mask;
            at = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Backing, Process};

    #[test]
    fn counts_what_is_touched_and_not_given_back() {
        let pages = |first, count| Pages { first: Page(first), count };
        let mut block = Block::default();
        block.event(Event::Spawn(Process(1)));
        block.event(Event::Map { pages: pages(0, 2000), address: 0, backing: Backing::Anonymous });
        block.accesses.extend((0..1500).map(|page| Access::write(Page(page))));
        block.event(Event::Unmap(pages(60, 10)));
        block.event(Event::Advise(pages(511, 600), Advice::DontNeed));
        block.accesses.push(Access::read(Page(61)));
        let mut touched = Touched::default();
        touched.follow(&block);
        assert_eq!(touched.pages(), 1500 - 10 - 600 + 1);
        assert_eq!(touched.most(), 1500);
        assert_eq!(touched.region(Region(0))[0], !0 >> 4 | 1 << 61);
        let mut block = Block::default();
        block.event(Event::Exit(Process(1)));
        touched.follow(&block);
        assert_eq!((touched.pages(), touched.most()), (0, 1500 - 10 - 600 + 1));
    }
}
