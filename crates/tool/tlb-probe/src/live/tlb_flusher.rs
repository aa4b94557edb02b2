//! `TlbFlusher`: flushes the TLB before a chase, so that earlier contents do not affect it.
//!
//! Some second levels (Zen 5) protect old entries from new ones. They keep entries of earlier chases, and of the
//! kernel's population of the pages, for hundreds of laps: with 4,096 entries, accesses over 1,541 pages took either 21
//! or 27 cycles. Reads of the flusher's own pages evict the kernel's entries; then MADV_DONTNEED on a large range makes
//! the kernel flush all entries of this process. See docs/decisions/tlb.md#6.

use std::hint::black_box;

use sys::SysError;
use sys::mem::{Advice, Backing, Mapping};
use units::PageSize;

use super::arena::no_superpages;

/// Number of pages to read: twice the entries of the largest known TLB (4096, Zen 5).
const FLUSH_PAGES: u64 = 1 << 13;
/// Number of passes. Without a pass a third of 1,440 chases were slow, after one pass 11, after two passes one.
const PASSES: u32 = 2;
/// Number of pages of the invalidated range. Kernels flush at most 33 (x86-64) or 512 (Arm) pages one by one, so they
/// flush everything. But Arm cores with range instructions flush only the range, and keep the flusher's entries.
const INVALIDATED_PAGES: u64 = 1 << 10;

#[derive(Debug)]
pub(super) struct TlbFlusher {
    /// Memory that is never written, so every page maps the zero page and takes no memory.
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
