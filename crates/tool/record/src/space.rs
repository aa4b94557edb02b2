//! The address space of one process: its mappings, and the dense numbers of its pages. Converts system calls to trace
//! events, and addresses to pages. No I/O.
//!
//! Inaccessible memory (PROT_NONE, for example reserved by allocators and managed heaps) is not mapped in the trace
//! until it becomes accessible. Linux gives no superpage to a range that contains inaccessible memory, so a simulator
//! must not either.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use trace::{Advice, Event, Page, Pages, Process, Region, SLOTS};

use crate::numbers::Numbers;
use crate::parts::{Kind, Placed, Rights, each_bit, slots};
use crate::shared_state::{Full, SharedState};

/// Larger mappings than this number of regions (32 GiB) get region numbers one by one at first touch, because numbers
/// are dense and programs never touch all of a mapping that large.
const LAZY: u64 = 1 << 14;
const DIRECT_REGIONS: usize = 1 << 12;

/// A mapping. The key in `areas` is the mapping's first page.
#[derive(Debug, Clone, Copy)]
struct Area {
    end: u64,
    kind: Kind,
    rights: Rights,
    lazy: bool,
}

/// The address space of one process.
pub struct Space {
    /// The process's number in the trace.
    pub process: Process,
    areas: BTreeMap<u64, Area>,
    placed: Vec<Placed>,
    /// For each region address, the index in `placed`.
    index: BTreeMap<u64, u32>,
    /// Direct-mapped cache of `index`; the low bits of the region address select the entry.
    region_cache: Vec<u32>,
    /// Unused entries of `placed`.
    vacant: Vec<u32>,
    /// Ranges of numbers that this process keeps until it ends, because the format forbids other processes to use them
    /// earlier.
    owned: Vec<(u32, u32)>,
    /// The numbers in these ranges that have no region now.
    unused: Numbers,
}

/// Address of an unused entry in `placed`; no region has this address.
const NO_REGION: u64 = u64::MAX;

impl Space {
    /// An empty address space.
    pub fn new(process: Process) -> Self {
        let nothing = Placed { address: NO_REGION, number: 0, mapped: [0; 8] };
        Self {
            process,
            areas: BTreeMap::new(),
            // Entry 0 is unused, so that every element of `region_cache` is a valid index.
            placed: vec![nothing],
            index: BTreeMap::new(),
            region_cache: vec![0; DIRECT_REGIONS],
            vacant: Vec::new(),
            owned: Vec::new(),
            unused: Numbers::none(),
        }
    }

