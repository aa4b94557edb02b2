//! The explicit pool (hugetlb): superpages reserved at mmap, so that faults cannot fail.
//!
//! `crate::hugetlb` does the accounting. The pool backs the whole superpages of a mapping. A heap is rounded up,
//! because a heap on the pool grows by whole superpages (libhugetlbfs' morecore). Other mappings are rounded down to
//! whole superpages, and their ends use base pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use policy::{Action, Attempt, Event, Facts};
use trace::{Backing, Page, Pages, Region, SLOTS};

use super::clock::Payer;
use super::frames::{LARGE_ORDER, Users};
use super::spaces::Spaces;
use super::spaces::region::{NO_TABLE, POOL};
use super::{Stop, System, spaces};
use crate::Cause;
use crate::hugetlb::{Fault, Frames, HugetlbPool, Kind, MappingId, Place, Request};
use crate::memory::compaction::{Mode, evacuate_run};
use crate::memory::{Frame, Memory, Mobility, Owner};

#[derive(Debug)]
pub(crate) struct Pool {
    pool: Option<HugetlbPool>,
    /// log2 of the regions per pool page.
    group: u32,
    /// For each mapping, in pool pages: the first backed page, the original number of pages, and the number of pages
    /// left.
    windows: BTreeMap<u32, (u32, u32, u32)>,
    /// Mappings that no longer grow, because their end was unmapped.
    ended: BTreeSet<u32>,
}

/// The physical memory from which the pool allocates.
struct Physical<'a> {
    memory: &'a mut Memory,
    /// log2 of the regions per pool page.
    group: u32,
}

impl Physical<'_> {
    fn blocks(&self, first: Frame) -> impl Iterator<Item = Frame> + use<> {
        (0..1 << self.group).map(move |block| Frame(first.0 + block * SLOTS))
    }
}

impl Frames for Physical<'_> {
    fn allocate(&mut self, node: u8) -> Option<Frame> {
        let first = match self.group {
            0 => self.memory.allocate_on(LARGE_ORDER, Mobility::Movable, node.into())?.frame,
            group => self.memory.allocate_contiguous(LARGE_ORDER + group as u8, node.into())?,
        };
        for block in self.blocks(first) {
            self.memory.set_owner(block, Owner::Pinned);
            self.memory.set_superpage(block, true);
        }
        Some(first)
    }
    fn free(&mut self, frame: Frame, _: u8) {
        for block in self.blocks(frame) {
            self.memory.free(block, LARGE_ORDER);
        }
    }
}

impl Pool {
    /// Creates a design's pool, filled from the memory of a freshly booted machine. A pool without a size allocates
    /// pages when mappings are made (overcommit).
    pub(crate) fn new(pool: Option<Option<u64>>, memory: &mut Memory, group: u32) -> Self {
        let pool = pool.map(|size| {
            let overcommit = if size.is_none() { u64::from(memory.frames()) } else { 0 };
            let mut pool = HugetlbPool::new(memory.nodes() as u8, overcommit);
            pool.resize(size.unwrap_or(0), None, &mut Physical { memory, group });
            pool
        });
        Self { pool, group, windows: BTreeMap::new(), ended: BTreeSet::new() }
    }

    /// Allocates a pool page from any node; `None` if no memory is free.
    pub(crate) fn take(&self, memory: &mut Memory) -> Option<Frame> {
        let nodes = memory.nodes() as u8;
        let mut physical = Physical { memory, group: self.group };
        (0..nodes).find_map(|node| physical.allocate(node))
    }

    pub(crate) fn put(&self, memory: &mut Memory, frame: Frame) {
        Physical { memory, group: self.group }.free(frame, 0);
    }

    /// Returns whether the pool may allocate pages at mmap.
    pub(crate) fn grows(&self) -> bool {
        self.pool.as_ref().is_some_and(HugetlbPool::grows)
    }

    pub(crate) fn pages(&self) -> u32 {
        SLOTS << self.group
    }

    /// Returns the regions of the pool page around a region.
    pub(crate) fn regions(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let first = region.0 >> self.group << self.group;
        (first..first + (1 << self.group)).map(Region)
    }

    fn number(&self, region: Region) -> u32 {
        region.0 >> self.group
    }

