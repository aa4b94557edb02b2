//! `Pinned`: frames that cannot be moved, scattered. No compaction helps against these; whether pages
//! are grouped by mobility decides how many blocks they fragment later, not those they fragment now.

use trace::{Block, SLOTS};
use workload::rng::{SplitMix64, below};

use super::{Fragmenter, Mobility, PhysicalMemoryView};

/// Takes one frame in each of some percent of the blocks.
#[derive(Debug)]
pub struct Pinned {
    percent: u8,
    seed: u64,
    done: bool,
}

impl Pinned {
    /// Which blocks, and which frame in each, follows from the seed.
    pub fn new(percent: u8, seed: u64) -> Self {
        Self { percent, seed, done: false }
    }
}

/// The blocks in an order that the seed decides.
pub(super) fn scattered(blocks: u64, seed: u64) -> Vec<u64> {
    let mut order = (0..blocks).collect::<Vec<_>>();
    let mut rng = SplitMix64::new(seed);
    for place in (1..order.len()).rev() {
        order.swap(place, below(rng.draw(), place as u64 + 1) as usize);
    }
    order
}

impl Fragmenter for Pinned {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let blocks = memory.blocks();
        let mut left = blocks * u64::from(self.percent) / 100;
        // Blocks whose drawn frame is in use already are passed over.
        for number in scattered(blocks, self.seed) {
            if left == 0 {
                break;
            }
            let slot = below(SplitMix64::stream(self.seed, number).draw(), SLOTS.into()) as u16;
            left -= memory.occupy(number, slot, slot + 1, Mobility::Unmovable);
        }
        true
    }
}
