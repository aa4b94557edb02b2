//! `Coarse`: converts a workload's stream of 4 KiB pages for a machine with larger base pages, of the processor or of
//! the kernel.
//!
//! A machine page combines consecutive pages of the stream. Areas begin at region boundaries, so no machine page
//! belongs to two areas. The end of a range is rounded up to a whole machine page.

use trace::{Access, Block, Event, Page, Pages, Source};

/// Bytes of a workload's page.
pub const STREAM_PAGE: u64 = 4096;

/// A stream converted to pages of 2^`shift` original pages; ranges are rounded up to multiples of `together` pages.
#[derive(Debug)]
pub struct Coarse<S> {
    stream: S,
    shift: u32,
    together: u32,
    is_forked: bool,
}

/// Why a stream cannot use larger pages.
#[derive(Debug, thiserror::Error)]
pub enum CoarseError {
    /// A page would belong to two processes.
    #[error(
        "workloads that fork run on machines with base pages of 4 KiB only (superpage lab machines)"
    )]
    Forks,
    /// An error of the stream itself.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
}

impl<S: Source> Coarse<S> {
    /// Wraps a stream. `base_page` is in bytes, a power of two of at least 4 KiB; the kernel's page is `together` base
    /// pages.
    pub fn new(stream: S, base_page: u64, together: u32) -> Self {
        Self { stream, shift: shift(base_page), together, is_forked: false }
    }

    fn pages(&self, pages: Pages) -> Pages {
        let up = |page: Page| page.0.div_ceil(1 << self.shift).next_multiple_of(self.together);
        let first = up(pages.first);
        Pages { first: Page(first), count: up(pages.end()) - first }
    }

    /// Converts an event; `None` if it covers no whole page.
    fn event(&mut self, event: Event) -> Option<Event> {
        let event = match event {
            Event::Map { pages, address, backing } => {
                Event::Map { pages: self.pages(pages), address: address >> self.shift, backing }
            }
            Event::Grow { pages } => Event::Grow { pages: self.pages(pages) },
            Event::Unmap(pages) => Event::Unmap(self.pages(pages)),
            Event::Advise(pages, advice) => Event::Advise(self.pages(pages), advice),
            Event::Protect(pages, read_only) => Event::Protect(self.pages(pages), read_only),
            Event::Fork { .. } => {
                self.is_forked = true;
                return None;
            }
            other => other,
        };
        event.pages().is_none_or(|pages| pages.count > 0).then_some(event)
    }
}

/// Returns log2 of the number of 4 KiB pages per base page.
pub fn shift(base_page: u64) -> u32 {
    (base_page / STREAM_PAGE).max(1).ilog2()
}

impl<S: Source> Source for Coarse<S> {
    type Error = CoarseError;

    fn next(&mut self, block: &mut Block) -> Result<bool, CoarseError> {
        let more = self.stream.next(block).map_err(|error| CoarseError::Source(error.into()))?;
        if self.shift == 0 && self.together == 1 {
            return Ok(more);
        }
        for access in &mut block.accesses {
            *access = Access(access.page().0 >> self.shift | access.0 & Access::WRITE);
        }
        let events = std::mem::take(&mut block.events).into_iter();
        block.events = events.filter_map(|(at, event)| Some((at, self.event(event)?))).collect();
        if self.is_forked { Err(CoarseError::Forks) } else { Ok(more) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::Backing;

    /// A source that returns one block.
    struct Once(Option<Block>);

    impl Source for Once {
        type Error = std::convert::Infallible;
        fn next(&mut self, block: &mut Block) -> Result<bool, Self::Error> {
            *block = self.0.take().unwrap_or_default();
            Ok(!block.events.is_empty())
        }
    }

    fn pages(first: u32, count: u32) -> Pages {
        Pages { first: Page(first), count }
    }

    #[test]
    fn four_pages_of_4k_are_one_of_16k() {
        let mut block = Block::default();
        let map = Event::Map { pages: pages(512, 6), address: 1024, backing: Backing::Heap };
        for event in
            [map, Event::Grow { pages: pages(518, 1) }, Event::Grow { pages: pages(519, 3) }]
        {
            block.event(event);
        }
        block.accesses.push(Access::write(Page(517)));
        block.counts.push(3);
        let mut coarse = Coarse::new(Once(Some(block)), 16384, 1);
        let mut block = Block::default();
        assert!(coarse.next(&mut block).unwrap());
        let map = Event::Map { pages: pages(128, 2), address: 256, backing: Backing::Heap };
        // The first growth ends within a page that is mapped already.
        assert_eq!(block.events, [(0, map), (0, Event::Grow { pages: pages(130, 1) })]);
        assert_eq!(block.accesses, [Access::write(Page(129))]);
        assert_eq!(block.counts, [3]);
    }

    #[test]
    fn sixteen_pages_are_one_of_the_kernels() {
        let mut block = Block::default();
        for (first, count) in [(512, 17), (529, 3), (529, 20)] {
            block.event(Event::Grow { pages: pages(first, count) });
        }
        block.accesses.push(Access::write(Page(517)));
        let mut coarse = Coarse::new(Once(Some(block)), 4096, 16);
        let mut block = Block::default();
        assert!(coarse.next(&mut block).unwrap());
        let grown = [pages(512, 32), pages(544, 16)].map(|pages| (0, Event::Grow { pages }));
        assert_eq!(block.events, grown);
        assert_eq!(block.accesses, [Access::write(Page(517))]);
    }

    #[test]
    fn what_forks_is_refused() {
        let mut block = Block::default();
        block.event(Event::Fork { child: trace::Process(2), offset: 512 });
        let error =
            Coarse::new(Once(Some(block)), 65536, 1).next(&mut Block::default()).unwrap_err();
        assert!(error.to_string().contains("4 KiB only"), "{error}");
    }
}
