//! Statistics of memory: /proc/buddyinfo, the fragmentation indices, the watermarks.

use super::zone::{ORDERS, Zone, ZoneKind};
use super::{FRAME_BYTES, Memory, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER};

/// A row of /proc/buddyinfo and /proc/pagetypeinfo: a zone's free blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuddyInfo {
    /// Node.
    pub node: usize,
    /// Zone kind.
    pub kind: ZoneKind,
    /// Free blocks by mobility and order.
    pub blocks: [[u32; ORDERS]; 3],
}

/// Frames that must stay free (Linux' zone watermarks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this, only the kernel's own emergencies allocate.
    pub min: u64,
    /// Below this, the page daemon is woken.
    pub low: u64,
    /// The page daemon stops here.
    pub high: u64,
}

/// One of the watermarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// [`Watermarks::min`].
    Min,
    /// [`Watermarks::low`].
    Low,
    /// [`Watermarks::high`].
    High,
}

/// Inputs of the fragmentation indices (`fill_contig_page_info` in mm/vmstat.c).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Contiguity {
    /// Free frames.
    pub(crate) free: u64,
    /// Free blocks of any order.
    pub(crate) blocks: u64,
    /// Available blocks of the requested order.
    pub(crate) suitable: u64,
}

impl Zone {
    /// Free memory of the zone, seen by a request of `order`.
    pub(crate) fn contiguity(&self, order: u8) -> Contiguity {
        let counts = self.counts();
        let mut sum = Contiguity { free: self.free, ..Contiguity::default() };
        for at in 0..ORDERS as u8 {
            let count: u64 = counts.iter().map(|counts| u64::from(counts[at as usize])).sum();
            sum.blocks += count;
            if at >= order {
                sum.suitable += count << (at - order);
            }
        }
        sum
    }
}

impl Watermarks {
    /// The watermark of a level, in frames.
    pub const fn at(self, level: Level) -> u64 {
        match level {
            Level::Min => self.min,
            Level::Low => self.low,
            Level::High => self.high,
        }
    }
}

impl Contiguity {
    fn add(self, other: Self) -> Self {
        Self {
            free: self.free + other.free,
            blocks: self.blocks + other.blocks,
            suitable: self.suitable + other.suitable,
        }
    }

    /// The fragmentation index, per mille: towards 0 a request fails for lack of memory, towards 1000 for
    /// fragmentation; -1000 if it would not fail (`__fragmentation_index`; Gorman and Whitcroft 2006).
    pub(crate) fn fragmentation_index(self, order: u8) -> i32 {
        if self.blocks == 0 {
            return 0;
        }
        if self.suitable > 0 {
            return -1000;
        }
        1000 - ((1000 + self.free * 1000 / (1 << order)) / self.blocks) as i32
    }

    /// Share of free memory that a request cannot use, per mille (`unusable_free_index`).
    pub(crate) fn unusable_index(self, order: u8) -> u32 {
        if self.free == 0 {
            return 1000;
        }
        ((self.free - (self.suitable << order)) * 1000 / self.free) as u32
    }
}

impl Memory {
    /// Free frames.
    pub fn free_frames(&self) -> u64 {
        self.zones.iter().map(|zone| zone.free).sum()
    }

    /// Free blocks of exactly this order, not part of a larger one.
    pub fn free_blocks(&self, order: u8) -> u64 {
        let counts = self.zones.iter().flat_map(Zone::counts);
        counts.map(|counts| u64::from(counts[order as usize])).sum()
    }

    /// Superpages available from free memory.
    pub fn free_superpages(&self) -> u64 {
        self.contiguity(PAGEBLOCK_ORDER).suitable
    }

    /// The fragmentation index of an order over all zones, per mille: see Linux'
    /// `/sys/kernel/debug/extfrag/extfrag_index`. -1000: a request would not fail.
    pub fn fragmentation_index(&self, order: u8) -> i32 {
        self.contiguity(order).fragmentation_index(order)
    }

    /// Share of free memory that a request of this order cannot use, per mille (Ingens' free memory
    /// fragmentation index, FMFI).
    pub fn unusable_index(&self, order: u8) -> u32 {
        self.contiguity(order).unusable_index(order)
    }

