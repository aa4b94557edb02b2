//! How much free memory is contiguous enough for superpages, from `/proc/buddyinfo` alone.

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use crate::{ReadError, Root, ZoneFree};

/// Free memory and how much of it could be superpages at once, without compaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeContiguity {
    /// The superpage size asked about.
    pub superpage: PageSize,
    /// Free bytes in the buddy allocator, of every block size.
    pub free: ByteSize,
    /// Bytes free in blocks of at least a superpage. `None`: the superpage is larger than the
    /// buddy allocator's largest block, so its lists cannot tell.
    pub in_superpages: Option<ByteSize>,
    /// How many superpages those blocks hold.
    pub superpages: Option<u64>,
}

impl FreeContiguity {
    /// Reads `/proc/buddyinfo`.
    pub fn read(root: &Root, superpage: PageSize) -> Result<Self, ReadError> {
        Ok(Self::from_zones(&ZoneFree::read(root)?, root.page_size(), superpage))
    }

    /// The same of what programs can have: the zone for old devices (DMA) is kept for these.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn for_programs(root: &Root, superpage: PageSize) -> Result<Self, ReadError> {
        let mut zones = ZoneFree::read(root)?;
        zones.retain(|zone| zone.zone != "DMA");
        Ok(Self::from_zones(&zones, root.page_size(), superpage))
    }

    /// The same from zones at hand; `base` is the base page size.
    pub fn from_zones(zones: &[ZoneFree], base: PageSize, superpage: PageSize) -> Self {
        let order = superpage.bytes().ilog2().saturating_sub(base.bytes().ilog2()) as usize;
        let mut free_pages = 0u64;
        let mut superpages = None::<u64>;
        for (index, count) in zones.iter().flat_map(|zone| zone.blocks.iter().enumerate()) {
            free_pages = free_pages.saturating_add(count.saturating_mul(power(index)));
            if let Some(above) = index.checked_sub(order) {
                let held = count.saturating_mul(power(above));
                superpages = Some(superpages.unwrap_or(0).saturating_add(held));
            }
        }
        let bytes = |pages: u64, size: PageSize| ByteSize(pages.saturating_mul(size.bytes()));
        Self {
            superpage,
            free: bytes(free_pages, base),
            in_superpages: superpages.map(|n| bytes(n, superpage)),
            superpages,
        }
    }

    /// The share of free memory that could be superpages at once; `None` when nothing is free.
    pub fn ratio(&self) -> Option<f64> {
        let usable = self.in_superpages?.bytes();
        (self.free.bytes() > 0).then(|| usable as f64 / self.free.bytes() as f64)
    }
}

fn power(order: usize) -> u64 {
    u32::try_from(order).ok().and_then(|order| 1u64.checked_shl(order)).unwrap_or(u64::MAX)
}
