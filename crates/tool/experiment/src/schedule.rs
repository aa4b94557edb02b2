//! The order of runs: ABBA blocks. Decides which arm runs when; independent of processes, clocks and values.
//!
//! A block is a random permutation of the arms followed by its reverse (`B A C  C A B`), so each arm
//! runs twice per block and every arm's two slots have the same mean position: a drift that is linear
//! within the block cancels exactly in any difference of arms. The permutation is drawn afresh for each
//! block, so whatever does not cancel has a random sign from block to block. Both facts are what
//! [`crate::stats`] relies on (mega-evm #327 shows what a fixed order does to a gate).

use crate::stats::random::{Random, Stream};
use serde::Serialize;

/// A scheduled run: the `slot`-th run of block `block` belongs to `arm` (0 is the reference).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Slot {
    /// Number of the block, from 0.
    pub block: u32,
    /// Position in the block, `0 .. 2 * arms`.
    pub slot: u32,
    /// Which arm runs, `0 .. arms`.
    pub arm: u32,
}

/// An endless sequence of slots, the same for the same `(arms, seed)`.
///
/// The caller takes whole blocks ([`Schedule::block_len`] slots) and checks the stopping rule between blocks, never
/// inside one: half a block lacks the balance that makes its samples comparable.
#[derive(Clone, Debug)]
pub struct Schedule {
    random: Random,
    order: Vec<u32>,
    block: u32,
    slot: u32,
}

impl Schedule {
    /// A schedule of `arms` arms (the first is the reference). No arms give an empty schedule.
    pub fn new(arms: u32, seed: u64) -> Schedule {
        let random = Random::new(seed, Stream::Schedule);
        Schedule { random, order: (0..arms).collect(), block: 0, slot: 0 }
    }

    /// Slots in one block: two per arm.
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
