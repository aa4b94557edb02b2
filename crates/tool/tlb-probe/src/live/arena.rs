//! `Arena`: an address range for pages of one size, populated as chases ask for them, each page read back.
//!
//! Life cycle: made empty; a chase's pages are populated when they are first met and stay; when there are
//! too many, all are given back and the next chase starts anew.
//! See docs/decisions/tlb.md#1.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use sys::SysError;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use units::PageSize;
use workload::rng::{GOLDEN, mix};

use crate::probe::{Offer, Place, ProbeError};

/// How pages are got.
#[derive(Debug)]
pub(super) enum Means {
    /// Base pages, by the first touch.
    Base,
    /// Base pages of a file that has so many, a power of two. They are used one after the other, in an order that
    /// scatters neighbours over all of it: what a walk costs depends on where frames lie, and scattered is how programs
    /// that run long have them.
    Scattered(Source),
    /// Pages between the base and the superpage, by advice for each page alone before it is touched: an area
    /// that large and no larger.
    Advised,
    /// Superpages of a file that has so many of them, which show again and again over the range. The TLB
    /// knows pages by their addresses, so a few pages of memory do for thousands of entries.
    File(Source),
}

/// Frames: a file of so many pages.
#[derive(Debug)]
pub(super) struct Source {
    pub file: OwnedFd,
    pub pages: u64,
    /// Makes another, where there is memory for it.
    pub again: Option<fn(PageSize, u64) -> Option<OwnedFd>>,
}

#[derive(Debug)]
pub(super) struct Arena {
    pub offer: Offer,
    memory: Mapping,
    means: Means,
    populated: HashSet<u64>,
    /// Pages of [`Means::Scattered`] that were used, which goes on when all are given back: other frames are next.
    used: u64,
    /// To read back by; `None` where the kernel has no PAGEMAP_SCAN (Linux 6.7).
    pagemap: Option<Pagemap>,
    /// What was used before, kept so that what is got next is other memory.
    former: Vec<OwnedFd>,
}

/// Pages at most: each may be an area of its own with another before it, and a process has 65530
/// (`vm.max_map_count`, by default).
const MAX_PAGES: usize = 30_000;

/// Files of frames that were used before and are kept.
const FORMER: usize = 3;

impl Arena {
    /// An empty one, over as large an address range as there is, up to `span` pages.
    pub fn new(
        page: PageSize,
        span: u64,
        pages: u64,
        words: &str,
        means: Means,
    ) -> Result<Self, SysError> {
        let memory = range(page, span, &means)?;
        let span = memory.len() as u64 / page.bytes();
        let offer = Offer { page, means: words.to_string(), pages: pages.min(span), span };
        let pagemap = Pagemap::open(sys::param::own_pid()).ok();
        let (populated, former) = (HashSet::new(), Vec::new());
        Ok(Self { offer, memory, means, populated, used: 0, pagemap, former })
    }

