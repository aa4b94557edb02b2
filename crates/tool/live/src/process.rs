//! Reads from one process's page tables the population of each extent of its private anonymous memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use abi::environment::IN_PLACE_FILE;
use host::coverage::MappingKind;
use host::process::{self, Maps, MemoryMounts, Sharing, Stat};
use host::{ReadError, Root};
use policy::{Backing, Mapping};
use sys::SysError;
use sys::pagemap::{Categories, PageRegion, Pagemap};
use sys::pidfd::PidFd;
use sys::procmap::Procmap;
use units::Pid;

use crate::account::Left;
use crate::extent::{BYTES, Extent, PAGES, SCALE};

/// Maximum ticks between looks while no fault is seen, because some pages appear without a fault.
const MAX_UNSEEN: u64 = 1_000_000;
/// Ticks for which the presence of a userfaultfd is cached.
const CACHE_TICKS: u64 = 100_000;
/// Page categories that a look requests.
const WANTED: Categories = Categories(Categories::PRESENT.0 | Categories::SWAPPED.0);

#[derive(Debug)]
pub(crate) struct Process {
    pub pid: Pid,
    pub fd: PidFd,
    /// Start time of the process. Together with `image` it identifies the program that the process executes.
    started: u64,
    /// Stack address of the program, which changes when the process executes another one.
    image: u64,
    faults: u64,
    /// When the process was last looked at, in ticks.
    looked_at: Option<u64>,
    /// When the process was last known unchanged, in ticks.
    unchanged_at: u64,
    /// Page tables and mappings, open since the last look at the whole process.
    pagemap: Option<Pagemap>,
    procmap: Option<Procmap>,
    pub extents: BTreeMap<u64, Extent>,
    /// Whole extents of mappings that may have superpages, ascending.
    pub spans: Vec<Span>,
    /// All mapped ranges at the time when `spans` were read, ascending.
    mapped: Vec<Range<u64>>,
    /// Addresses of extents that were superpages of the parent at the fork.
    inherited: BTreeSet<u64>,
    /// For earlier programs of this process: number of extents that were wanted and not made, and of extents that were
    /// held.
    left: Left,
    /// Whether the process has a userfaultfd, and until when that is cached, in ticks.
    userfaultfd: (bool, u64),
}

/// Result of a look at places where faults were taken.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub grown: Vec<Growth>,
    /// Whether one of the addresses is in an extent.
    pub is_in_span: bool,
}

/// The whole extents of a mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    pub mapping: Mapping,
    /// Whether superpages are made in place, because the memory is in files of superpages.
    pub in_place: bool,
}

impl Span {
    /// Returns the span; `None` if the mapping may have no superpages, or has no whole extent.
    fn of(mapping: &process::Mapping, mounts: &MemoryMounts) -> Option<Self> {
        let in_place = mapping.name.starts_with(IN_PLACE_FILE);
        let backing = if in_place { Backing::Anonymous } else { backing(mapping, mounts)? };
        let (start, end) = (mapping.start.next_multiple_of(BYTES), mapping.end / BYTES * BYTES);
        let is_served = mapping.writable && start < end;
        let mapping = Mapping { backing, writable: true, ..Mapping::default() };
        is_served.then_some(Self { start, end, mapping, in_place })
    }
}

