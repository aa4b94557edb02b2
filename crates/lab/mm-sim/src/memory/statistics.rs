//! Statistics of memory: /proc/buddyinfo, fragmentation indices, watermarks.

use super::zone::{ORDERS, Zone, ZoneKind};
use super::{FRAME_BYTES, Memory, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER};

/// The free blocks of a zone, as in /proc/buddyinfo and /proc/pagetypeinfo.
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
    /// Below this, only emergency allocations of the kernel succeed.
    pub min: u64,
    /// Below this, kswapd is woken.
    pub low: u64,
    /// At this level, kswapd stops.
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
    pub(crate) free: u64,
    /// Free blocks of any order.
    pub(crate) blocks: u64,
    /// Available blocks of the requested order.
    pub(crate) suitable: u64,
}

impl Zone {
    /// Returns the free memory of the zone, as seen by a request of `order`.
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
    /// Returns the watermark of a level, in frames.
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

    /// Returns the fragmentation index, per mille. Near 0 a request fails for lack of memory, near 1000 because of
    /// fragmentation. -1000: it would succeed (`__fragmentation_index`; Gorman and Whitcroft 2006).
    pub(crate) fn fragmentation_index(self, order: u8) -> i32 {
        if self.blocks == 0 {
            return 0;
        }
        if self.suitable > 0 {
            return -1000;
        }
        1000 - ((1000 + self.free * 1000 / (1 << order)) / self.blocks) as i32
    }

    /// Returns the share of free memory that a request cannot use, per mille (`unusable_free_index`).
    pub(crate) fn unusable_index(self, order: u8) -> u32 {
        if self.free == 0 {
            return 1000;
        }
        ((self.free - (self.suitable << order)) * 1000 / self.free) as u32
    }
}

impl Memory {
    /// Returns the number of free frames.
    pub fn free_frames(&self) -> u64 {
        self.zones.iter().map(|zone| zone.free).sum()
    }

    /// Returns the number of free blocks of exactly this order.
    pub fn free_blocks(&self, order: u8) -> u64 {
        let counts = self.zones.iter().flat_map(Zone::counts);
        counts.map(|counts| u64::from(counts[order as usize])).sum()
    }

    /// Returns the number of superpages available from free memory.
    pub fn free_superpages(&self) -> u64 {
        self.contiguity(PAGEBLOCK_ORDER).suitable
    }

    /// Returns the fragmentation index of an order over all zones, per mille, as in Linux'
    /// `/sys/kernel/debug/extfrag/extfrag_index`. -1000: a request would succeed.
    pub fn fragmentation_index(&self, order: u8) -> i32 {
        self.contiguity(order).fragmentation_index(order)
    }

    /// Returns the share of free memory that a request of this order cannot use, per mille (Ingens' free memory
    /// fragmentation index, FMFI).
    pub fn unusable_index(&self, order: u8) -> u32 {
        self.contiguity(order).unusable_index(order)
    }

    fn contiguity(&self, order: u8) -> Contiguity {
        let zones = self.zones.iter().map(|zone| zone.contiguity(order));
        zones.fold(Contiguity::default(), Contiguity::add)
    }

    /// Returns the free blocks of each zone.
    pub fn buddyinfo(&self) -> Vec<BuddyInfo> {
        let row =
            |zone: &Zone| BuddyInfo { node: zone.node, kind: zone.kind, blocks: zone.counts() };
        self.zones.iter().map(row).collect()
    }

    /// Returns the number of pageblocks per mobility, in `Mobility`'s order (last lines of /proc/pagetypeinfo).
    pub fn pageblocks(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        for block in self.zones.iter().flat_map(|zone| &zone.blocks) {
            counts[block.mobility.index()] += 1;
        }
        counts
    }

    /// Returns the watermarks of a node: the sums over its zones.
    pub fn watermarks(&self, node: usize) -> Watermarks {
        let numbers = (0..self.zones.len()).filter(|&zone| self.zones[zone].node == node);
        let zones = numbers.map(|zone| self.zone_watermarks(zone));
        zones.fold(Watermarks { min: 0, low: 0, high: 0 }, |sum, zone| Watermarks {
            min: sum.min + zone.min,
            low: sum.low + zone.low,
            high: sum.high + zone.high,
        })
    }

    /// Returns the watermarks of a zone (`__setup_per_zone_wmarks`, mm/page_alloc.c). `min` is its share of
    /// `min_free_kbytes`; `low` lies one step above `min`, `high` two. A step is a quarter of `min`, or 1/1000 of the
    /// zone (`watermark_scale_factor` 10) if that is more.
    pub(crate) fn zone_watermarks(&self, zone: usize) -> Watermarks {
        let frames = (self.zones[zone].blocks.len() as u64) << PAGEBLOCK_ORDER;
        let all = self.owners.len() as u64;
        let min = self.min_free_frames() * frames / all;
        let step = (min / 4).max(frames * 10 / 10_000);
        Watermarks { min, low: min + step, high: min + 2 * step }
    }

    /// Returns whether a zone could satisfy a request without going below a watermark (`__zone_watermark_ok`): enough
    /// frames stay free, and a block of this or another mobility is available.
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

    /// Returns whether one of the node's zones could satisfy a request without going below a watermark. If not, kswapd
    /// must be woken (low), or the request must reclaim directly (min).
    pub fn allows(&self, level: Level, order: u8, mobility: Mobility, node: usize) -> bool {
        let zones = self.zonelist(node, mobility).iter();
        zones
            .filter(|&&zone| self.zones[zone].node == node)
            .any(|&zone| self.zone_allows(zone, level, order, mobility))
    }

    /// Returns `min_free_kbytes` in frames: the square root of 16 times the memory in KB, 128 KB to 256 MB
    /// (`calculate_min_free_kbytes`; 64 MB before 5.9). With raised watermarks, returns at least two pageblocks per
    /// zone, plus one for each pair of the three mobilities on per-CPU lists, but at most 5 % of memory
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
