//! What each part of memory is used for.

use serde::{Deserialize, Serialize};

use super::owner::Owner;
use super::zone::{Zone, ZoneKind};
use super::{Frame, Memory, PAGEBLOCK, PAGEBLOCK_ORDER};

/// What a part of memory is used for, in base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartUse {
    /// Its node.
    pub node: usize,
    /// It takes movable pages only.
    pub movable_only: bool,
    /// All its pages.
    pub pages: u64,
    /// Those of the kernel, which can be neither moved nor evicted.
    pub unmovable_pages: u64,
    /// Those of the explicit pool.
    pub pool_pages: u64,
    /// Those of programs and of the page cache.
    pub movable_pages: u64,
    /// Those that are free.
    pub free_pages: u64,
    /// Superpages of 512 base pages that could be taken from free memory.
    pub free_superpages: u64,
}

impl Memory {
    /// What each node, and on it the partition for movable pages, is used for.
    pub fn uses(&self) -> Vec<PartUse> {
        self.zones.iter().map(|zone| self.use_of(zone)).collect()
    }

    /// The same where the kernel has what it had, without a look at each frame; `pool` has the pool's superpages, one by
    /// one.
    pub(crate) fn update_uses(&self, uses: &mut [PartUse], pool: impl Iterator<Item = Frame>) {
        uses.iter_mut().for_each(|part| part.pool_pages = 0);
        pool.for_each(|frame| uses[self.zone_of(frame)].pool_pages += u64::from(PAGEBLOCK));
        for (part, zone) in uses.iter_mut().zip(&self.zones) {
            part.free_pages = zone.free;
            part.free_superpages = zone.contiguity(PAGEBLOCK_ORDER).suitable;
            part.movable_pages = part.pages - zone.free - part.unmovable_pages - part.pool_pages;
        }
    }

    fn use_of(&self, zone: &Zone) -> PartUse {
        let frames = zone.frame(0, 0).0..zone.end().0;
        let words = &self.owners[frames.start as usize..frames.end as usize];
        let owned = |by: Owner| words.iter().filter(|&&word| word == by.pack()).count() as u64;
        // What the kernel took at boot has no words; of a page of the pool the first frame of each pageblock has one.
        let boot = self
            .boot
            .iter()
            .map(|boot| boot.end.min(frames.end).saturating_sub(boot.start.max(frames.start)));
        let unmovable = owned(Owner::Kernel) + boot.map(u64::from).sum::<u64>();
        let pool = owned(Owner::Pinned) * u64::from(PAGEBLOCK);
        let pages = words.len() as u64;
        PartUse {
            node: zone.node,
            movable_only: zone.kind == ZoneKind::Movable,
            pages,
            unmovable_pages: unmovable,
            pool_pages: pool,
            movable_pages: pages - zone.free - unmovable - pool,
            free_pages: zone.free,
            free_superpages: zone.contiguity(PAGEBLOCK_ORDER).suitable,
        }
    }
}