    /// Returns the first frame of each region of all pool pages.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Frame> {
        let frames = self.pool.iter().flat_map(HugetlbPool::frames);
        frames
            .flat_map(|frame| (0..1 << self.group).map(move |block| Frame(frame.0 + block * SLOTS)))
    }

    /// Checks the pool. Returns the first frame of each region of all pool pages, or the first error.
    pub(crate) fn verify(&self) -> Result<BTreeSet<u32>, String> {
        let Some(pool) = &self.pool else { return Ok(BTreeSet::new()) };
        pool.verify()?;
        let mut all = BTreeSet::new();
        for frame in self.blocks() {
            if !all.insert(frame.0) {
                return Err(format!("{frame:?} is in the pool twice"));
            }
        }
        Ok(all)
    }

    /// Returns the first frame of a region of a mapping.
    pub(crate) fn page(&self, id: u32, region: Region) -> Option<Frame> {
        let pool = self.pool.as_ref().filter(|_| self.backs(id, region))?;
        let page = pool.page(MappingId(id), self.number(region) - self.window(id).0)?;
        Some(Frame(page.0 + (region.0 & ((1 << self.group) - 1)) * SLOTS))
    }

    /// Returns the window of a mapping that the pool backs; empty after all of it was unmapped.
    fn window(&self, id: u32) -> (u32, u32, u32) {
        self.windows.get(&id).copied().unwrap_or_default()
    }

    pub(crate) fn exists(&self) -> bool {
        self.pool.is_some()
    }

    fn accounting(&mut self) -> &mut HugetlbPool {
        self.pool.as_mut().expect("only called if there is a pool")
    }

    /// Reserves `count` pages from number `first` on. Returns the mapping's number, or the number of missing pages as
    /// error.
    pub(crate) fn map(&mut self, memory: &mut Memory, first: u32, count: u32) -> Result<u32, u64> {
        let request =
            Request { kind: Kind::Private, pages: count, reserve: true, place: Place::ANY };
        let group = self.group;
        let mapped = self.accounting().map(request, &mut Physical { memory, group });
        let id = mapped.map_err(|short| short.short_by)?.0;
        self.windows.insert(id, (first, count, count));
        Ok(id)
    }

    /// Reserves more pages, until a mapping has `wanted`.
    pub(crate) fn extend(&mut self, memory: &mut Memory, id: u32, wanted: u32) -> Result<(), u64> {
        let (first, count, left) = self.window(id);
        let more = wanted - count;
        let physical = &mut Physical { memory, group: self.group };
        let extended = self.accounting().extend(MappingId(id), more, Place::ANY, physical);
        extended.map_err(|short| short.short_by)?;
        self.windows.insert(id, (first, wanted, left + more));
        Ok(())
    }

    /// Returns a mapping's first page and the number of pages it needs to end at base page `end`; `None` if it has
    /// enough.
    pub(crate) fn grown(&self, id: u32, end: u32) -> Option<(u32, u32)> {
        let (first, count, _) = self.window(id);
        let wanted = end.div_ceil(self.pages()).saturating_sub(first);
        (wanted > count).then_some((first, wanted))
    }

    /// Unmaps pages, and releases used and reserved pool pages. Returns their regions.
    pub(crate) fn unmap(
        &mut self,
        memory: &mut Memory,
        id: u32,
        (first, end): (u32, u32),
    ) -> Range<u32> {
        let (start, Range { start: from, end: to }) = self.range(id, first, end);
        if from < to {
            let physical = &mut Physical { memory, group: self.group };
            self.accounting().unmap(MappingId(id), from, to, physical);
            let (_, count, left) = self.windows.get_mut(&id).expect("it backs some of them");
            *left -= to - from;
            if to == *count {
                *count = from;
                self.ended.insert(id);
            }
            if *left == 0 {
                self.windows.remove(&id);
            }
        }
        (start + from) << self.group..(start + to) << self.group
    }

    /// Frees pages but restores their reservation. Returns their regions.
    pub(crate) fn discard(
        &mut self,
        memory: &mut Memory,
        id: u32,
        (first, end): (u32, u32),
    ) -> Range<u32> {
        let (start, Range { start: from, end: to }) = self.range(id, first, end);
        if from < to {
            let physical = &mut Physical { memory, group: self.group };
            self.accounting().discard(MappingId(id), from, to, physical);
        }
        (start + from) << self.group..(start + to) << self.group
    }

    pub(crate) fn fault(
        &mut self,
        memory: &mut Memory,
        id: u32,
        region: Region,
        write: bool,
    ) -> Fault {
        let index = self.number(region) - self.window(id).0;
        let physical = &mut Physical { memory, group: self.group };
        self.accounting().fault(MappingId(id), index, write, Place::ANY, physical)
    }

    /// Returns the first region in mapping `other` of the pool page at `region` of mapping `id`.
    pub(crate) fn same_page(&self, id: u32, region: Region, other: MappingId) -> Region {
        let index = self.number(region) - self.window(id).0;
        Region((self.window(other.0).0 + index) << self.group)
    }

    /// Returns whether pool pages at the end of a heap were unmapped. `end` is the heap's current end. If so, growth
    /// needs a new mapping.
    pub(crate) fn has_ended(&self, id: u32, end: u32) -> bool {
        let (first, count, _) = self.window(id);
        self.ended.contains(&id) || end.div_ceil(self.pages()) < first + count
    }

    pub(crate) fn backs(&self, id: u32, region: Region) -> bool {
        let (first, count, _) = self.window(id);
        (first..first + count).contains(&self.number(region))
    }

    /// Returns a mapping's first page, and the backed pages among `first..end` (base pages), relative to it.
    fn range(&self, id: u32, first: u32, end: u32) -> (u32, Range<u32>) {
        let (start, count, _) = self.window(id);
        let index = |page: u32| page.div_ceil(self.pages()).saturating_sub(start).min(count);
        (start, index(first)..index(end).max(index(first)))
    }

    /// Returns the part of `pages` that may be unmapped or discarded. An edge inside a pool page moves inwards to that
    /// page's boundary. (The kernel refuses such a call, and nothing of the page is freed.)
    pub(crate) fn trim(&self, spaces: &Spaces, pages: Pages) -> Pages {
        if self.pool.is_none() {
            return pages;
        }
        let Some(process) = spaces.process(spaces.running()) else { return pages };
        // Advice may have split the mapping inside a pool page.
        let pool = |page: u32| {
            let found = process.find(Page(page)).and_then(|(_, mapping)| mapping.pool);
            found.filter(|&id| self.backs(id, Page(page).region()))
        };
        let size = self.pages();
        let in_pool_page =
            |at: u32| !at.is_multiple_of(size) && pool(at).is_some() && pool(at) == pool(at - 1);
        let (mut first, mut end) = (pages.first.0, pages.end().0);
        if in_pool_page(first) {
            first = first.next_multiple_of(size);
        }
        if in_pool_page(end) {
            end = end / size * size;
        }
        Pages { first: Page(first), count: end.saturating_sub(first) }
    }

    /// Returns the parts of `pages` that can be newly mapped. If a program unmaps part of a pool page and maps it
    /// again, the old page is still there.
    pub(crate) fn leftover(&self, spaces: &Spaces, pages: Pages) -> Vec<Pages> {
        let end = pages.end().0;
        let own = spaces.process(spaces.running());
        let mut parts = Vec::new();
        let mut at = pages.first.0;
        let kept: Vec<(u32, u32)> = own
            .filter(|_| self.pool.is_some())
            .into_iter()
            .flat_map(|own| own.mappings_before(end))
            .filter(|(_, mapping)| mapping.pool.is_some() && mapping.end > at)
            .map(|(first, mapping)| (first, mapping.end))
            .collect();
        for (first, past) in kept {
            if first > at {
                parts.push(Pages { first: Page(at), count: first - at });
            }
            at = past;
        }
        if at < end {
            parts.push(Pages { first: Page(at), count: end - at });
        }
        parts
    }

    /// Returns the mapping whose pool page covers this region, even if `place` itself is a neighbouring mapping.
    pub(crate) fn of(&self, spaces: &Spaces, region: Region, place: spaces::Place) -> Option<u32> {
        if let Some(id) = place.1.pool.filter(|&id| self.backs(id, region)) {
            return Some(id);
        }
        let own = spaces.owner(spaces.at(region))?;
        let found = own.mappings_before(region.next().first().0).rev().map(|(_, at)| at);
        found
            .take_while(|at| at.end > region.first().0)
            .find_map(|at| at.pool.filter(|&id| self.backs(id, region)))
    }

    /// Returns the base pages of a mapping that the pool backs or has backed.
    pub(crate) fn backed(&self, id: u32) -> Pages {
        let (first, count, _) = self.window(id);
        Pages { first: Page(first * self.pages()), count: count * self.pages() }
    }

    /// Copies a mapping for a child, which shares the pages but not the reservations.
    pub(crate) fn fork(&mut self, id: u32, offset: u32) -> Option<u32> {
        if !self.windows.contains_key(&id) {
            // All of the mapping's pool pages were unmapped.
            return None;
        }
        let (first, count, left) = self.window(id);
        let pool = self.pool.as_mut().expect("a mapping of the pool");
        let child = pool.fork(MappingId(id)).0;
        self.windows.insert(child, (first + (offset >> self.group), count, left));
        if self.ended.contains(&id) {
            self.ended.insert(child);
        }
        Some(child)
    }
}