    /// Returns the page number in the trace of virtual page `page`. Maps the page first if
    /// necessary.
    #[inline]
    pub fn touch(
        &mut self,
        page: u64,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<Page, Full> {
        let (region, slot) = (page / u64::from(SLOTS), (page % u64::from(SLOTS)) as u32);
        let at = self.region_cache[region as usize % DIRECT_REGIONS] as usize;
        let placed = &self.placed[at];
        if placed.address == region && placed.is_mapped(slot) {
            return Ok(Page::new(Region(placed.number), slot));
        }
        self.find(page, shared, out)
    }

    #[cold]
    fn find(
        &mut self,
        page: u64,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<Page, Full> {
        let (region, slot) = (page / u64::from(SLOTS), (page % u64::from(SLOTS)) as u32);
        let known = self.index.get(&region).copied();
        if !known.is_some_and(|at| self.placed[at as usize].is_mapped(slot)) {
            self.map_on_touch(page, shared, out)?;
        }
        let at = self.index.get(&region).copied().unwrap_or_default();
        self.region_cache[region as usize % DIRECT_REGIONS] = at;
        Ok(Page::new(Region(self.placed[at as usize].number), slot))
    }

    /// Maps a page at its first access. The page is in a mapping that is numbered lazily, or an unrecorded call made it
    /// accessible.
    fn map_on_touch(
        &mut self,
        page: u64,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        let region = page / u64::from(SLOTS) * u64::from(SLOTS);
        match self.area_at(page) {
            Some((begin, area)) if area.lazy => {
                let window = begin.max(region)..area.end.min(region + u64::from(SLOTS));
                self.place(window.start, window.end, begin, area.kind, shared, out)
            }
            Some((begin, area)) => self.place(page, page + 1, begin, area.kind, shared, out),
            None => self.map(page, page + 1, Kind::Anonymous, Rights::Write, shared, out),
        }
    }

    /// Returns the area that contains a page, and the area's first page.
    fn area_at(&self, page: u64) -> Option<(u64, Area)> {
        let (&begin, &area) = self.areas.range(..=page).next_back()?;
        (page < area.end).then_some((begin, area))
    }

    /// Maps pages, replacing earlier mappings.
    pub fn map(
        &mut self,
        begin: u64,
        end: u64,
        kind: Kind,
        rights: Rights,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        if begin >= end {
            return Ok(());
        }
        self.unmap(begin, end, out);
        let lazy = (end - begin) / u64::from(SLOTS) > LAZY;
        match self.areas.range_mut(..begin).next_back() {
            // A growing heap stays one area.
            Some((_, area))
                if area.end == begin
                    && (area.kind, kind) == (Kind::Heap, Kind::Heap)
                    && area.rights == rights =>
            {
                area.end = end;
            }
            _ => {
                self.areas.insert(begin, Area { end, kind, rights, lazy });
            }
        }
        if rights == Rights::None || lazy {
            return Ok(());
        }
        self.place(begin, end, begin, kind, shared, out)?;
        if rights == Rights::Read && !matches!(kind, Kind::File(_)) {
            self.each_run(begin, end, |pages| out.push(Event::Protect(pages, true)));
        }
        Ok(())
    }

    /// Maps pages, some of which may already be mapped. Replaces areas of another kind.
    pub fn declare(
        &mut self,
        begin: u64,
        end: u64,
        kind: Kind,
        rights: Rights,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        if begin >= end {
            return Ok(());
        }
        for (first, area) in self.areas_in(begin, end) {
            if !area.kind.is_like(kind) {
                self.unmap(first, area.end, out);
            }
            self.areas.remove(&first);
        }
        let lazy = (end - begin) / u64::from(SLOTS) > LAZY;
        self.areas.insert(begin, Area { end, kind, rights, lazy });
        if rights == Rights::None || lazy {
            return Ok(());
        }
        self.place(begin, end, begin, kind, shared, out)
    }

    /// Unmaps pages.
    pub fn unmap(&mut self, begin: u64, end: u64, out: &mut Vec<Event>) {
        if begin >= end {
            return;
        }
        for (first, _) in self.areas_in(begin, end) {
            self.areas.remove(&first);
        }
        self.each_run(begin, end, |pages| out.push(Event::Unmap(pages)));
        let regions: Vec<(u64, u32)> = self.regions(begin, end).collect();
        for (region, at) in regions {
            let placed = &mut self.placed[at as usize];
            each_bit(region, begin, end, |word, bits| placed.mapped[word] &= !bits);
            if placed.mapped == [0; 8] {
                self.unused.free(placed.number, 1);
                placed.address = NO_REGION;
                self.index.remove(&region);
                self.vacant.push(at);
            }
        }
    }

    /// mremap: moves or resizes the mapping at `old` to `new`, and keeps its kind and rights. In the trace the pages at
    /// `new` are new, untouched pages.
    pub fn remap(
        &mut self,
        old: (u64, u64),
        new: (u64, u64),
        keeps_old: bool,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        let area = self.area_at(old.0);
        let kind = area.map_or(Kind::Anonymous, |(begin, area)| area.kind.from(old.0 - begin));
        let rights = area.map_or(Rights::Write, |(_, area)| area.rights);
        if new.0 == old.0 {
            self.unmap(new.1, old.1, out);
            return self.map(old.1, new.1, kind.from(old.1 - old.0), rights, shared, out);
        }
        if !keeps_old {
            self.unmap(old.0, old.1, out);
        }
        self.map(new.0, new.1, kind, rights, shared, out)
    }

    /// brk: moves the end of the heap.
    pub fn heap(
        &mut self,
        old: u64,
        new: u64,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        self.unmap(new, old, out);
        self.map(old, new, Kind::Heap, Rights::Write, shared, out)
    }

    /// Unmaps the area that one call mapped at `begin`.
    pub fn detach(&mut self, begin: u64, out: &mut Vec<Event>) {
        if let Some(end) = self.areas.get(&begin).map(|area| area.end) {
            self.unmap(begin, end, out);
        }
    }

    /// mprotect: changes the rights of pages.
    pub fn protect(
        &mut self,
        begin: u64,
        end: u64,
        rights: Rights,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        if begin >= end {
            return Ok(());
        }
        for (first, area) in self.areas_in(begin, end) {
            self.areas.insert(first, Area { rights, ..area });
            let writable = |rights| rights == Rights::Write;
            if writable(rights) != writable(area.rights) {
                let read_only = !writable(rights);
                self.each_run(first, area.end, |pages| out.push(Event::Protect(pages, read_only)));
            }
            if rights != Rights::None && !area.lazy {
                self.place(first, area.end, first, area.kind, shared, out)?;
            }
        }
        Ok(())
    }

    /// madvise on pages.
    pub fn advise(&mut self, begin: u64, end: u64, advice: Advice, out: &mut Vec<Event>) {
        self.each_run(begin, end, |pages| out.push(Event::Advise(pages, advice)));
    }

    /// Copies the address space to a forked child, and adds an event.
    pub fn fork(
        &self,
        child: Process,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<Self, Full> {
        let lowest = self.owned.iter().map(|&(first, _)| first).min().unwrap_or(0);
        let end = self.owned.iter().map(|&(first, count)| first + count).max().unwrap_or(1);
        let count = end - lowest;
        let first = shared.numbers.allocate_above(end, count).ok_or(Full)?;
        let by = first - lowest;
        let mut copy = Self::new(child);
        copy.areas = self.areas.clone();
        copy.placed = self.placed.clone();
        copy.index = self.index.clone();
        copy.vacant = self.vacant.clone();
        copy.owned = vec![(first, count)];
        copy.unused.free(first, count);
        for placed in copy.placed.iter_mut().filter(|placed| placed.address != NO_REGION) {
            placed.number += by;
            copy.unused.allocate(1, Some(placed.number));
        }
        out.push(Event::Fork { child, offset: by * SLOTS });
        Ok(copy)
    }

    /// Ends the process and frees its numbers.
    pub fn end(self, shared: &mut SharedState) {
        self.owned.iter().for_each(|&(first, count)| shared.numbers.free(first, count));
    }

    /// Splits areas at `begin` and `end`, and returns the areas in between, with their first pages.
    fn areas_in(&mut self, begin: u64, end: u64) -> Vec<(u64, Area)> {
        self.cut(begin);
        self.cut(end);
        self.areas.range(begin..end).map(|(&first, &area)| (first, area)).collect()
    }

    /// Splits the area that spans `page`, if any.
    fn cut(&mut self, page: u64) {
        let Some((&begin, &area)) = self.areas.range(..page).next_back() else { return };
        if area.end > page {
            self.areas.insert(begin, Area { end: page, ..area });
            self.areas.insert(page, Area { kind: area.kind.from(page - begin), ..area });
        }
    }

    /// Maps the unmapped pages of `begin..end`, a part of the area that starts at `of`.
    fn place(
        &mut self,
        begin: u64,
        end: u64,
        of: u64,
        kind: Kind,
        shared: &mut SharedState,
        out: &mut Vec<Event>,
    ) -> Result<(), Full> {
        self.number(begin, end, shared)?;
        let mut runs: Vec<(u64, Pages)> = Vec::new();
        let regions: Vec<(u64, u32)> = self.regions(begin, end).collect();
        for (region, at) in regions {
            let placed = &mut self.placed[at as usize];
            let before = placed.mapped;
            let (first, stop) = slots(region, begin, end);
            each_bit(region, begin, end, |word, bits| placed.mapped[word] |= bits);
            let fresh = |slot: u32| before[(slot / 64) as usize] >> (slot % 64) & 1 == 0;
            for slot in (first..stop).filter(|&slot| fresh(slot)) {
                let page = Page::new(Region(placed.number), slot);
                match runs.last_mut() {
                    Some((_, pages)) if pages.first.0 + pages.count == page.0 => pages.count += 1,
                    _ => {
                        let address = region * u64::from(SLOTS) + u64::from(slot);
                        runs.push((address, Pages { first: page, count: 1 }));
                    }
                }
            }
        }
        for (address, pages) in runs {
            out.push(if kind == Kind::Heap && self.grows(address, pages.first) {
                Event::Grow { pages }
            } else {
                let backing = shared.backing(kind.from(address - of));
                Event::Map { pages, address, backing }
            });
        }
        Ok(())
    }

    /// Gives numbers to the regions of a range that have none. Adjacent regions get adjacent numbers if possible.
    fn number(&mut self, begin: u64, end: u64, shared: &mut SharedState) -> Result<(), Full> {
        let (mut region, last) = (begin / u64::from(SLOTS), (end - 1) / u64::from(SLOTS));
        while region <= last {
            let next = self.index.range(region..=last).next().map_or(last + 1, |(&next, _)| next);
            if next == region {
                region += 1;
                continue;
            }
            let count = u32::try_from(next - region).map_err(|_| Full)?;
            let before = region.checked_sub(1).and_then(|before| self.index.get(&before));
            let wanted = before.map(|&at| self.placed[at as usize].number + 1);
            let first = match self.unused.allocate(count, wanted) {
                Some(first) => first,
                None => {
                    let first = shared.numbers.allocate(count, wanted).ok_or(Full)?;
                    self.owned.push((first, count));
                    first
                }
            };
            for (address, number) in (region..next).zip(first..) {
                let placed = Placed { address, number, mapped: [0; 8] };
                let at = match self.vacant.pop() {
                    Some(at) => {
                        self.placed[at as usize] = placed;
                        at
                    }
                    None => {
                        self.placed.push(placed);
                        self.placed.len() as u32 - 1
                    }
                };
                self.index.insert(address, at);
            }
            region = next;
        }
        Ok(())
    }

    /// Whether the page before `address` belongs to the heap and has the number before `first`.
    fn grows(&self, address: u64, first: Page) -> bool {
        let Some(before) = address.checked_sub(1) else { return false };
        let area = self.areas.range(..=before).next_back();
        let heap = area.is_some_and(|(_, area)| area.kind == Kind::Heap && before < area.end);
        let at = self.index.get(&(before / u64::from(SLOTS)));
        let slot = (before % u64::from(SLOTS)) as u32;
        heap && at.is_some_and(|&at| {
            let placed = &self.placed[at as usize];
            let page = Page::new(Region(placed.number), slot);
            placed.is_mapped(slot) && page.0 + 1 == first.0
        })
    }

    /// Iterates over the numbered regions that overlap a range: region address and index in
    /// `placed`.
    fn regions(&self, begin: u64, end: u64) -> impl Iterator<Item = (u64, u32)> {
        let last = (end.max(begin + 1) - 1) / u64::from(SLOTS);
        self.index.range(begin / u64::from(SLOTS)..=last).map(|(&region, &at)| (region, at))
    }

    /// Calls `what` for the mapped pages of a range, as runs of consecutive numbers. A run includes holes within a
    /// region.
    fn each_run(&self, begin: u64, end: u64, mut what: impl FnMut(Pages)) {
        if begin >= end {
            return;
        }
        let mut run: Option<Pages> = None;
        for (region, at) in self.regions(begin, end) {
            let placed = &self.placed[at as usize];
            let (first, stop) = slots(region, begin, end);
            let mapped = |slot: &u32| placed.is_mapped(*slot);
            let Some(first) = (first..stop).find(mapped) else { continue };
            let last = (first..stop).rev().find(mapped).unwrap_or(first);
            let page = Page::new(Region(placed.number), first);
            let count = last - first + 1;
            match &mut run {
                Some(pages) if pages.first.0 + pages.count == page.0 => pages.count += count,
                _ => {
                    if let Some(done) = run.replace(Pages { first: page, count }) {
                        what(done);
                    }
                }
            }
        }
        run.into_iter().for_each(what);
    }
}
