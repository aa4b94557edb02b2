//! The explicit pool (hugetlb): superpages set aside when memory is mapped, so that faults cannot fail.
//!
//! The accounting is `crate::hugetlb`'s. A mapping's whole superpages are the pool's; a heap's are rounded
//! up, as a heap on the pool grows by whole superpages (libhugetlbfs' morecore), another mapping's
//! down, and what is left of it stays on base pages.

use std::collections::{BTreeMap, BTreeSet};

use policy::{Action, Compaction, Event, Facts};
use trace::{Backing, Page, Pages, SLOTS};

use super::allocate::{LARGE_ORDER, Payer};
use super::region::{CHECK, COW, DIRTY, NO_TABLE, POOL, Region};
use super::spaces::Shoot;
use super::{Stop, System};
use crate::Cause;
use crate::hugetlb::{Fault, Frames, HugetlbPool, Kind, MappingId, Place, Request};
use crate::memory::compaction::Mode;
use crate::memory::{Frame, Memory, Mobility, Owner};

/// The pool of a system.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: Option<HugetlbPool>,
    /// What the pool backs of each mapping: the first region, how many there were, how many are left.
    windows: BTreeMap<u32, (u32, u32, u32)>,
    /// Those of which the end was unmapped: they do not grow again.
    ended: BTreeSet<u32>,
}

/// Physical memory as the pool asks for it.
struct Physical<'a>(&'a mut Memory);

impl Frames for Physical<'_> {
    fn allocate(&mut self, node: u8) -> Option<Frame> {
        let got = self.0.allocate(LARGE_ORDER, Mobility::Movable, node.into(), false)?;
        self.0.set_owner(got.frame, Owner::Pinned);
        self.0.set_superpage(got.frame, true);
        Some(got.frame)
    }
    fn free(&mut self, frame: Frame, _: u8) {
        self.0.free(frame, LARGE_ORDER);
    }
}

impl Pool {
    /// The pool of a design, filled from the memory of a machine that has just booted. Without a size it takes
    /// what mappings need, when they are made (overcommit).
    pub(crate) fn new(pool: Option<Option<u64>>, memory: &mut Memory) -> Self {
        let pool = pool.map(|size| {
            let overcommit = if size.is_none() { u64::from(memory.frames()) } else { 0 };
            let mut pool = HugetlbPool::new(1, overcommit);
            pool.resize(size.unwrap_or(0), None, &mut Physical(memory));
            pool
        });
        Self { pool, windows: BTreeMap::new(), ended: BTreeSet::new() }
    }

    /// The first frames of all its pages, or what is wrong with it.
    pub(crate) fn verify(&self) -> Result<BTreeSet<u32>, String> {
        let Some(pool) = &self.pool else { return Ok(BTreeSet::new()) };
        pool.verify()?;
        let mut all = BTreeSet::new();
        for frame in pool.frames() {
            if !all.insert(frame.0) {
                return Err(format!("{frame:?} is in the pool twice"));
            }
        }
        Ok(all)
    }

    /// The page behind a region of a mapping.
    pub(crate) fn page(&self, id: u32, region: u32) -> Option<Frame> {
        let (first, count, _) = self.window(id);
        let pool = self.pool.as_ref().filter(|_| (first..first + count).contains(&region))?;
        pool.page(MappingId(id), region - first)
    }

    /// What the pool backs of a mapping; nothing, when all of that is unmapped.
    fn window(&self, id: u32) -> (u32, u32, u32) {
        self.windows.get(&id).copied().unwrap_or_default()
    }
}

impl System {
    /// A mapping is made: `Some` if the pool backs its superpages.
    pub(crate) fn pool_map(&mut self, pages: Pages, backing: Backing) -> Result<Option<u32>, Stop> {
        // What spoils memory beforehand is no user of the pool.
        if self.pool.pool.is_none() || !self.awake {
            return Ok(None);
        }
        let end = pages.first.0 + pages.count;
        let first = pages.first.0.div_ceil(SLOTS);
        let last = if backing == Backing::Heap { end.div_ceil(SLOTS) } else { end / SLOTS };
        // A heap that begins within a superpage has its first one rounded up to.
        if last <= first && backing != Backing::Heap {
            return Ok(None);
        }
        let count = last.saturating_sub(first);
        let Some(id) = self.pool_ask(|pool, frames| {
            let request =
                Request { kind: Kind::Private, pages: count, reserve: true, place: Place::ANY };
            pool.map(request, frames).map(|id| id.0).map_err(|short| short.short_by)
        })?
        else {
            return Ok(None);
        };
        self.spaces.cover(Pages { first: Page(first << 9), count: count << 9 });
        self.pool.windows.insert(id, (first, count, count));
        Ok(Some(id))
    }