// Mappings of the explicit pool: create, grow, unmap, fault.

impl System {
    /// Maps memory from the pool. Returns the mapping's number, or `None` if the pool does not back it.
    pub(crate) fn pool_map(&mut self, pages: Pages, backing: Backing) -> Result<Option<u32>, Stop> {
        // Fragmenters do not use the pool.
        if !self.pool.exists() || !self.daemons.are_awake() {
            return Ok(None);
        }
        let end = pages.end().0;
        let size = self.pool.pages();
        let first = pages.first.0.div_ceil(size);
        let last = if backing == Backing::Heap { end.div_ceil(size) } else { end / size };
        // A heap that lies within one superpage still gets a mapping, which can grow.
        if last <= first && backing != Backing::Heap {
            return Ok(None);
        }
        let count = last.saturating_sub(first);
        let id = self.pool_ask(|pool, memory| pool.map(memory, first, count))?;
        if id.is_some() {
            self.take_for_pool(Pages { first: Page(first * size), count: count * size });
        }
        Ok(id)
    }

    /// Gives the regions of pool pages to the running process, even past the mapping's end.
    fn take_for_pool(&mut self, pages: Pages) {
        self.spaces.cover(pages);
        if pages.count > 0 {
            self.spaces.take_free_regions(pages, self.spaces.running());
        }
    }

