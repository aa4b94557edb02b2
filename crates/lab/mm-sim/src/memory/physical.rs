//! `Memory`: allocation, freeing, and owners of frames.

use std::ops::Range;

use prefetch_index::prefetch_index;

use super::layout;
use super::layout::Owner;
use super::zone::{WHOLE, Zone, ZoneKind};
use super::{Claiming, FRAME_BYTES, Frame, MAX_ORDER, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER, Shape};

/// Physical memory.
#[derive(Debug, Clone)]
pub struct Memory {
    pub(crate) zones: Vec<Zone>,
    /// One word per frame; see [`Owner`]. The word of a free frame is zero.
    pub(crate) owners: Vec<u32>,
    /// Per node: the zones to try in order, for movable and for other requests.
    zonelists: Vec<[Vec<usize>; 2]>,
    /// Frames of the page cache.
    cache: u64,
    /// Frames taken by the kernel at boot. They are never freed, so they have no words.
    pub(crate) boot: Vec<Range<u32>>,
    grouping: bool,
    claiming: Claiming,
    pub(crate) raised_watermarks: bool,
}

/// Result of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// The first of the frames.
    pub frame: Frame,
    /// Whether all frames hold zeros already.
    pub zeroed: bool,
    /// Whether the frames came from another mobility's lists.
    pub stolen: bool,
}

impl Memory {
    /// Creates the memory of a machine after its kernel has booted.
    pub fn new(shape: &Shape) -> Self {
        let mut zones = Vec::new();
        let mut first = 0;
        for (node, memory) in shape.nodes.iter().enumerate() {
            let all = pairs(memory.bytes.0);
            let movable = memory.movable_partition.map_or(0, |bytes| pairs(bytes.0).min(all));
            for (kind, count) in [(ZoneKind::Normal, all - movable), (ZoneKind::Movable, movable)] {
                if count > 0 {
                    zones.push(Zone::new(node, kind, first, count));
                    first += count;
                }
            }
        }
        let zonelists = (0..shape.nodes.len()).map(|node| zonelists(&zones, node, shape)).collect();
        let mut memory = Self {
            zones,
            owners: vec![0; first << PAGEBLOCK_ORDER],
            zonelists,
            cache: 0,
            boot: Vec::new(),
            grouping: shape.grouping,
            claiming: shape.claiming,
            raised_watermarks: shape.raised_watermarks,
        };
        memory.boot(shape);
        memory
    }

