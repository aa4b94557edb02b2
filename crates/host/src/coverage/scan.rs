//! The same question asked of PAGEMAP_SCAN, for one range: cheaper, and free of smaps' rounding to
//! whole mappings. Real machine only (a system call has no fixture).

use serde::{Deserialize, Serialize};
use sys::SysError;
use sys::pagemap::{Categories, Pagemap};
use units::ByteSize;

/// What a range of a process's memory is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanned {
    /// Present, of every size; the shared zero page is not counted, as in RSS.
    pub present: ByteSize,
    /// Of these, mapped by an entry above the lowest level (THP or hugetlb).
    pub huge: ByteSize,
    /// Mapped to the shared zero page, base or huge.
    pub zero: ByteSize,
    /// In swap.
    pub swapped: ByteSize,
}

/// One window's regions stay below 3 MB even if every other base page is absent.
const WINDOW: u64 = 1 << 30;

/// Scans `start..end` (page-aligned). Each GB costs 13 ms in base pages on a Zen 4 guest (4 ms on a
/// Cascade Lake guest), 0.02 ms in superpages.
pub fn scan(pagemap: &Pagemap, start: u64, end: u64) -> Result<Scanned, SysError> {
    let mut sum = Scanned::default();
    let mut regions = Vec::new();
    let mut from = start;
    while from < end {
        let to = end.min(from.saturating_add(WINDOW));
        regions.clear();
        pagemap.scan(from, to, Categories::PRESENT | Categories::SWAPPED, &mut regions)?;
        for region in &regions {
            let slot = if region.categories.contains(Categories::PFNZERO) {
                &mut sum.zero
            } else if region.categories.contains(Categories::PRESENT) {
                &mut sum.present
            } else {
                &mut sum.swapped
            };
            let bytes = region.end.saturating_sub(region.start);
            slot.0 = slot.0.saturating_add(bytes);
            let whole = Categories::PRESENT | Categories::HUGE;
            if region.categories.contains(whole) && !region.categories.contains(Categories::PFNZERO)
            {
                sum.huge.0 = sum.huge.0.saturating_add(bytes);
            }
        }
        from = to;
    }
    Ok(sum)
}
