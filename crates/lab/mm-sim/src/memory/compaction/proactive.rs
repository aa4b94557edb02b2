//! The fragmentation score: when kcompactd compacts without having been asked (Linux since 5.9).

use super::{Compaction, Settings};
use crate::memory::zone::Zone;
use crate::memory::{Memory, PAGEBLOCK_ORDER};

impl Zone {
    /// The part of its free memory that is not in superpages, per cent (`extfrag_for_order`).
    pub(crate) fn score(&self) -> u32 {
        let contiguity = self.contiguity(PAGEBLOCK_ORDER);
        if contiguity.free == 0 {
            return 0;
        }
        let usable = contiguity.suitable << PAGEBLOCK_ORDER;
        ((contiguity.free - usable) * 100 / contiguity.free) as u32
    }
}

impl Settings {
    /// The scores at which proactive compaction stops and starts (`fragmentation_score_wmark`).
    pub(crate) const fn score_limits(self) -> (u32, u32) {
        let low = 100u32.saturating_sub(self.proactiveness as u32);
        let low = if low < 5 { 5 } else { low };
        let high = if low + 10 > 100 { 100 } else { low + 10 };
        (low, high)
    }
}

impl Compaction {
    /// A node's fragmentation score, a share of 0 to 100: its zones', weighted by their size, each rounded down
    /// (`fragmentation_score_node`).
    pub fn score(&self, memory: &Memory, node: usize) -> u32 {
        let zones = || memory.zones.iter().filter(|zone| zone.node == node);
        let frames = |zone: &Zone| (zone.blocks.len() as u64) << PAGEBLOCK_ORDER;
        let all: u64 = zones().map(frames).sum();
        zones().map(|zone| (u64::from(zone.score()) * frames(zone) / (all + 1)) as u32).sum()
    }

    /// Whether kcompactd is to compact a node proactively now (`should_proactive_compact_node`).
    pub fn is_wanted(&self, memory: &Memory, node: usize) -> bool {
        let (_, high) = self.settings.score_limits();
        self.settings.proactiveness > 0 && self.score(memory, node) > high
    }
}
