//! The order of runs: ABBA blocks. Decides which arm runs when, independently of processes, clocks and values.
//!
//! A block is a random permutation of the arms followed by its reverse (`B A C  C A B`). Each arm runs twice per block,
//! and every arm's two slots have the same mean position, so a drift that is linear within the block cancels exactly in
//! any difference of arms. Each block draws a new permutation, so that the part that does not cancel has a random sign
//! from block to block. [`crate::stats`] relies on both facts. (mega-evm #327 shows what a fixed order does to a gate.)

use crate::stats::random::{Random, Stream};
use serde::Serialize;

/// A scheduled run: the `slot`-th run of block `block` belongs to `arm` (0 is the reference).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Slot {
    /// Index of the block, from 0.
    pub block: u32,
    /// Position in the block, `0 .. 2 * arms`.
    pub slot: u32,
    /// The arm that runs, `0 .. arms`.
    pub arm: u32,
}

/// An endless sequence of slots, determined by `(arms, seed)`.
///
/// The caller takes whole blocks ([`Schedule::block_len`] slots) and checks the stopping rule only between blocks: half
/// a block lacks the balance that makes its samples comparable.
#[derive(Clone, Debug)]
pub struct Schedule {
    random: Random,
    order: Vec<u32>,
    block: u32,
    slot: u32,
}

impl Schedule {
    /// Creates a schedule of `arms` arms (the first is the reference). Without arms the schedule is empty.
    pub fn new(arms: u32, seed: u64) -> Schedule {
        let random = Random::new(seed, Stream::Schedule);
        Schedule { random, order: (0..arms).collect(), block: 0, slot: 0 }
    }

    /// Returns the number of slots in one block: two per arm.
    pub fn block_len(&self) -> usize {
        self.order.len() * 2
    }
}

impl Iterator for Schedule {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let arms = self.order.len() as u32;
        if arms == 0 {
            return None;
        }
        if self.slot == 0 {
            self.random.shuffle(&mut self.order);
        }
        let mirrored = self.slot.min(2 * arms - 1 - self.slot);
        let here = Slot { block: self.block, slot: self.slot, arm: self.order[mirrored as usize] };
        self.slot += 1;
        if self.slot == 2 * arms {
            self.slot = 0;
            self.block += 1;
        }
        Some(here)
    }
}