    /// Asks the pool for pages. If the pool has too few, frees the missing superpages and asks once more. Then performs
    /// the design's rule for shortage.
    fn pool_ask<R>(
        &mut self,
        mut ask: impl FnMut(&mut Pool, &mut Memory) -> Result<R, u64>,
    ) -> Result<Option<R>, Stop> {
        let short_by = match ask(&mut self.pool, &mut self.memory) {
            Ok(done) => return Ok(Some(done)),
            Err(short_by) => short_by,
        };
        let (short_by, then) = match self.free_for_pool(short_by) {
            Err(refused) => refused,
            Ok(()) => match ask(&mut self.pool, &mut self.memory) {
                Ok(done) => return Ok(Some(done)),
                Err(short_by) => (short_by, self.no_pool_page(Attempt::Reclaim)),
            },
        };
        if then == Action::Refuse {
            return Err(Stop::Refused { short_by });
        }
        self.counters.fallbacks += 1;
        Ok(None)
    }

    fn no_pool_page(&mut self, tried: Attempt) -> Action {
        self.policy.on(Event::NoPoolPage { tried }, &Facts::default())
    }

    /// Makes `missing` more superpages free, one at a time, by the actions that the policy answers with, as the kernel's
    /// pool does (`alloc_buddy_hugetlb_folio` with `__GFP_RETRY_MAYFAIL`). Superpages that are free already are held meanwhile,
    /// so they are counted once and no page moves into them. On failure, returns the number still missing and the
    /// action to take. See docs/decisions/lab-model.md#15.
    fn free_for_pool(&mut self, missing: u64) -> Result<(), (u64, Action)> {
        let mut held = Vec::new();
        while let Some(frame) = self.pool.take(&mut self.memory) {
            held.push(frame);
        }
        let mut left = if self.pool.grows() { missing } else { 0 };
        let mut tried = Attempt::Nothing;
        let mut refused = None;
        while left > 0 {
            let action = self.no_pool_page(tried);
            tried = match action {
                Action::Compact { .. } => {
                    self.compact_for_pool();
                    Attempt::Compaction
                }
                // Reclaim frees no run of several regions (`alloc_contig_pages` does not reclaim).
                Action::Reclaim { .. } if self.group > 0 => Attempt::Reclaim,
                Action::Reclaim { pages, lumpy, .. } => {
                    self.reclaim(Payer::Program, pages, lumpy);
                    Attempt::Reclaim
                }
                _ => {
                    refused = Some((left, action));
                    break;
                }
            };
            while left > 0
                && let Some(frame) = self.pool.take(&mut self.memory)
            {
                held.push(frame);
                left -= 1;
                tried = Attempt::Nothing;
            }
        }
        held.into_iter().for_each(|frame| self.pool.put(&mut self.memory, frame));
        refused.map_or(Ok(()), Err)
    }

