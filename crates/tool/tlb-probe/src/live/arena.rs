//! `Arena`: an address range for pages of one size, populated on demand; the size of each populated
//! page is read back.
//!
//! Life cycle: an arena starts empty. A chase populates its pages, and they stay. If there are too many pages, all are
//! released, and the next chase starts with an empty range. See docs/decisions/tlb.md#1.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use sys::SysError;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use units::PageSize;
use workload::rng::{GOLDEN, mix};

use crate::probe::{Offer, Place, ProbeError};

/// How pages are allocated.
#[derive(Debug)]
pub(super) enum Means {
    /// Base pages, by first touch.
    Base,
    /// Base pages of a file whose number of pages is a power of two. Adjacent pages of the range get pages scattered
    /// over the whole file: the cost of a walk depends on the location of frames, and long-running programs have
    /// scattered frames.
    Scattered(Source),
    /// Pages of sizes between base page and superpage. Each page is advised alone before its first touch, so that each
    /// is a VMA of exactly this size.
    Advised,
    /// Superpages of a file that is mapped repeatedly over the range. The TLB identifies pages by virtual address, so a
    /// few physical pages can fill thousands of entries.
    File(Source),
}

/// A file that provides frames.
#[derive(Debug)]
pub(super) struct Source {
    pub file: OwnedFd,
    pub pages: u64,
    /// Makes another file of this kind if there is enough memory.
    pub again: Option<fn(PageSize, u64) -> Option<OwnedFd>>,
}

#[derive(Debug)]
pub(super) struct Arena {
    pub offer: Offer,
    memory: Mapping,
    means: Means,
    populated: HashSet<u64>,
    /// Number of [`Means::Scattered`] pages used so far; not reset when pages are released, so that later pages get
    /// other frames.
    used: u64,
    /// For reading back page sizes; `None` if the kernel has no PAGEMAP_SCAN (Linux 6.7).
    pagemap: Option<Pagemap>,
    /// Files used earlier, kept so that new files get other memory.
    former: Vec<OwnedFd>,
}

/// Maximum number of pages: each may need a VMA and a gap before it, and a process may have 65530 VMAs (default of
/// `vm.max_map_count`).
const MAX_PAGES: usize = 30_000;

/// Maximum number of former files that are kept.
const KEPT_FILES: usize = 3;

impl Arena {
    /// Makes an empty arena over an address range that is as large as possible, up to `span` pages.
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

    /// Populates the pages of all places. Populates new pages in random order, so that adjacent base pages have distant
    /// frames, as on any machine after some uptime. Then CPUs cannot coalesce adjacent pages into one entry (AMD since
    /// Zen, Arm's contiguous bit).
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

    /// Switches to other frames and page tables, if there is enough memory.
    pub fn renew(&mut self) -> Result<(), ProbeError> {
        self.give_back()?;
        let (Means::Scattered(source) | Means::File(source)) = &mut self.means else {
            return Ok(());
        };
        let made = source.again.and_then(|again| again(self.offer.page, source.pages));
        if let Some(new) = made {
            if self.former.len() == KEPT_FILES {
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
                // Remap in place: another mapping could take an unmapped range, and the address space cannot hold a
                // second range of this size.
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
                // Multiplication by an odd number is a permutation (Knuth's multiplicative hash).
                let from = self.used.wrapping_mul(GOLDEN) % pages * size.bytes();
                self.used += 1;
                self.memory.put_file(start, bytes, file.as_fd(), from)?;
            }
            Means::Advised => self.memory.advise_range(start..start + bytes, Advice::HugePage)?,
            Means::File(Source { file, pages, .. }) => {
                let from = page % pages * size.bytes();
                self.memory.put_file(start, bytes, file.as_fd(), from)?;
                // Ignore errors: hugetlb pages refuse advice, and need none.
                let _ = self.memory.advise_range(start..start + bytes, Advice::HugePage);
            }
        }
        self.memory.bytes_mut()[start] = 1;
        match self.means {
            Means::Base => self.check(start, bytes, false),
            // A mapping of one base page cannot hold a superpage.
            Means::Scattered(..) => Ok(()),
            Means::File(..) => self.check(start, bytes, true),
            // No call reports these sizes; `means::advised` has tested them with the kernel's
            // counter.
            Means::Advised => Ok(()),
        }
    }

    /// Checks that the page has the intended size.
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

/// Minimum alignment of the range, so that page numbers determine the low address bits.
const ALIGNMENT: u64 = 1 << 30;

/// Maps an address range of `span` pages. If that fails, halves `span` until it succeeds.
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

/// Advises the whole range before pages are populated.
fn advise(memory: &mut Mapping, means: &Means) {
    if matches!(means, Means::Base | Means::Advised) {
        no_superpages(memory);
    }
}

/// Disables THP for the range, whatever the system's settings.
pub(super) fn no_superpages(memory: &mut Mapping) {
    // Ignore `EINVAL`: a kernel without THP uses base pages anyway.
    let _ = memory.advise(Advice::NoHugePage);
}