/// Returns the backing of private memory without a file; `None` for other memory.
fn backing(mapping: &process::Mapping, mounts: &MemoryMounts) -> Option<Backing> {
    match MappingKind::from_mapping(mapping, mounts) {
        _ if mapping.sharing == Sharing::Shared => None,
        MappingKind::Anonymous => Some(Backing::Anonymous),
        MappingKind::Heap => Some(Backing::Heap),
        _ => None,
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub start: u64,
    pub before: u16,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    start: u64,
    mapping: Mapping,
    populated: u16,
    swapped: u16,
    is_huge: bool,
}

impl Found {
    fn empty(start: u64, mapping: Mapping) -> Self {
        Self { start, mapping, populated: 0, swapped: 0, is_huge: false }
    }
}

impl Process {
    /// Opens a process; `None`: it has ended, or its pid was reused. `superpages_of` returns the superpages of its
    /// parent.
    pub(crate) fn open(
        root: &Root,
        pid: Pid,
        superpages_of: impl FnOnce(Pid) -> BTreeSet<u64>,
    ) -> Option<Self> {
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
            pagemap: None,
            procmap: None,
            extents: BTreeMap::new(),
            spans: Vec::new(),
            mapped: Vec::new(),
            inherited: superpages_of(after.parent),
            left: Left::default(),
            userfaultfd: (true, 0),
        })
    }

    pub(crate) fn superpages(&self) -> BTreeSet<u64> {
        let huge = self.extents.iter().filter(|(_, extent)| extent.is_huge);
        huge.map(|(start, _)| *start).collect()
    }

    /// Returns the number of extents that were wanted and not made, and of extents that were held. Counts this program
    /// and those that the process executed before.
    pub(crate) fn left(&self) -> Left {
        let mut left = self.left;
        for extent in self.extents.values().filter(|extent| !extent.is_huge) {
            let (unmade, held) = &mut left[extent.cause as usize];
            *unmade += u64::from(extent.is_wanted);
            *held += u64::from(extent.is_held);
        }
        left
    }

    /// Looks at the whole process if it took faults since the last look; `None`: it took none. The error [is
    /// gone](ReadError::is_gone) if the process has ended.
    pub(crate) fn look(
        &mut self,
        root: &Root,
        mounts: &MemoryMounts,
        now: u64,
    ) -> Result<Option<Vec<Growth>>, ReadError> {
        let Some(stat) = self.stat(root)? else { return Ok(None) };
        let is_old = self.looked_at.is_none_or(|at| now >= at + MAX_UNSEEN);
        if stat.minor_faults == self.faults && !is_old {
            self.unchanged_at = now;
            return Ok(None);
        }
        self.faults = stat.minor_faults;
        let found = self.read(root, mounts)?;
        let before = self.looked_at.map_or(now, |_| self.unchanged_at);
        let grown = self.renew(&found, before, now);
        (self.looked_at, self.unchanged_at) = (Some(now), now);
        self.extents.retain(|_, extent| extent.looked_at == now);
        Ok(Some(grown))
    }

    /// Looks at the extents of fault addresses, at the next one (growth continues there), and at the previous one
    /// unless it was seen full. If an address was not mapped before, reads mappings again. If nothing was known or
    /// another program was executed, looks at the whole process.
    pub(crate) fn look_at(
        &mut self,
        root: &Root,
        mounts: &MemoryMounts,
        addresses: &[u64],
        now: u64,
    ) -> Result<Looked, ReadError> {
        if addresses.iter().any(|&address| !self.is_mapped(address)) && self.stat(root)?.is_none() {
            return Ok(Looked::default());
        }
        if self.looked_at.is_some() {
            self.read_mappings_at(root, mounts, addresses)?;
        }
        let Some(pagemap) = self.pagemap.as_ref().filter(|_| self.looked_at.is_some()) else {
            let grown = self.look(root, mounts, now)?.unwrap_or_default();
            return Ok(Looked { grown, is_in_span: true });
        };
        let mut is_in_span = false;
        let (mut regions, mut found) = (Vec::new(), Vec::new());
        let starts: BTreeSet<u64> = addresses.iter().map(|at| at / BYTES * BYTES).collect();
        let mut seen = 0;
        for start in starts {
            let Some(span) = self.span_of(start) else { continue };
            let is_huge = self.extents.get(&start).is_some_and(|extent| extent.is_huge);
            let before = start.saturating_sub(BYTES).max(span.start);
            let is_open = |extent: &Extent| !extent.is_huge && extent.populated < PAGES;
            let first = if self.extents.get(&before).is_some_and(is_open) { before } else { start };
            let (first, end) = (first.max(seen), (start + 2 * BYTES).min(span.end));
            is_in_span |= !is_huge;
            if is_huge || first >= end {
                continue;
            }
            regions.clear();
            pagemap.scan(first, end, WANTED, &mut regions)?;
            let mut filled = Vec::new();
            add(&mut filled, &regions, span.mapping);
            found.extend((first..end).step_by(BYTES as usize).map(|at| {
                let one = filled.iter().find(|one| one.start == at);
                one.copied().unwrap_or(Found::empty(at, span.mapping))
            }));
            seen = end;
        }
        let grown = self.renew(&found, self.unchanged_at, now);
        Ok(Looked { grown, is_in_span })
    }

    /// Returns whether the extent is still whole private memory without a file, because the program may have unmapped
    /// it or mapped a file there. Returns `true` if the kernel cannot be asked (before Linux 6.11).
    pub(crate) fn is_still_anonymous(&self, start: u64) -> bool {
        // The file system does not matter here, so no mounts are needed.
        let mounts = MemoryMounts::default();
        let mut at = start;
        while at < start + BYTES {
            at = match self.mapping_at(at) {
                Some(Ok(found)) if backing(&found, &mounts).is_some() => found.end,
                Some(Ok(_)) => return false,
                Some(Err(error)) => return error.errno() != libc::ENOENT,
                None => return true,
            };
        }
        true
    }

    /// Returns the mapping at an address; `None` before the first look at the whole process.
    fn mapping_at(&self, address: u64) -> Option<Result<process::Mapping, SysError>> {
        Some(self.procmap.as_ref()?.at(address).map(process::Mapping::from))
    }

    pub(crate) fn mapping_of(&self, start: u64) -> Option<Mapping> {
        self.span_of(start).map(|span| span.mapping)
    }

    /// Returns whether the process has a userfaultfd; `true` if unknown. The answer is cached for [`CACHE_TICKS`].
    pub(crate) fn has_userfaultfd(&mut self, root: &Root, now: u64) -> bool {
        let (has, until) = self.userfaultfd;
        if now < until {
            return has;
        }
        let has = process::has_userfaultfd(root, self.pid).unwrap_or(true);
        self.userfaultfd = (has, now + CACHE_TICKS);
        has
    }

    pub(crate) fn is_in_place(&self, start: u64) -> bool {
        self.span_of(start).is_some_and(|span| span.in_place)
    }

    /// Returns whether the extent may become a superpage by copying, and had no page at the last look.
    pub(crate) fn is_untouched(&self, start: u64) -> bool {
        let has_pages = |extent: &Extent| extent.populated + extent.swapped > 0;
        self.span_of(start).is_some_and(|span| !span.in_place)
            && !self.extents.get(&start).is_some_and(has_pages)
    }

    /// Lets the kernel map superpages again in extents that are in files, which the library's userfaultfd prevents.
    /// That userfaultfd's descriptor is the one after the directory's; other userfaultfds would hold up writers. If it
    /// is not available, the next request fails with a reason.
    pub(crate) fn map_as_usual(&self, start: u64, end: u64) {
        let kept = self.fd.userfaultfd(sys::spawn::high_descriptor() + 1);
        let _ = kept.and_then(|kept| sys::userfault::unregister(&kept, start, end));
    }

    /// Returns the frame numbers of present pages; empty if unknown.
    pub(crate) fn frames(&self, start: u64, end: u64) -> Vec<Option<u64>> {
        let pagemap = Pagemap::open(self.pid);
        pagemap.and_then(|pagemap| pagemap.frames(start, end)).unwrap_or_default()
    }

    /// Returns whether another process maps a page of the extent, except for the zero page.
    pub(crate) fn is_shared(&self, start: u64) -> bool {
        let pagemap = Pagemap::open(self.pid);
        pagemap.and_then(|it| it.has_shared_memory(start, start + BYTES)).unwrap_or(false)
    }

    /// Returns the extents of a range that have pages, and whether each is mapped as a superpage.
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

    /// Reads the process's stat; `None` if the process ended or is ending. If it ended or executed another program,
    /// forgets all about the earlier program.
    fn stat(&mut self, root: &Root) -> Result<Option<Stat>, ReadError> {
        let stat = process::stat(root, self.pid)?;
        let has_ended = stat.start_ticks != self.started || stat.is_dead() || stat.mapped == 0;
        if has_ended || stat.stack_start != self.image {
            self.left = self.left();
            self.extents.clear();
            self.inherited.clear();
            (self.looked_at, self.pagemap, self.procmap) = (None, None, None);
        }
        if has_ended {
            return Ok(None);
        }
        self.image = stat.stack_start;
        Ok(Some(stat))
    }

    fn read(&mut self, root: &Root, mounts: &MemoryMounts) -> Result<Vec<Found>, ReadError> {
        self.read_mappings(root, mounts)?;
        let pagemap = Pagemap::open(self.pid)?;
        let (mut regions, mut found) = (Vec::new(), Vec::new());
        for span in &self.spans {
            regions.clear();
            pagemap.scan(span.start, span.end, WANTED, &mut regions)?;
            add(&mut found, &regions, span.mapping);
        }
        self.pagemap = Some(pagemap);
        self.procmap = Procmap::open(self.pid).ok();
        Ok(found)
    }

    /// Reads the mappings of addresses that are in no known span. Reads all mappings if one cannot be read by itself,
    /// or is a file in which superpages are made in place.
    fn read_mappings_at(
        &mut self,
        root: &Root,
        mounts: &MemoryMounts,
        addresses: &[u64],
    ) -> Result<(), ReadError> {
        for &address in addresses {
            let is_mapped = self.is_mapped(address);
            if is_mapped && self.span_of(address / BYTES * BYTES).is_some() {
                continue;
            }
            // The address may be mapped differently now: a file or small mapping may have been replaced.
            let found = self.mapping_at(address).and_then(Result::ok);
            // Files in which superpages are made in place are mapped in pieces, so read all mappings.
            let Some(found) = found.filter(|found| !found.name.starts_with(IN_PLACE_FILE)) else {
                match is_mapped {
                    true => continue,
                    false => return self.read_mappings(root, mounts),
                }
            };
            // The mapping may have merged with neighbours: remove the ranges that it covers.
            let is_beside = |start: u64, end: u64| end <= found.start || start >= found.end;
            self.mapped.retain(|range| is_beside(range.start, range.end));
            let at = self.mapped.partition_point(|range| range.start < found.start);
            self.mapped.insert(at, found.start..found.end);
            self.spans.retain(|span| is_beside(span.start, span.end));
            let at = self.spans.partition_point(|span| span.start < found.start);
            self.spans.splice(at..at, Span::of(&found, mounts));
        }
        Ok(())
    }

    fn read_mappings(&mut self, root: &Root, mounts: &MemoryMounts) -> Result<(), ReadError> {
        self.spans.clear();
        self.mapped.clear();
        for mapping in Maps::open(root, self.pid)? {
            let mapping = mapping?;
            match self.mapped.last_mut() {
                Some(last) if last.end == mapping.start => last.end = mapping.end,
                _ => self.mapped.push(mapping.start..mapping.end),
            }
            let span = Span::of(&mapping, mounts);
            match (self.spans.last_mut(), span) {
                // Extents promoted in place are separate mappings: join them.
                (Some(last), Some(span))
                    if last.in_place && span.in_place && last.end == span.start =>
                {
                    last.end = span.end;
                }
                (_, span) => self.spans.extend(span),
            }
        }
        Ok(())
    }

    fn is_mapped(&self, address: u64) -> bool {
        let after = self.mapped.partition_point(|range| range.start <= address);
        after > 0 && address < self.mapped[after - 1].end
    }

    fn span_of(&self, start: u64) -> Option<Span> {
        let after = self.spans.partition_point(|span| span.start <= start);
        let span = self.spans.get(after.checked_sub(1)?)?;
        (start < span.end).then_some(*span)
    }

    /// Updates the extents to what was found. Returns the extents that are new or gained pages. `before` is when
    /// they were last known unchanged.
    fn renew(&mut self, found: &[Found], before: u64, now: u64) -> Vec<Growth> {
        let mut grown = Vec::new();
        for one in found {
            let is_new = !self.extents.contains_key(&one.start);
            let extent = self.extents.entry(one.start).or_default();
            if is_new && one.is_huge {
                extent.is_inherited = self.inherited.remove(&one.start);
            }
            if one.populated != extent.populated || is_new {
                extent.grew = (before.max(extent.looked_at), now);
            }
            if one.populated > extent.populated || is_new && one.swapped > 0 {
                grown.push(Growth { start: one.start, before: extent.populated });
            }
            extent.is_ours &= one.is_huge;
            extent.is_inherited &= one.is_huge;
            extent.mapping = one.mapping;
            (extent.populated, extent.swapped) = (one.populated, one.swapped);
            (extent.is_huge, extent.looked_at) = (one.is_huge, now);
        }
        grown
    }
}

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
                found.push(Found::empty(start, mapping));
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
mod tests;