    /// Frees a pool page by compaction. A pool page of several regions is larger than any buddy block, so an aligned
    /// run is evacuated.
    fn compact_for_pool(&mut self) {
        if self.group == 0 {
            self.compact(Payer::Program, Mode::Sync);
            return;
        }
        let order = LARGE_ORDER + self.group as u8;
        for node in 0..self.memory.nodes() {
            let mut users = Users { spaces: &mut self.spaces, frames: &mut self.frames };
            let done = evacuate_run(&mut self.memory, &mut users, order, node);
            let (moved, looked_at) = (u64::from(done.moved), done.moved + done.taken + done.stay);
            let cost =
                u64::from(looked_at) * self.costs.scan_page + moved * self.costs.migrate_page;
            self.clock.spend(Cause::Compact, cost);
            self.counters.compactions += 1;
            self.counters.migrated += moved;
            if looked_at > 0 && done.stay == 0 {
                break;
            }
        }
    }

    /// Extends a heap on the pool to base page `end`.
    pub(crate) fn pool_grow(&mut self, id: u32, end: u32) -> Result<(), Stop> {
        let Some((first, wanted)) = self.pool.grown(id, end) else { return Ok(()) };
        if self.pool_ask(|pool, memory| pool.extend(memory, id, wanted))?.is_some() {
            let size = self.pool.pages();
            self.take_for_pool(Pages { first: Page(first * size), count: wanted * size });
        }
        Ok(())
    }

    /// Unmaps the pages `first..end` of a mapping, and everything else that is mapped in the released pool pages: a
    /// heap's last page reaches past the heap's end, and parts of one mapping may meet within a pool page.
    pub(crate) fn pool_unmap(&mut self, id: u32, first: u32, end: u32) {
        let gone = self.pool.unmap(&mut self.memory, id, (first, end));
        gone.map(Region).for_each(|region| self.unmap_of_pool(region));
    }

    pub(crate) fn pool_discard(&mut self, id: u32, first: u32, end: u32) {
        let gone = self.pool.discard(&mut self.memory, id, (first, end));
        gone.map(Region).for_each(|region| self.unmap_of_pool(region));
    }

    fn unmap_of_pool(&mut self, region: Region) {
        if self.spaces.at(region).has(POOL) {
            self.unmap_pool(region);
        }
    }

    pub(crate) fn pool_fault(&mut self, page: Page, id: u32, write: bool) -> Result<(), Stop> {
        let region = page.region();
        let found = self.pool.fault(&mut self.memory, id, region, write);
        self.clock.spend(Cause::Fault, self.costs.superpage_fault);
        match found {
            Fault::Fresh { frame, .. } => {
                self.clock.spend(Cause::Zero, self.costs.zero_larger);
                self.counters.zeroed += u64::from(self.pool.pages());
                self.counters.superpage_faults += 1;
                self.counters.made_at_fault += 1;
                self.map_pool(region, frame);
            }
            Fault::Present(frame) => {
                if self.spaces.is_large(region) {
                    self.take_pool(region);
                } else {
                    self.map_pool(region, frame);
                }
            }
            Fault::Copied { to, .. } => {
                let pages = u64::from(self.pool.pages());
                self.clock.spend(Cause::Copy, self.costs.copy_page * pages);
                self.counters.copied += pages;
                self.unmap_pool(region);
                self.map_pool(region, to);
            }
            Fault::Robbed { children, .. } => {
                for child in children {
                    self.unmap_pool(self.pool.same_page(id, region, child));
                }
                self.take_pool(region);
            }
            Fault::Killed(why) => return Err(Stop::Killed(format!("{why:?}"))),
        }
        Ok(())
    }

    fn map_pool(&mut self, region: Region, frame: Frame) {
        for (number, region) in (0..).zip(self.pool.regions(region)) {
            self.map_region_of_pool(region, Frame(frame.0 + number * SLOTS));
        }
    }

    /// Makes a pool page writable for its only remaining user.
    fn take_pool(&mut self, region: Region) {
        self.pool.regions(region).for_each(|region| self.spaces.take_large(region));
    }

    fn map_region_of_pool(&mut self, region: Region, frame: Frame) {
        if self.spaces.at(region).place != NO_TABLE && !self.spaces.is_large(region) {
            // A mapping next to a heap has base pages here.
            self.release(region.pages());
        }
        self.spaces.map_large(region, frame, true);
        self.spaces.mark(region, POOL);
        self.spaces.join_larger(region);
    }

    fn unmap_pool(&mut self, region: Region) {
        for region in self.pool.regions(region) {
            if self.spaces.is_large(region) {
                self.spaces.unmap_large(region);
            }
        }
    }
}