    pub fn memory(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Has the pages of all places there. New ones come in a random order: neighbouring base pages then lie
    /// apart in memory, as they do after a while on any machine, and processors that keep neighbours in one
    /// entry (AMD since Zen, Arm's contiguous bit) find none.
    pub fn populate(&mut self, places: &[Place]) -> Result<(), ProbeError> {
        let mut new: Vec<u64> = places.iter().map(|place| place.page).collect();
        new.retain(|page| !self.populated.contains(page));
        if new.is_empty() {
            return Ok(());
        }
        new.sort_unstable();
        new.dedup();
        if self.populated.len() + new.len() > MAX_PAGES.min(2 * self.offer.pages as usize) {
            self.give_back()?;
            return self.populate_all(places);
        }
        new.sort_unstable_by_key(|page| mix(*page));
        for page in new {
            self.populate_one(page)?;
            self.populated.insert(page);
        }
        Ok(())
    }

    fn populate_all(&mut self, places: &[Place]) -> Result<(), ProbeError> {
        let distinct: HashSet<u64> = places.iter().map(|place| place.page).collect();
        if distinct.len() > MAX_PAGES {
            let why = format!("{} pages are too many for one chase", distinct.len());
            return Err(ProbeError::NotGot { page: self.offer.page, why });
        }
        self.populate(places)
    }

    /// Other frames and other page tables from now on, as far as there is memory for it.
    pub fn renew(&mut self) -> Result<(), ProbeError> {
        self.give_back()?;
        let (Means::Scattered(source) | Means::File(source)) = &mut self.means else {
            return Ok(());
        };
        let made = source.again.and_then(|again| again(self.offer.page, source.pages));
        if let Some(new) = made {
            if self.former.len() == FORMER {
                self.former.remove(0);
            }
            self.former.push(std::mem::replace(&mut source.file, new));
        }
        Ok(())
    }

    fn give_back(&mut self) -> Result<(), SysError> {
        self.populated.clear();
        match self.means {
            Means::Base => self.memory.advise(Advice::DontNeed),
            Means::Advised | Means::File(..) | Means::Scattered(..) => {
                // In its place: what is unmapped others may take, and two do not fit into the addresses there are.
                self.memory.renew()?;
                advise(&mut self.memory, &self.means);
                Ok(())
            }
        }
    }

    fn populate_one(&mut self, page: u64) -> Result<(), ProbeError> {
        let size = self.offer.page;
        let bytes = size.bytes() as usize;
        let start = page as usize * bytes;
        match &self.means {
            Means::Base => {}
            Means::Scattered(Source { file, pages, .. }) => {
                // Times an odd number: a permutation (Knuth's multiplicative hash).
                let from = self.used.wrapping_mul(GOLDEN) % pages * size.bytes();
                self.used += 1;
                self.memory.put_file(start, bytes, file.as_fd(), from)?;
            }
            Means::Advised => self.memory.advise_range(start..start + bytes, Advice::HugePage)?,
            Means::File(Source { file, pages, .. }) => {
                let from = page % pages * size.bytes();
                self.memory.put_file(start, bytes, file.as_fd(), from)?;
                // Pages of the pool need no advice, and refuse it.
                let _ = self.memory.advise_range(start..start + bytes, Advice::HugePage);
            }
        }
        self.memory.bytes_mut()[start] = 1;
        match self.means {
            Means::Base => self.check(start, bytes, false),
            // A mapping of one base page holds no superpage.
            Means::Scattered(..) => Ok(()),
            Means::File(..) => self.check(start, bytes, true),
            // No call tells these sizes; `means::offer_advised` tried one and counted.
            Means::Advised => Ok(()),
        }
    }

    /// Reads back whether the page is what it should be.
    fn check(&mut self, start: usize, bytes: usize, huge: bool) -> Result<(), ProbeError> {
        let Some(pagemap) = &self.pagemap else { return Ok(()) };
        let address = self.memory.address() + start as u64;
        let Ok(found) = host::coverage::scan(pagemap, address, address + bytes as u64) else {
            self.pagemap = None;
            self.offer.means += " (not read back: this kernel has no PAGEMAP_SCAN)";
            return Ok(());
        };
        let whole = found.huge.bytes() == bytes as u64;
        if whole == huge && found.present.bytes() == bytes as u64 {
            return Ok(());
        }
        let got = if whole { "a superpage" } else { "no superpage" };
        let why = format!("got {got} at {address:#x}: memory is short or fragmented; try again");
        Err(ProbeError::NotGot { page: self.offer.page, why })
    }
}

/// Addresses are aligned to this at least, so that pages' numbers tell their low bits.
const ALIGNMENT: u64 = 1 << 30;

/// The address range: as much of what was asked for as there is, halving.
fn range(page: PageSize, span: u64, means: &Means) -> Result<Mapping, SysError> {
    let alignment = PageSize::new(page.bytes().max(ALIGNMENT)).expect("a power of two");
    let mut span = span;
    loop {
        let len = usize::try_from(span.saturating_mul(page.bytes())).unwrap_or(usize::MAX);
        match Mapping::sparse(len, alignment) {
            Ok(mut memory) => {
                advise(&mut memory, means);
                return Ok(memory);
            }
            Err(error) if span < 1 << 10 => return Err(error),
            Err(_) => span /= 2,
        }
    }
}

/// What holds for all of a range before pages come.
fn advise(memory: &mut Mapping, means: &Means) {
    if matches!(means, Means::Base | Means::Advised) {
        no_superpages(memory);
    }
}

/// No superpages, whatever the machine's settings are.
pub(super) fn no_superpages(memory: &mut Mapping) {
    // `EINVAL`: a kernel without THP, which has nothing but base pages.
    let _ = memory.advise(Advice::NoHugePage);
}
