//! The explicit pool (hugetlb): superpages set aside when memory is mapped, so that faults cannot fail.
//!
//! The accounting is `crate::hugetlb`'s. A mapping's whole superpages are the pool's; a heap's are rounded
//! up, as a heap on the pool grows by whole superpages (libhugetlbfs' morecore), another mapping's
//! down, and what is left of it stays on base pages.

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

/// The pool of a system.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: Option<HugetlbPool>,
    /// log2 of the regions per pool page.
    group: u32,
    /// By mapping, in pool pages: the first backed page, the original number, the number left.
    windows: BTreeMap<u32, (u32, u32, u32)>,
    /// Mappings whose end was unmapped: they do not grow again.
    ended: BTreeSet<u32>,
}

/// Physical memory for the pool.
struct Physical<'a> {
    memory: &'a mut Memory,
    /// log2 of the regions per pool page.
    group: u32,
}

impl Physical<'_> {
    /// The pageblocks of a pool page.
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
    /// The pool of a design, filled from the memory of a machine that has just booted. Without a size it takes
    /// what mappings need, when they are made (overcommit).
    pub(crate) fn new(pool: Option<Option<u64>>, memory: &mut Memory, group: u32) -> Self {
        let pool = pool.map(|size| {
            let overcommit = if size.is_none() { u64::from(memory.frames()) } else { 0 };
            let mut pool = HugetlbPool::new(memory.nodes() as u8, overcommit);
            pool.resize(size.unwrap_or(0), None, &mut Physical { memory, group });
            pool
        });
        Self { pool, group, windows: BTreeMap::new(), ended: BTreeSet::new() }
    }

    /// Allocates memory for a pool page on any node; `None`: none is free.
    pub(crate) fn take(&self, memory: &mut Memory) -> Option<Frame> {
        let nodes = memory.nodes() as u8;
        let mut physical = Physical { memory, group: self.group };
        (0..nodes).find_map(|node| physical.allocate(node))
    }

    /// Frees a pool page.
    pub(crate) fn put(&self, memory: &mut Memory, frame: Frame) {
        Physical { memory, group: self.group }.free(frame, 0);
    }

    /// Whether the pool allocates pages from memory when they are mapped.
    pub(crate) fn grows(&self) -> bool {
        self.pool.as_ref().is_some_and(HugetlbPool::grows)
    }

    /// Base pages per pool page.
    pub(crate) fn pages(&self) -> u32 {
        SLOTS << self.group
    }

    /// The regions of the pool page around a region.
    pub(crate) fn regions(&self, region: Region) -> impl Iterator<Item = Region> + use<> {
        let first = region.0 >> self.group << self.group;
        (first..first + (1 << self.group)).map(Region)
    }

    /// Number of the pool page around a region.
    fn number(&self, region: Region) -> u32 {
        region.0 >> self.group
    }

    /// The first frames of all its pages' regions.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Frame> {
        let frames = self.pool.iter().flat_map(HugetlbPool::frames);
        frames
            .flat_map(|frame| (0..1 << self.group).map(move |block| Frame(frame.0 + block * SLOTS)))
    }

    /// The first frames of all pool pages' regions, or the first error.
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

    /// The frames behind a region of a mapping.
    pub(crate) fn page(&self, id: u32, region: Region) -> Option<Frame> {
        let pool = self.pool.as_ref().filter(|_| self.backs(id, region))?;
        let page = pool.page(MappingId(id), self.number(region) - self.window(id).0)?;
        Some(Frame(page.0 + (region.0 & ((1 << self.group) - 1)) * SLOTS))
    }

    /// The window that the pool backs of a mapping; empty once all of it is unmapped.
    fn window(&self, id: u32) -> (u32, u32, u32) {
        self.windows.get(&id).copied().unwrap_or_default()
    }

    /// Whether the design has a pool.
    pub(crate) fn exists(&self) -> bool {
        self.pool.is_some()
    }

    fn accounting(&mut self) -> &mut HugetlbPool {
        self.pool.as_mut().expect("asked only where there is one")
    }

    /// Reserves `count` pages from number `first` on. Returns the mapping's number; the error is the number of
    /// missing pages.
    pub(crate) fn map(&mut self, memory: &mut Memory, first: u32, count: u32) -> Result<u32, u64> {
        let request =
            Request { kind: Kind::Private, pages: count, reserve: true, place: Place::ANY };
        let group = self.group;
        let mapped = self.accounting().map(request, &mut Physical { memory, group });
        let id = mapped.map_err(|short| short.short_by)?.0;
        self.windows.insert(id, (first, count, count));
        Ok(id)
    }

    /// Reserves further pages, so that a mapping has `wanted`.
    pub(crate) fn extend(&mut self, memory: &mut Memory, id: u32, wanted: u32) -> Result<(), u64> {
        let (first, count, left) = self.window(id);
        let more = wanted - count;
        let physical = &mut Physical { memory, group: self.group };
        let extended = self.accounting().extend(MappingId(id), more, Place::ANY, physical);
        extended.map_err(|short| short.short_by)?;
        self.windows.insert(id, (first, wanted, left + more));
        Ok(())
    }

    /// The first page of a mapping, and the number of pages if it ends at base page `end`; `None`: unchanged.
    pub(crate) fn grown(&self, id: u32, end: u32) -> Option<(u32, u32)> {
        let (first, count, _) = self.window(id);
        let wanted = end.div_ceil(self.pages()).saturating_sub(first);
        (wanted > count).then_some((first, wanted))
    }

    /// Unmaps pages and releases used and reserved pool pages. Returns their regions.
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

    /// Discards pages and restores their reservation. Returns their regions.
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

    /// Handles a fault on the page behind a region of a mapping.
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

    /// The first region of another mapping that maps the same pool page as a region of this one.
    pub(crate) fn same_page(&self, id: u32, region: Region, other: MappingId) -> Region {
        let index = self.number(region) - self.window(id).0;
        Region((self.window(other.0).0 + index) << self.group)
    }

    /// Whether pages of the pool behind a heap's end (now at page `end`) were unmapped: what it grows by is
    /// mapped anew.
    pub(crate) fn has_ended(&self, id: u32, end: u32) -> bool {
        let (first, count, _) = self.window(id);
        self.ended.contains(&id) || end.div_ceil(self.pages()) < first + count
    }

    /// Whether the pool backs this region of a mapping.
    pub(crate) fn backs(&self, id: u32, region: Region) -> bool {
        let (first, count, _) = self.window(id);
        (first..first + count).contains(&self.number(region))
    }

    /// The first page of a mapping, and those of `first..end` (base pages) that the pool backs, counted from it.
    fn range(&self, id: u32, first: u32, end: u32) -> (u32, Range<u32>) {
        let (start, count, _) = self.window(id);
        let index = |page: u32| page.div_ceil(self.pages()).saturating_sub(start).min(count);
        (start, index(first)..index(end).max(index(first)))
    }

    /// The part of `pages` that may be unmapped or discarded: an edge within a superpage of the pool moves
    /// inwards to that superpage's end (the kernel refuses such a call; then nothing goes of that page).
    pub(crate) fn trim(&self, spaces: &Spaces, pages: Pages) -> Pages {
        if self.pool.is_none() {
            return pages;
        }
        let Some(process) = spaces.process(spaces.running()) else { return pages };
        // Advice may have cut the mapping there: the page is one all the same.
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

    /// The parts of `pages` that can be mapped anew: where a program unmaps a part of a page of the pool and
    /// maps it again, the old page is there still.
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

    /// The mapping in the pool that has a page in this region, if `place` is not of it but only beside it.
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

    /// The base pages that the pool backs, or backed, of a mapping.
    pub(crate) fn backed(&self, id: u32) -> Pages {
        let (first, count, _) = self.window(id);
        Pages { first: Page(first * self.pages()), count: count * self.pages() }
    }

    /// A child's copy of a mapping: shares the pages, not the reservations.
    pub(crate) fn fork(&mut self, id: u32, offset: u32) -> Option<u32> {
        if !self.windows.contains_key(&id) {
            // All that the pool backed of it is unmapped.
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

// Mappings of the explicit pool: creation, growth, unmapping, faults.

impl System {
    /// Maps memory from the pool: `Some` if the pool backs its superpages.
    pub(crate) fn pool_map(&mut self, pages: Pages, backing: Backing) -> Result<Option<u32>, Stop> {
        // A fragmenter does not use the pool.
        if !self.pool.exists() || !self.daemons.are_awake() {
            return Ok(None);
        }
        let end = pages.end().0;
        let size = self.pool.pages();
        let first = pages.first.0.div_ceil(size);
        let last = if backing == Backing::Heap { end.div_ceil(size) } else { end / size };
        // A heap that begins within a superpage has its first one rounded up to.
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

    /// Gives the regions that the pool backs to the running process, even past the mapping's end.
    fn take_for_pool(&mut self, pages: Pages) {
        self.spaces.cover(pages);
        if pages.count > 0 {
            self.spaces.take_free_regions(pages, self.spaces.running());
        }
    }

    /// Asks the pool, once more with the superpages that it is short of made free; then what the design says of
    /// shortage.
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

    /// Makes this number of further superpages free, one by one by what the policy says, as a pool allocates them
    /// (`alloc_buddy_hugetlb_folio` with `__GFP_RETRY_MAYFAIL`). Those that are free already are held meanwhile: they are
    /// counted once, and nothing is moved into them. An error: how many are missing still, and what is to be done then.
    /// See docs/decisions/lab-model.md#15.
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
                // No reclaim brings a run of several regions (`alloc_contig_pages` does none).
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

    /// Superpages of several regions are no blocks of the buddy allocator: pages are moved out of an aligned run.
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

    /// Sets the end of a heap on the pool to page `end`.
    pub(crate) fn pool_grow(&mut self, id: u32, end: u32) -> Result<(), Stop> {
        let Some((first, wanted)) = self.pool.grown(id, end) else { return Ok(()) };
        if self.pool_ask(|pool, memory| pool.extend(memory, id, wanted))?.is_some() {
            let size = self.pool.pages();
            self.take_for_pool(Pages { first: Page(first * size), count: wanted * size });
        }
        Ok(())
    }

    /// Pages `first..end` of a mapping are unmapped. What is mapped still of pages that the pool has back goes too: a
    /// heap's last page reaches past the heap's end, and parts of one mapping may meet within a page.
    pub(crate) fn pool_unmap(&mut self, id: u32, first: u32, end: u32) {
        let gone = self.pool.unmap(&mut self.memory, id, (first, end));
        gone.map(Region).for_each(|region| self.unmap_of_pool(region));
    }

    /// Discards pages `first..end` of a mapping.
    pub(crate) fn pool_discard(&mut self, id: u32, first: u32, end: u32) {
        let gone = self.pool.discard(&mut self.memory, id, (first, end));
        gone.map(Region).for_each(|region| self.unmap_of_pool(region));
    }

    fn unmap_of_pool(&mut self, region: Region) {
        if self.spaces.at(region).has(POOL) {
            self.unmap_pool(region);
        }
    }

    /// Handles a fault on a page that the pool backs.
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

    /// Maps all regions of a pool page.
    fn map_pool(&mut self, region: Region, frame: Frame) {
        for (number, region) in (0..).zip(self.pool.regions(region)) {
            self.map_region_of_pool(region, Frame(frame.0 + number * SLOTS));
        }
    }

    /// Makes the page writable by its only owner.
    fn take_pool(&mut self, region: Region) {
        self.pool.regions(region).for_each(|region| self.spaces.take_large(region));
    }

    fn map_region_of_pool(&mut self, region: Region, frame: Frame) {
        if self.spaces.at(region).place != NO_TABLE && !self.spaces.is_large(region) {
            // A mapping beside a heap has base pages here.
            self.release(region.pages());
        }
        self.spaces.map_large(region, frame, true);
        self.spaces.mark(region, POOL);
        self.spaces.join_larger(region);
    }

    /// Unmaps a pool page; freeing it is up to the pool.
    fn unmap_pool(&mut self, region: Region) {
        for region in self.pool.regions(region) {
            if self.spaces.is_large(region) {
                self.spaces.unmap_large(region);
            }
        }
    }
}
