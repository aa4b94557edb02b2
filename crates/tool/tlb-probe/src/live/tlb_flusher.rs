//! `TlbFlusher`: flushes the TLB before a chase, so that earlier contents do not affect it.
//!
//! A second level that protects old entries from new ones (Zen 5) keeps entries of earlier chases, and of the kernel
//! that populated the chase's pages, for hundreds of laps: accesses over 1,541 pages took 21 cycles or 27, with 4,096
//! entries. Reads of the flusher's own pages evict the kernel's entries; then MADV_DONTNEED on a large range makes the
//! kernel flush all entries of this process. See docs/decisions/tlb.md#6.

use std::hint::black_box;

use sys::SysError;
use sys::mem::{Advice, Backing, Mapping};
use units::PageSize;

use super::arena::no_superpages;

/// Number of pages to read: twice the entries of the largest known TLB (4096, Zen 5).
const FLUSH_PAGES: u64 = 1 << 13;
/// Number of passes: after one pass 11 of 1,440 chases were still slow; after two, one (without any, a third).
const PASSES: u32 = 2;
/// Number of pages from the first to the last of an invalidated range; more than any kernel flushes one by one (33 on
/// x86-64, 512 on Arm), so it flushes everything. Arm cores with range instructions flush only the range, and keep the
/// flusher's entries.
const INVALIDATED_PAGES: u64 = 1 << 10;

#[derive(Debug)]
pub(super) struct TlbFlusher {
    /// Never written, so every page maps the zero page and takes no memory.
    read: Mapping,
    invalidated: Mapping,
    page: PageSize,
    line: u64,
}

impl TlbFlusher {
    pub fn new(line: u64) -> Result<Self, SysError> {
        let page = sys::param::page_size();
        let pages = |count: u64| {
            let mut pages = Mapping::anonymous((count * page.bytes()) as usize, Backing::Pages)?;
            no_superpages(&mut pages);
            Ok::<_, SysError>(pages)
        };
        Ok(Self { read: pages(FLUSH_PAGES)?, invalidated: pages(INVALIDATED_PAGES)?, page, line })
    }

    pub fn flush(&mut self) -> Result<(), SysError> {
        let lines = self.page.bytes() / self.line;
        for _ in 0..PASSES {
            for page in 0..FLUSH_PAGES {
                let at = page * self.page.bytes() + page % lines * self.line;
                black_box(self.read.bytes()[at as usize]);
            }
        }
        let last = self.invalidated.len() - 1;
        let bytes = self.invalidated.bytes_mut();
        (bytes[0], bytes[last]) = (1, 1);
        self.invalidated.advise(Advice::DontNeed)
    }
}