    /// Asks the pool, once more after compaction if it is short; then what the design says of shortage.
    fn pool_ask<R>(
        &mut self,
        mut ask: impl FnMut(&mut HugetlbPool, &mut Physical) -> Result<R, u64>,
    ) -> Result<Option<R>, Stop> {
        let mut retried = false;
        loop {
            let pool = self.pool.pool.as_mut().expect("asked only where there is one");
            let short_by = match ask(pool, &mut Physical(&mut self.memory)) {
                Ok(done) => return Ok(Some(done)),
                Err(short_by) => short_by,
            };
            match self.policy.on(Event::NoPoolPage { retried }, &Facts::default()) {
                Action::Compact { mode: Compaction::Sync, .. } => {
                    self.compact(Payer::Program, Mode::Sync);
                }
                Action::Refuse => return Err(Stop::Refused { short_by }),
                _ => {
                    self.counters.fallbacks += 1;
                    return Ok(None);
                }
            }
            retried = true;
        }
    }

    /// Whether pages of the pool behind a heap's end (now at page `end`) were unmapped: what it grows by is
    /// mapped anew.
    pub(crate) fn pool_ended(&self, id: u32, end: u32) -> bool {
        let (first, count, _) = self.pool.window(id);
        self.pool.ended.contains(&id) || end.div_ceil(SLOTS) < first + count
    }

    /// A heap on the pool ends at page `end` now.
    pub(crate) fn pool_grow(&mut self, id: u32, end: u32) -> Result<(), Stop> {
        let (first, count, left) = self.pool.window(id);
        let wanted = end.div_ceil(SLOTS).saturating_sub(first);
        if wanted <= count {
            return Ok(());
        }
        let asked = self.pool_ask(|pool, frames| {
            pool.extend(MappingId(id), wanted - count, Place::ANY, frames)
                .map_err(|short| short.short_by)
        })?;
        if asked.is_some() {
            self.spaces.cover(Pages { first: Page(first << 9), count: wanted << 9 });
            self.pool.windows.insert(id, (first, wanted, left + wanted - count));
        }
        Ok(())
    }

    /// Whether the pool backs this region of a mapping.
    pub(crate) fn pool_backs(&self, id: u32, region: u32) -> bool {
        let (first, count, _) = self.pool.window(id);
        (first..first + count).contains(&region)
    }

    /// The regions of `first..end` (pages) that the pool backs, as indexes of its mapping.
    fn pool_range(&self, id: u32, first: u32, end: u32) -> (u32, u32) {
        let (start, count, _) = self.pool.window(id);
        let from = first.div_ceil(SLOTS).saturating_sub(start).min(count);
        let to = end.div_ceil(SLOTS).saturating_sub(start).min(count);
        (from, to.max(from))
    }

    /// The part of `pages` that may be unmapped or discarded: an edge within a superpage of the pool moves
    /// inwards to that superpage's end (the kernel refuses such a call; then nothing goes of that page).
    pub(crate) fn pool_trim(&self, pages: Pages) -> Pages {
        if self.pool.pool.is_none() {
            return pages;
        }
        let Some(process) = self.spaces.processes.get(&self.running) else { return pages };
        // Advice may have cut the mapping there: the page is one all the same.
        let pool = |page: u32| {
            let found = process.find(Page(page)).and_then(|(_, mapping)| mapping.pool);
            found.filter(|&id| self.pool_backs(id, page / SLOTS))
        };
        let in_pool_page =
            |at: u32| !at.is_multiple_of(SLOTS) && pool(at).is_some() && pool(at) == pool(at - 1);
        let (mut first, mut end) = (pages.first.0, pages.first.0 + pages.count);
        if in_pool_page(first) {
            first = first.next_multiple_of(SLOTS);
        }
        if in_pool_page(end) {
            end = end / SLOTS * SLOTS;
        }
        Pages { first: Page(first), count: end.saturating_sub(first) }
    }

    /// Pages are unmapped: what was used and what was promised goes back.
    pub(crate) fn pool_unmap(&mut self, id: u32, first: u32, end: u32) {
        let (from, to) = self.pool_range(id, first, end);
        if from == to {
            return;
        }
        let pool = self.pool.pool.as_mut().expect("a mapping of the pool");
        pool.unmap(MappingId(id), from, to, &mut Physical(&mut self.memory));
        self.unmap_window(id, from, to);
        if let Some((_, count, left)) = self.pool.windows.get_mut(&id) {
            *left -= to - from;
            if to == *count {
                *count = from;
                self.pool.ended.insert(id);
            }
            if *left == 0 {
                self.pool.windows.remove(&id);
            }
        }
    }

    /// Pages are discarded; the promise for them is renewed.
    pub(crate) fn pool_discard(&mut self, id: u32, first: u32, end: u32) {
        let (from, to) = self.pool_range(id, first, end);
        if from == to {
            return;
        }
        let pool = self.pool.pool.as_mut().expect("a mapping of the pool");
        pool.discard(MappingId(id), from, to, &mut Physical(&mut self.memory));
        self.unmap_window(id, from, to);
    }