    /// Takes the kernel's own memory, the lowest frames of each node.
    fn boot(&mut self, shape: &Shape) {
        let nodes = shape.nodes.len() as u64;
        let frames = shape.kernel.0.div_ceil(FRAME_BYTES).div_ceil(nodes.max(1));
        for node in 0..shape.nodes.len() {
            let Some(zone) = self.zones.iter().position(|zone| zone.node == node) else { continue };
            let start = self.zones[zone].frame(0, 0);
            let count = frames.min(self.zones[zone].free);
            let end = start.0 + count as u32;
            let mut at = start.0;
            while at < end {
                // Whole pageblocks, then single frames.
                let whole = at.is_multiple_of(PAGEBLOCK) && end - at >= PAGEBLOCK;
                let order = if whole { PAGEBLOCK_ORDER } else { 0 };
                self.claim(Frame(at), order);
                at += 1 << order;
            }
            self.boot.push(start.0..end);
        }
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Allocates 2^`order` frames from free memory, preferably on `node`. Takes the smallest sufficient order of this
    /// mobility at the lowest address, else from another mobility's lists, else from the next zone and node. `zeroed`:
    /// prefers memory that holds zeros.
    #[inline]
    pub fn allocate(
        &mut self,
        order: u8,
        mobility: Mobility,
        node: usize,
        zeroed: bool,
    ) -> Option<Allocated> {
        let list = usize::from(mobility != Mobility::Movable);
        let mobility = self.list_of(mobility);
        for position in 0..self.zonelists[node][list].len() {
            let zone = self.zonelists[node][list][position];
            if zeroed && self.zones[zone].zeroed.is_some() {
                let got = self.allocate_zeroed(zone, order, mobility);
                if got.is_some() {
                    return got;
                }
            }
            if let Some(got) = self.allocate_in(zone, order, mobility) {
                return Some(got);
            }
        }
        None
    }

    /// As [`Self::allocate`], on this node only.
    pub fn allocate_on(&mut self, order: u8, mobility: Mobility, node: usize) -> Option<Allocated> {
        let list = self.list_of(mobility);
        let zones = self.zonelist(node, mobility).iter().copied();
        let own: Vec<usize> = zones.filter(|&zone| self.zones[zone].node == node).collect();
        own.into_iter().find_map(|zone| self.allocate_in(zone, order, list))
    }

    /// Returns the number of ascending neighbours that successive single-frame allocations would return, none of them
    /// known to hold zeros. Also returns 0 if a search would be needed to find the number.
    #[inline]
    pub fn side_by_side(&self, mobility: Mobility, node: usize) -> u32 {
        let zone = &self.zones[self.zonelist(node, mobility)[0]];
        if zone.zeroed.is_some() { 0 } else { zone.side_by_side(self.list_of(mobility)) }
    }

    /// Returns the first of these neighbours and their number; `None` if there are none.
    #[inline]
    pub(crate) fn next_side_by_side(
        &self,
        mobility: Mobility,
        node: usize,
    ) -> Option<(Frame, u32)> {
        let count = self.side_by_side(mobility, node);
        let zone = &self.zones[self.zonelist(node, mobility)[0]];
        (count > 0).then(|| (zone.next_side_by_side(self.list_of(mobility)), count))
    }

    /// Allocates `count` of these neighbours at once. Returns the first.
    #[inline]
    pub fn allocate_side_by_side(&mut self, mobility: Mobility, node: usize, count: u32) -> Frame {
        let zone = self.zonelist(node, mobility)[0];
        let mobility = self.list_of(mobility);
        self.zones[zone].take_side_by_side(mobility, count)
    }

    /// As [`Self::allocate`], in one zone.
    #[inline]
    fn allocate_in(&mut self, number: usize, order: u8, mobility: Mobility) -> Option<Allocated> {
        let zone = &mut self.zones[number];
        if let Some(frame) = zone.take(mobility, order) {
            let zeroed = zone.consume_zeros(zone.block_of(frame), frame.slot(), order);
            return Some(Allocated { frame, zeroed, stolen: false });
        }
        let owners = &self.owners[zone.first << PAGEBLOCK_ORDER..zone.end().0 as usize];
        let frame = zone.take_fallback(mobility, order, self.claiming, owners)?;
        let zeroed = zone.consume_zeros(zone.block_of(frame), frame.slot(), order);
        Some(Allocated { frame, zeroed, stolen: true })
    }

    /// Returns the zones that a request tries, in order.
    pub(crate) fn zonelist(&self, node: usize, mobility: Mobility) -> &[usize] {
        &self.zonelists[node][usize::from(mobility != Mobility::Movable)]
    }

    /// Returns the free lists for a mobility's requests; without grouping, the same lists for all.
    pub(crate) const fn list_of(&self, mobility: Mobility) -> Mobility {
        if self.grouping { mobility } else { Mobility::Movable }
    }

    /// Allocates the lowest free, aligned run of 2^`order` frames, larger than a pageblock. Linux
    /// (`alloc_contig_pages`) also migrates pages out of the run.
    pub(crate) fn allocate_contiguous(&mut self, order: u8, node: usize) -> Option<Frame> {
        let is_free = |run: &Range<u32>| {
            pageblocks(run).all(|block| {
                let (zone, block) = self.locate(block);
                zone.blocks[block].is_wholly_free()
            })
        };
        let run = self.aligned_runs(order, node).find(is_free)?;
        pageblocks(&run).for_each(|block| assert!(self.claim(block, PAGEBLOCK_ORDER)));
        Some(Frame(run.start))
    }

    /// Returns a node's aligned runs of 2^`order` frames, larger than a pageblock, ascending. Linux treats an
    /// allocation larger than any free block as unmovable (`htlb_alloc_mask`).
    fn aligned_runs(&self, order: u8, node: usize) -> impl Iterator<Item = Range<u32>> {
        let length = 1 << order;
        let takes = move |zone: &&Zone| {
            zone.node == node && (order <= MAX_ORDER || zone.kind == ZoneKind::Normal)
        };
        self.zones.iter().filter(takes).flat_map(move |zone| {
            let starts = zone.frame(0, 0).0.next_multiple_of(length)..zone.end().0;
            let runs = starts.step_by(length as usize).map(move |start| start..start + length);
            runs.filter(|run| run.end <= zone.end().0)
        })
    }

    /// Returns the runs in which every page is movable and none belongs to a superpage.
    pub(crate) fn movable_runs(&self, order: u8, node: usize) -> Vec<Range<u32>> {
        let is_movable =
            |frame: Frame| layout::is_movable(self.owners[frame.0 as usize]) || self.is_free(frame);
        let moves = |run: &Range<u32>| {
            pageblocks(run).all(|block| !self.is_superpage(block))
                && run.clone().map(Frame).all(is_movable)
        };
        self.aligned_runs(order, node).filter(moves).collect()
    }

    /// Takes these 2^`order` frames if all of them are free. Returns whether they were.
    pub fn claim(&mut self, frame: Frame, order: u8) -> bool {
        let (zone, block) = self.locate_mut(frame);
        zone.claim(block, frame.slot(), order)
    }

    /// Takes all free frames of the pageblock at `block`.
    pub(crate) fn claim_free(&mut self, block: Frame) {
        let mut at = block.0;
        while at < block.0 + PAGEBLOCK {
            let largest = (at.trailing_zeros() as u8).min(PAGEBLOCK_ORDER);
            let order = (0..=largest).rev().find(|&order| self.claim(Frame(at), order));
            at += 1 << order.unwrap_or(0);
        }
    }

    /// Sets whether pages are grouped by mobility. All pageblocks must be movable.
    pub(crate) fn set_grouping(&mut self, grouping: bool) {
        debug_assert!(self.grouping == grouping || self.pageblocks()[1..] == [0; 2]);
        self.grouping = grouping;
    }

    /// Frees 2^`order` frames and clears their owners. Any aligned part of an allocation can be freed alone. A page of
    /// the page cache must be disowned first ([`Self::set_owner`]), which updates the cache's count. A check here would
    /// halve the speed of frees in random order: it would load a word that is rarely in the host's cache, while a store
    /// need not wait.
    #[inline]
    pub fn free(&mut self, frame: Frame, order: u8) {
        debug_assert!(order <= MAX_ORDER && frame.0 & ((1 << order) - 1) == 0);
        let start = frame.0 as usize;
        let words = &mut self.owners[start..start + (1 << order)];
        debug_assert!(!words.iter().any(|&word| layout::is_cache(word)), "{frame:?} is cache");
        // A single word is stored directly: calling `fill` would take longer than all other work of this function.
        if let [word] = words {
            *word = 0;
        } else {
            words.fill(0);
        }
        let (zone, block) = self.locate_mut(frame);
        zone.blocks[block].flags &= !WHOLE;
        zone.give(block, frame.slot(), order);
    }

    /// Frees contiguous frames as the largest possible aligned blocks.
    pub(crate) fn free_run(&mut self, first: Frame, count: u32) {
        let (mut at, end) = (first.0, first.0 + count);
        while at < end {
            let order = at.trailing_zeros().min((end - at).ilog2()).min(PAGEBLOCK_ORDER.into());
            self.free(Frame(at), order as u8);
            at += 1 << order;
        }
    }

    /// Prefetches the record of a frame's pageblock into the host's caches, for a later free.
    #[inline]
    pub(crate) fn prefetch_block(&self, frame: Frame) {
        let (zone, block) = self.locate(frame);
        zone.prefetch(block);
    }

    /// Frees the held frames without owner in the pageblock at `block`.
    pub fn free_unowned(&mut self, block: Frame) {
        for frame in (block.0..block.0 + PAGEBLOCK).map(Frame) {
            if self.owner(frame) == Owner::None && !self.is_free(frame) {
                self.free(frame, 0);
            }
        }
    }

    /// Sets the owner of an allocated frame.
    #[inline]
    pub fn set_owner(&mut self, frame: Frame, owner: Owner) {
        let new = owner.pack();
        let word = std::mem::replace(&mut self.owners[frame.0 as usize], new);
        self.cache += u64::from(layout::is_cache(new));
        self.cache -= u64::from(layout::is_cache(word));
    }

    /// Sets the page of a frame that had no owner.
    #[inline]
    pub(crate) fn set_first_page(&mut self, frame: Frame, page: trace::Page) {
        debug_assert_eq!(self.owners[frame.0 as usize], 0, "{frame:?} is used");
        self.owners[frame.0 as usize] = Owner::Page(page).pack();
    }

    /// Prefetches a frame's owner word into the host's caches.
    #[inline]
    pub(crate) fn prefetch_owner(&self, frame: Frame) {
        prefetch_index(&self.owners, frame.0 as usize);
    }

    /// Sets the owners of `count` frames from `frame` on to consecutive pages from `first` on.
    pub fn set_pages(&mut self, frame: Frame, count: u32, first: trace::Page) {
        let start = frame.0 as usize;
        let words = &mut self.owners[start..start + count as usize];
        self.cache -= words.iter().filter(|&&word| layout::is_cache(word)).count() as u64;
        for (word, page) in words.iter_mut().zip(first.0..) {
            *word = Owner::Page(trace::Page(page)).pack();
        }
    }

    /// Returns the owner of a frame.
    #[inline]
    pub fn owner(&self, frame: Frame) -> Owner {
        match Owner::unpack(self.owners[frame.0 as usize]) {
            Owner::None if self.boot.iter().any(|boot| boot.contains(&frame.0)) => Owner::Kernel,
            owner => owner,
        }
    }

    /// Returns whether a frame is free.
    pub fn is_free(&self, frame: Frame) -> bool {
        self.zones[self.zone_of(frame)].is_free(frame)
    }

    /// Marks the pageblock of `frame` as one superpage of a program, or clears the mark. Compaction skips marked
    /// pageblocks. Freeing any part clears the mark.
    pub fn set_superpage(&mut self, frame: Frame, whole: bool) {
        let (zone, block) = self.locate_mut(frame);
        let flags = &mut zone.blocks[block].flags;
        *flags = if whole { *flags | WHOLE } else { *flags & !WHOLE };
    }

    /// Returns whether the pageblock is marked as a superpage.
    pub fn is_superpage(&self, frame: Frame) -> bool {
        let (zone, block) = self.locate(frame);
        zone.blocks[block].flags & WHOLE != 0
    }

    /// Returns the node number of a frame.
    pub fn node(&self, frame: Frame) -> usize {
        self.zones[self.zone_of(frame)].node
    }

    /// Returns whether there are several nodes, or a movable-only partition.
    pub fn is_divided(&self) -> bool {
        self.zones.len() > 1
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.zonelists.len()
    }

    /// Returns whether a frame lies in a movable-only partition.
    pub fn is_movable_only(&self, frame: Frame) -> bool {
        self.zones[self.zone_of(frame)].kind == ZoneKind::Movable
    }

    /// Returns the mobility of a frame's pageblock.
    pub fn mobility(&self, frame: Frame) -> Mobility {
        let (zone, block) = self.locate(frame);
        zone.blocks[block].mobility
    }

    /// Returns the number of frames in the page cache.
    pub const fn cache_frames(&self) -> u64 {
        self.cache
    }

    /// Returns the zone of a frame, and the index of the frame's pageblock in the zone.
    #[inline]
    fn locate(&self, frame: Frame) -> (&Zone, usize) {
        let zone = &self.zones[self.zone_of(frame)];
        (zone, zone.block_of(frame))
    }

    #[inline]
    pub(crate) fn locate_mut(&mut self, frame: Frame) -> (&mut Zone, usize) {
        let zone = self.zone_of(frame);
        let zone = &mut self.zones[zone];
        let block = zone.block_of(frame);
        (zone, block)
    }

    #[inline]
    pub(crate) fn zone_of(&self, frame: Frame) -> usize {
        let mut number = 0;
        while number + 1 < self.zones.len() && frame >= self.zones[number].end() {
            number += 1;
        }
        number
    }
}

/// Returns the first frame of each pageblock in a run.
pub(super) fn pageblocks(run: &Range<u32>) -> impl Iterator<Item = Frame> + use<> {
    run.clone().step_by(PAGEBLOCK as usize).map(Frame)
}

/// Returns the number of pageblocks in `bytes`, rounded down to pairs.
const fn pairs(bytes: u64) -> usize {
    (bytes / (FRAME_BYTES << MAX_ORDER)) as usize * 2
}

/// Returns the zones that a request on `node` tries: those of `node`, then those of the other nodes by number, wrapping
/// around. Within a node, the movable-only partition comes first if the request may use it (Linux' zonelists).
fn zonelists(zones: &[Zone], node: usize, shape: &Shape) -> [Vec<usize>; 2] {
    let count = shape.nodes.len();
    let nodes = || (0..count).map(move |step| (node + step) % count);
    let of = |node, kind| zones.iter().position(|zone| zone.node == node && zone.kind == kind);
    [
        nodes()
            .flat_map(|node| [of(node, ZoneKind::Movable), of(node, ZoneKind::Normal)])
            .flatten()
            .collect(),
        nodes().filter_map(|node| of(node, ZoneKind::Normal)).collect(),
    ]
}
