//! `Machine`: makes the simulated memory's free blocks those of a real machine.
//!
//! A free block of an order stays one only while its buddy is not free. Within a superpage-sized block
//! this is a binary tree: of two halves at most one is free, the other holds at least one used frame.
//! [`pattern`] walks down that tree and leaves free what is still needed, so that as many free blocks
//! as possible fit into one superpage-sized block; the rest of the frames are taken.

use trace::Block;

use crate::memory::Mobility;

use super::pinned::scattered;
use super::{Fragmenter, FreeBlocks, ORDERS, PhysicalMemoryView};

/// The order of a superpage.
const SUPERPAGE: usize = 9;

/// A fragmenter that runs no program.
#[derive(Debug)]
pub struct Machine {
    target: FreeBlocks,
    seed: u64,
    done: bool,
}

impl Machine {
    /// Which physical blocks look how follows from the seed.
    pub fn new(target: &FreeBlocks, seed: u64) -> Self {
        Self { target: target.clone(), seed, done: false }
    }
}

/// Leaves free what is `needed` of the orders below `order` within the frames from `first` on, and adds
/// runs of used frames. At least one frame is used.
fn pattern(order: usize, first: u16, needed: &mut [u64], used: &mut Vec<(u16, u16)>) {
    if needed[..order].iter().all(|&count| count == 0) {
        match used.last_mut() {
            Some((_, end)) if *end == first => *end = first + (1 << order),
            _ => used.push((first, first + (1 << order))),
        }
        return;
    }
    let half = order - 1;
    if needed[half] > 0 {
        needed[half] -= 1;
    } else {
        pattern(half, first, needed, used);
    }
    pattern(half, first + (1 << half), needed, used);
}

impl Fragmenter for Machine {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let mut target = self.target.scaled(memory.blocks() << SUPERPAGE);
        // Whole superpages stay as they are, neighbours together so that order 10 can be.
        let whole: u64 = (target.free.iter())
            .flat_map(|orders| {
                (SUPERPAGE..ORDERS).map(|order| orders[order] << (order - SUPERPAGE))
            })
            .sum();
        // What the kernel has since it booted is full already.
        let (fragmented, full): (Vec<u64>, Vec<u64>) =
            scattered(memory.blocks().saturating_sub(whole), self.seed)
                .into_iter()
                .partition(|&block| memory.is_whole(block));
        for &number in &full {
            memory.occupy(number, 0, 1 << SUPERPAGE, Mobility::Unmovable); // what is left of its last one
        }
        let mut blocks = fragmented.into_iter();
        let mut made = [0u64; 3];
        made[Mobility::Unmovable as usize] = full.len() as u64;
        for mobility in Mobility::ALL {
            let needed = &mut target.free[mobility as usize][..SUPERPAGE];
            while needed.iter().any(|&count| count > 0) {
                let Some(number) = blocks.next() else { return true };
                let mut used = Vec::new();
                pattern(SUPERPAGE, 0, needed, &mut used);
                for (from, to) in used {
                    memory.occupy(number, from, to, mobility);
                }
                made[mobility as usize] += 1;
            }
        }
        // The others are full: as many of each mobility as the kernel counts pageblocks, the last rest
        // and everything, if it did not say, movable.
        let pageblocks = target.pageblocks.unwrap_or_default();
        for mobility in [Mobility::Unmovable, Mobility::Reclaimable] {
            let count = pageblocks[mobility as usize].saturating_sub(made[mobility as usize]);
            for number in blocks.by_ref().take(count as usize) {
                memory.occupy(number, 0, 1 << SUPERPAGE, mobility);
            }
        }
        for number in blocks {
            memory.occupy(number, 0, 1 << SUPERPAGE, Mobility::Movable);
        }
        true
    }
}