    fn contiguity(&self, order: u8) -> Contiguity {
        let zones = self.zones.iter().map(|zone| zone.contiguity(order));
        zones.fold(Contiguity::default(), Contiguity::add)
    }

    /// The free blocks of each zone.
    pub fn buddyinfo(&self) -> Vec<BuddyInfo> {
        let row =
            |zone: &Zone| BuddyInfo { node: zone.node, kind: zone.kind, blocks: zone.counts() };
        self.zones.iter().map(row).collect()
    }

    /// Pageblocks of each mobility, by `Mobility`'s order (the last lines of /proc/pagetypeinfo).
    pub fn pageblocks(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for block in self.zones.iter().flat_map(|zone| &zone.blocks) {
            counts[block.mobility.index()] += 1;
        }
        counts
    }

    /// The watermarks of a node: the sums over its zones.
    pub fn watermarks(&self, node: usize) -> Watermarks {
        let numbers = (0..self.zones.len()).filter(|&zone| self.zones[zone].node == node);
        let zones = numbers.map(|zone| self.zone_watermarks(zone));
        zones.fold(Watermarks { min: 0, low: 0, high: 0 }, |sum, zone| Watermarks {
            min: sum.min + zone.min,
            low: sum.low + zone.low,
            high: sum.high + zone.high,
        })
    }

    /// The watermarks of a zone (`__setup_per_zone_wmarks`, mm/page_alloc.c): its share of
    /// `min_free_kbytes`; low and high lie a quarter of that above, or 1/1000 of the zone
    /// (`watermark_scale_factor` 10) if that is more.
    pub(crate) fn zone_watermarks(&self, zone: usize) -> Watermarks {
        let frames = (self.zones[zone].blocks.len() as u64) << PAGEBLOCK_ORDER;
        let all = self.owners.len() as u64;
        let min = self.min_free_frames() * frames / all;
        let step = (min / 4).max(frames * 10 / 10_000);
        Watermarks { min, low: min + step, high: min + 2 * step }
    }

    /// Whether a zone could satisfy a request without going below a watermark (`__zone_watermark_ok`): enough
    /// frames stay free, and a block is available, of this mobility or from another.
    pub(crate) fn zone_allows(
        &self,
        zone: usize,
        level: Level,
        order: u8,
        mobility: Mobility,
    ) -> bool {
        let mark = self.zone_watermarks(zone).at(level);
        let zone = &self.zones[zone];
        zone.free >= mark + (1 << order) && (order == 0 || zone.has(self.list_of(mobility), order))
    }

    /// Whether one of the node's zones could satisfy a request without going below a watermark. If not, the page
    /// daemon is to be woken (low), or the request must reclaim directly (min).
    pub fn allows(&self, level: Level, order: u8, mobility: Mobility, node: usize) -> bool {
        let zones = self.zonelist(node, mobility).iter();
        zones
            .filter(|&&zone| self.zones[zone].node == node)
            .any(|&zone| self.zone_allows(zone, level, order, mobility))
    }

    /// `min_free_kbytes` in frames: the square root of 16 times the memory in KB, 128 KB to 256 MB
    /// (`calculate_min_free_kbytes`; 64 MB before 5.9); with superpages at least two pageblocks per zone and one
    /// for each pair of the three mobilities on per-CPU lists, at most 5 % of memory
    /// (`set_recommended_min_free_kbytes`, mm/khugepaged.c).
    fn min_free_frames(&self) -> u64 {
        let frames = self.owners.len() as u64;
        let kbytes = frames * FRAME_BYTES / 1024;
        let base = (kbytes * 16).isqrt().clamp(128, 262_144) * 1024 / FRAME_BYTES;
        if !self.raised_watermarks {
            return base;
        }
        let mobilities = Mobility::ALL.len() as u64;
        let zones = self.zones.len() as u64;
        let wanted = u64::from(PAGEBLOCK) * zones * (2 + mobilities * mobilities);
        base.max(wanted.min(frames / 20))
    }
}