    /// Takes away what is mapped still of pages that the pool has back: a heap's last page reaches past the
    /// heap's end, and parts of one mapping may meet within a page.
    fn unmap_window(&mut self, id: u32, from: u32, to: u32) {
        let (first, ..) = self.pool.window(id);
        for region in first + from..first + to {
            if self.spaces.regions[region as usize].has(POOL) {
                self.unmap_pool(region);
            }
        }
    }

    /// The parts of `pages` that can be mapped anew: where a program unmaps a part of a page of the pool and
    /// maps it again, the old page is there still.
    pub(crate) fn pool_leftover(&mut self, pages: Pages) -> Vec<Pages> {
        let end = pages.first.0 + pages.count;
        let own = self.spaces.processes.get(&self.running);
        let mut parts = Vec::new();
        let mut at = pages.first.0;
        let kept: Vec<(u32, u32)> = own
            .filter(|_| self.pool.pool.is_some())
            .into_iter()
            .flat_map(|own| own.mappings.range(..end))
            .filter(|(_, mapping)| mapping.pool.is_some() && mapping.end > at)
            .map(|(&first, mapping)| (first, mapping.end))
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
    pub(crate) fn pool_of(&self, region: u32, place: super::space::Place) -> Option<u32> {
        if let Some(id) = place.1.pool.filter(|&id| self.pool_backs(id, region)) {
            return Some(id);
        }
        let own = self.spaces.processes.get(&self.spaces.regions[region as usize].process)?;
        let found = own.mappings.range(..(region + 1) << 9).rev().map(|(_, at)| at);
        found
            .take_while(|at| at.end > region << 9)
            .find_map(|at| at.pool.filter(|&id| self.pool_backs(id, region)))
    }

    /// A child's copy of a mapping: the pages are shared, the promises are not.
    pub(crate) fn pool_fork(&mut self, id: u32, offset: u32) -> Option<u32> {
        if !self.pool.windows.contains_key(&id) {
            // All that the pool backed of it is unmapped.
            return None;
        }
        let (first, count, left) = self.pool.window(id);
        let pool = self.pool.pool.as_mut().expect("a mapping of the pool");
        let child = pool.fork(MappingId(id)).0;
        self.pool.windows.insert(child, (first + offset, count, left));
        if self.pool.ended.contains(&id) {
            self.pool.ended.insert(child);
        }
        Some(child)
    }

    /// A fault on a page that the pool backs.
    pub(crate) fn pool_fault(&mut self, page: Page, id: u32, write: bool) -> Result<(), Stop> {
        let region = page.region().0;
        let index = region - self.pool.window(id).0;
        let pool = self.pool.pool.as_mut().expect("a mapping of the pool");
        let frames = &mut Physical(&mut self.memory);
        let found = pool.fault(MappingId(id), index, write, Place::ANY, frames);
        self.clock.spend(Cause::Fault, self.costs.superpage_fault);
        match found {
            Fault::Fresh { frame, .. } => {
                self.clock.spend(Cause::Zero, self.costs.zero_large);
                self.counters.zeroed += u64::from(SLOTS);
                self.counters.superpage_faults += 1;
                self.counters.made_at_fault += 1;
                self.map_pool(region, frame);
            }
            Fault::Present(frame) => {
                if self.spaces.is_large(region) {
                    let at = self.spaces.region(region);
                    at.flags = at.flags & !COW | DIRTY;
                    self.spaces.kinds[region as usize] &= !CHECK;
                } else {
                    self.map_pool(region, frame);
                }
            }
            Fault::Copied { to, .. } => {
                self.clock.spend(Cause::Copy, self.costs.copy_page * u64::from(SLOTS));
                self.counters.copied += u64::from(SLOTS);
                self.unmap_pool(region);
                self.map_pool(region, to);
            }
            Fault::Robbed { children, .. } => {
                for child in children {
                    let (first, ..) = self.pool.window(child.0);
                    self.unmap_pool(first + index);
                }
                let at = self.spaces.region(region);
                at.flags = at.flags & !COW | DIRTY;
                self.spaces.kinds[region as usize] &= !CHECK;
            }
            Fault::Killed(why) => return Err(Stop::Killed(format!("{why:?}"))),
        }
        Ok(())
    }

    fn map_pool(&mut self, region: u32, frame: Frame) {
        if self.spaces.regions[region as usize].place != NO_TABLE && !self.spaces.is_large(region) {
            // A mapping beside a heap has base pages here.
            self.release(Pages { first: Page(region << 9), count: SLOTS });
        }
        self.map_large(region, frame, true);
        self.spaces.region(region).flags |= POOL;
    }

    /// Takes a mapping of a pool page away; the page is the pool's matter.
    pub(crate) fn unmap_pool(&mut self, region: u32) {
        if !self.spaces.is_large(region) {
            return;
        }
        self.spaces.count_superpages(region, -1);
        self.spaces.count_resident(region, -i64::from(SLOTS));
        self.spaces.shoot.push(Shoot::Region(region));
        self.spaces.kinds[region as usize] = super::region::BASE;
        let process = self.spaces.regions[region as usize].process;
        *self.spaces.region(region) = Region { process, ..Region::EMPTY };
    }
}
