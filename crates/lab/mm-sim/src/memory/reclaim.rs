//! Page reclaim: which pages are evicted when memory is short.
//!
//! Linux keeps an active and an inactive list per kind of page. Here each zone has two clock hands (Corbato 1968), one
//! for the page cache and one for anonymous memory. A hand spares a page once if the page was referenced since the
//! hand's last pass. This equals the inactive list's second chance, in order of frames instead of age. The page cache
//! goes first (Linux prefers it by swappiness; here it is clean and costs no write). Reclaim priorities and the balance
//! of the lists are not modelled.
//!
//! [`lumpy`] is Gorman's Age-Biased reclaim (WIOSCA 2010, section 3.2; Linux 2.6.23 to 3.4). It picks an old page as
//! reference, and evicts the whole aligned block around it, whatever the age of the other pages.

use super::layout::{Owner, is_cache, is_movable};
use super::zone::WHOLE;
use super::{Frame, Memory, PAGEBLOCK};

/// Maximum number of reference pages per call of [`lumpy`] (Linux' SWAP_CLUSTER_MAX).
const REFERENCES: u32 = 32;

/// Results of reclaim.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Pages scanned.
    pub scanned: u64,
    /// Pages evicted, equal to frames freed.
    pub evicted: u64,
    /// Evicted pages written to swap.
    pub written: u64,
}

impl std::ops::Add for Reclaimed {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            scanned: self.scanned + other.scanned,
            evicted: self.evicted + other.evicted,
            written: self.written + other.written,
        }
    }
}

/// Kind of pages that a hand scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cache,
    Anonymous,
}

impl Kind {
    const fn is(self, word: u32) -> bool {
        match self {
            Self::Cache => is_cache(word),
            Self::Anonymous => is_movable(word) && !is_cache(word),
        }
    }
}

/// Frees up to `wanted` frames of a node. Each hand goes around at most twice: the first round spares referenced pages
/// and clears their marks, the second evicts those not referenced since.
pub fn reclaim(
    memory: &mut Memory,
    residents: &mut impl Residents,
    node: usize,
    wanted: u64,
) -> Reclaimed {
    let mut report = Reclaimed::default();
    for (kind, zone) in hands(memory, node) {
        let mut left = twice_round(memory, zone);
        while report.evicted < wanted
            && let Some(frame) = next_old(memory, residents, zone, kind, &mut left, &mut report)
        {
            evict(memory, residents, frame, &mut report);
        }
    }
    memory.check();
    report
}

/// Frees blocks of `order` around old pages of a node, until one block is free or 32 references were tried. Evicts a
/// block upwards until a page stays; pages evicted before remain free.
pub fn lumpy(
    memory: &mut Memory,
    residents: &mut impl Residents,
    node: usize,
    order: u8,
) -> Reclaimed {
    let mut report = Reclaimed::default();
    for (kind, zone) in hands(memory, node) {
        let mut left = twice_round(memory, zone);
        for _ in 0..REFERENCES {
            if memory.zones[zone].contiguity(order).suitable > 0 {
                return report;
            }
            let old = next_old(memory, residents, zone, kind, &mut left, &mut report);
            let Some(frame) = old else { break };
            evict_block(memory, residents, frame, order, &mut report);
        }
    }
    memory.check();
    report
}

/// Returns the hands of a node (kind and zone), in the order in which they move.
fn hands(memory: &Memory, node: usize) -> Vec<(Kind, usize)> {
    let own = (0..memory.zones.len()).filter(|&zone| memory.zones[zone].node == node);
    [Kind::Cache, Kind::Anonymous]
        .into_iter()
        .flat_map(|kind| own.clone().map(move |zone| (kind, zone)))
        .collect()
}

fn twice_round(memory: &Memory, zone: usize) -> u32 {
    2 * memory.zones[zone].blocks.len() as u32 * PAGEBLOCK
}

/// Returns the hand's next page that was not referenced recently. `left` counts the frames that the hand may still
/// pass.
fn next_old(
    memory: &mut Memory,
    residents: &mut impl Residents,
    number: usize,
    kind: Kind,
    left: &mut u32,
    report: &mut Reclaimed,
) -> Option<Frame> {
    if kind == Kind::Cache && memory.cache_frames() == 0 {
        return None;
    }
    let zone = &memory.zones[number];
    let (start, end) = (zone.frame(0, 0).0, zone.end().0);
    let mut at = start + zone.hands[kind as usize];
    let found = loop {
        if *left == 0 {
            break None;
        }
        *left -= 1;
        let frame = Frame(at);
        at = if at + 1 == end { start } else { at + 1 };
        let word = memory.owners[frame.0 as usize];
        if kind.is(word) {
            report.scanned += 1;
            if !residents.referenced(Owner::unpack(word), frame) {
                break Some(frame);
            }
        }
    };
    memory.zones[number].hands[kind as usize] = at - start;
    found
}

/// Evicts the page in a frame. If a superpage stays, the hand skips all of it.
fn evict(
    memory: &mut Memory,
    residents: &mut impl Residents,
    frame: Frame,
    report: &mut Reclaimed,
) -> bool {
    match residents.evicted(memory.owner(frame), frame) {
        Eviction::Refused => {
            pass_superpage(memory, frame);
            return false;
        }
        Eviction::Swapped => report.written += 1,
        Eviction::Freed => {}
    }
    report.evicted += 1;
    memory.set_owner(frame, Owner::None);
    memory.free(frame, 0);
    true
}

/// Moves the hand for anonymous memory past the superpage at `frame`.
fn pass_superpage(memory: &mut Memory, frame: Frame) {
    let (zone, block) = memory.locate_mut(frame);
    if zone.blocks[block].flags & WHOLE != 0 {
        let next = (block as u32 + 1) % zone.blocks.len() as u32;
        zone.hands[Kind::Anonymous as usize] = next * PAGEBLOCK;
    }
}

/// Evicts the aligned block around a page, starting with the page.
fn evict_block(
    memory: &mut Memory,
    residents: &mut impl Residents,
    page: Frame,
    order: u8,
    report: &mut Reclaimed,
) {
    if !evict(memory, residents, page, report) {
        return;
    }
    let start = page.0 >> order << order;
    for frame in (start..start + (1 << order)).map(Frame) {
        if memory.is_free(frame) {
            continue;
        }
        report.scanned += 1;
        if !memory.owner(frame).movable() || !evict(memory, residents, frame, report) {
            return;
        }
    }
}

// Callbacks from compaction and reclaim to the users of frames. The system implements them.

/// The users of frames: page tables, the page cache, pins.
///
/// The memory frees the old frame and sets owners. An implementation updates only its own records and must not call the
/// memory.
pub trait Residents {
    /// Remaps a page that is being migrated. `false`: the page cannot be moved now (locked or pinned), and nothing has
    /// changed.
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool;

    /// Returns whether the page was referenced since the last call, and clears the mark.
    fn referenced(&mut self, owner: Owner, frame: Frame) -> bool;

    /// Evicts the page: unmaps it, and writes it out if needed.
    fn evicted(&mut self, owner: Owner, frame: Frame) -> Eviction;
}

/// Outcome of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Dropped: its contents are in a file or no longer needed.
    Freed,
    /// Written to swap and dropped.
    Swapped,
    /// The page stays: no swap, or locked.
    Refused,
}
