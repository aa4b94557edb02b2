//! One process: how many pages each extent of its private anonymous memory has, from its page tables.

use std::collections::BTreeMap;

use host::coverage::MappingKind;
use host::process::{self, Maps, MemoryMounts, Sharing};
use host::{ReadError, Root};
use policy::{Backing, Mapping};
use sys::pagemap::{Categories, PageRegion, Pagemap};
use sys::pidfd::PidFd;
use units::Pid;

use crate::extent::{BYTES, Extent, PAGES, SCALE};

/// A look is made at least this often where faults are seen to be none: not all ways of getting pages are faults.
const MAX_UNSEEN: u64 = 1_000_000;

/// A process that is served.
#[derive(Debug)]
pub(crate) struct Process {
    pub pid: Pid,
    pub fd: PidFd,
    /// When it started, and where its stack begins: another program has another one.
    started: u64,
    image: u64,
    faults: u64,
    /// When it was last looked at, and last known to be as it was then, in ticks.
    looked_at: Option<u64>,
    unchanged_at: u64,
    looks: u64,
    pub extents: BTreeMap<u64, Extent>,
    /// Whole extents of mappings that may have superpages, ascending.
    pub spans: Vec<Span>,
}

/// Whole extents of a mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    pub mapping: Mapping,
}

/// An extent that has more pages than before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub start: u64,
    pub before: u16,
}

/// What is at an extent now.
#[derive(Debug, Clone, Copy)]
struct Found {
    start: u64,
    mapping: Mapping,
    populated: u16,
    swapped: u16,
    is_huge: bool,
}

impl Process {
    /// `None` where it has ended, or its number is another's by now.
    pub(crate) fn open(root: &Root, pid: Pid) -> Option<Self> {
        let before = process::stat(root, pid).ok()?;
        let fd = PidFd::open(pid).ok()?;
        let after = process::stat(root, pid).ok()?;
        (before.start_ticks == after.start_ticks && !after.is_dead()).then(|| Self {
            pid,
            fd,
            started: after.start_ticks,
            image: after.stack_start,
            faults: 0,
            looked_at: None,
            unchanged_at: 0,
            looks: 0,
            extents: BTreeMap::new(),
            spans: Vec::new(),
        })
    }

    /// Looks at it if it took faults since it was looked at. `None`: it did not. An error that
    /// [is gone](ReadError::is_gone) when it ended.
    pub(crate) fn look(
        &mut self,
        root: &Root,
        mounts: &MemoryMounts,
        now: u64,
    ) -> Result<Option<Vec<Growth>>, ReadError> {
        let stat = process::stat(root, self.pid)?;
        if stat.start_ticks != self.started || stat.is_dead() {
            self.extents.clear();
            return Ok(None);
        }
        if stat.stack_start != self.image {
            (self.image, self.looked_at) = (stat.stack_start, None);
            self.extents.clear();
        }
        let is_old = self.looked_at.is_none_or(|at| now >= at + MAX_UNSEEN);
        if stat.minor_faults == self.faults && !is_old {
            self.unchanged_at = now;
            return Ok(None);
        }
        self.faults = stat.minor_faults;
        let found = self.read(root, mounts)?;
        let before = self.looked_at.map(|_| self.unchanged_at);
        (self.looked_at, self.unchanged_at) = (Some(now), now);
        self.looks += 1;
        Ok(Some(self.reconcile(&found, before.unwrap_or(now), now)))
    }

    /// Whether another process maps some page of an extent too.
    pub(crate) fn is_shared(&self, start: u64) -> bool {
        let pagemap = Pagemap::open(self.pid);
        pagemap.and_then(|pagemap| pagemap.has_shared(start, start + BYTES)).unwrap_or(false)
    }

    /// The extents of a range that have pages, and whether each is mapped as a superpage.
    pub(crate) fn read_back(&self, start: u64, end: u64) -> BTreeMap<u64, bool> {
        let mut regions = Vec::new();
        let scanned = Pagemap::open(self.pid)
            .and_then(|pagemap| pagemap.scan(start, end, Categories::PRESENT, &mut regions));
        let mut found = Vec::new();
        if scanned.is_ok() {
            add(&mut found, &regions, Mapping::default());
        }
        found.iter().map(|found| (found.start, found.is_huge)).collect()
    }

