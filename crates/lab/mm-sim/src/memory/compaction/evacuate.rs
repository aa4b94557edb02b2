//! Emptying one pageblock, or a run of them: all their pages are migrated (Linux' `alloc_contig_range`, FreeBSD's
//! `vm_page_reclaim_contig`, which Quicksilver calls for inactive reservations).

use crate::memory::owner::Owner;
use crate::memory::physical::pageblocks;
use crate::memory::{Frame, Memory, Mobility, PAGEBLOCK, Residents};

/// What emptying a pageblock came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// Pages moved.
    pub moved: u32,
    /// Frames whose pages stay: they refused, cannot be moved, or there was no free frame.
    pub stay: u32,
    /// Frames that were free, and are now held.
    pub taken: u32,
}

/// Moves every page out of the pageblock that begins at `block`. Afterwards none of its frames is free: those that
/// were, and those that were emptied, are held without an owner, as are those that were so before (a
/// reservation's). With `stay` 0 the caller holds the pageblock as one block of order 9; else it may
/// give back what it holds ([`Memory::free_unowned`]).
pub fn evacuate(memory: &mut Memory, residents: &mut impl Residents, block: Frame) -> Evacuation {
    let frames = (block.0..block.0 + PAGEBLOCK).map(Frame);
    let mut report = Evacuation::default();
    for frame in frames.clone() {
        report.taken += u32::from(memory.is_free(frame) && memory.claim(frame, 0));
    }
    let node = memory.node(block);
    for from in frames {
        let owner = memory.owner(from);
        if owner == Owner::None {
            continue;
        }
        let to =
            if owner.movable() { memory.allocate(0, Mobility::Movable, node, false) } else { None };
        let Some(to) = to else {
            report.stay += 1;
            continue;
        };
        if residents.moved(owner, from, to.frame) {
            memory.set_owner(to.frame, owner);
            memory.set_owner(from, Owner::None);
            report.moved += 1;
        } else {
            memory.free(to.frame, 0);
            report.stay += 1;
        }
    }
    report
}

/// Moves pages out of the way of 2^`order` frames that lie together and aligned, more than a pageblock, on a node:
/// until a run of them is free, from the lowest on (`alloc_contig_pages`). What was moved, and what stays of the last.
pub fn evacuate_run(
    memory: &mut Memory,
    residents: &mut impl Residents,
    order: u8,
    node: usize,
) -> Evacuation {
    let mut report = Evacuation::default();
    for run in memory.movable_runs(order, node) {
        report.stay = 0;
        // First all that is free, so that nothing moves from one of its pageblocks into another.
        for frame in run.clone().map(Frame) {
            report.taken += u32::from(memory.is_free(frame) && memory.claim(frame, 0));
        }
        for block in pageblocks(&run) {
            let done = evacuate(memory, residents, block);
            report.moved += done.moved;
            report.stay += done.stay;
        }
        pageblocks(&run).for_each(|block| memory.free_unowned(block));
        if report.stay == 0 {
            break;
        }
    }
    report
}