    fn read(&mut self, root: &Root, mounts: &MemoryMounts) -> Result<Vec<Found>, ReadError> {
        let pagemap = Pagemap::open(self.pid)?;
        let (mut regions, mut found) = (Vec::new(), Vec::new());
        self.spans.clear();
        for mapping in Maps::open(root, self.pid)? {
            let mapping = mapping?;
            let backing = match MappingKind::from_mapping(&mapping, mounts) {
                MappingKind::Anonymous => Backing::Anonymous,
                MappingKind::Heap => Backing::Heap,
                _ => continue,
            };
            let (start, end) = (mapping.start.next_multiple_of(BYTES), mapping.end / BYTES * BYTES);
            if start >= end || !mapping.writable || mapping.sharing == Sharing::Shared {
                continue;
            }
            let mapping = Mapping { backing, advised: None, writable: true };
            self.spans.push(Span { start, end, mapping });
            regions.clear();
            let wanted = Categories::PRESENT | Categories::SWAPPED;
            pagemap.scan(start, end, wanted, &mut regions)?;
            add(&mut found, &regions, mapping);
        }
        Ok(found)
    }

    /// Makes the extents those that were found, and returns those that are new or have more pages.
    fn reconcile(&mut self, found: &[Found], before: u64, now: u64) -> Vec<Growth> {
        let mut grown = Vec::new();
        for one in found {
            let is_new = !self.extents.contains_key(&one.start);
            let extent = self.extents.entry(one.start).or_default();
            if one.populated != extent.populated || is_new {
                extent.grew = (before, now);
            }
            if is_new || one.populated > extent.populated {
                grown.push(Growth { start: one.start, before: extent.populated });
            }
            extent.is_ours &= one.is_huge;
            extent.mapping = one.mapping;
            (extent.populated, extent.swapped) = (one.populated, one.swapped);
            (extent.is_huge, extent.look) = (one.is_huge, self.looks);
        }
        self.extents.retain(|_, extent| extent.look == self.looks);
        grown
    }
}

/// Adds what regions say of each extent.
fn add(found: &mut Vec<Found>, regions: &[PageRegion], mapping: Mapping) {
    for region in regions {
        let is = |category| region.categories.contains(category);
        if is(Categories::PFNZERO) {
            continue;
        }
        let mut from = region.start;
        while from < region.end {
            let start = from / BYTES * BYTES;
            let to = region.end.min(start + BYTES);
            if found.last().is_none_or(|last| last.start != start) {
                let new = Found { start, mapping, populated: 0, swapped: 0, is_huge: false };
                found.push(new);
            }
            let last = found.last_mut().expect("one was pushed");
            let pages = ((to - from) / SCALE.base_page) as u16;
            match is(Categories::PRESENT) {
                true => last.populated = (last.populated + pages).min(PAGES),
                false => last.swapped = (last.swapped + pages).min(PAGES),
            }
            last.is_huge |= is(Categories::PRESENT | Categories::HUGE);
            from = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_by_extent() {
        let region = |start, end, categories| PageRegion { start, end, categories };
        let (present, huge) = (Categories::PRESENT, Categories::PRESENT | Categories::HUGE);
        let base = 10 * BYTES;
        let regions = [
            region(base + 4096, base + 3 * 4096, present),
            region(base + 8 * 4096, base + 9 * 4096, present | Categories::PFNZERO),
            region(base + BYTES - 4096, base + BYTES + 4096, present),
            region(base + BYTES + 4096, base + BYTES + 8192, Categories::SWAPPED),
            region(base + 2 * BYTES, base + 4 * BYTES, huge),
        ];
        let mut found = Vec::new();
        add(&mut found, &regions, Mapping::default());
        let counts: Vec<_> = found
            .iter()
            .map(|one| (one.start / BYTES, one.populated, one.swapped, one.is_huge))
            .collect();
        assert_eq!(
            counts,
            [(10, 3, 0, false), (11, 1, 1, false), (12, 512, 0, true), (13, 512, 0, true)]
        );
    }
}
