//! How many pages of a pool processes would take, from their address spaces.
//!
//! hugetlb reserves a mapping when it is made (mmap, shmget), not when it is touched. So shared memory counts by the
//! length of its mappings, once for all processes; a page that no process touched counts too. Private memory counts as
//! `superpage run --pages hugetlb` would take it: whole superpages inside each mapping, and for the heap what malloc's
//! arenas are grown ahead. Stacks, a program's data and files stay on base pages there.
//!
//! A child that forked and executed nothing has its parent's private memory, copy on write: it counts once. What such a
//! child mapped later counts for the child.
//! See docs/decisions/pool.md#11.

use std::collections::{BTreeMap, BTreeSet};

use host::coverage::{MappingKind, Scanned};
use host::process::{Device, Mapping, Maps, MemoryMounts, Sharing};
use host::{MemInfo, ReadError, Root};
use serde::Serialize;
use units::{ByteSize, PageSize, Pid};

use crate::{AddressSpace, Process, SpaceError};

/// Smallest heap whose arenas `superpage run --pages hugetlb` puts on the pool (runtime's `heap::arenas`).
const LEAST_HEAP: u64 = 4 << 20;
/// An arena is grown ahead by an eighth of the heap, at least and at most by this (runtime's `heap::arenas`).
const AHEAD: std::ops::RangeInclusive<u64> = (4 << 20)..=(8 << 20);
/// Address space of one of malloc's arenas, and its alignment (glibc's HEAP_MAX_SIZE on 64-bit machines).
const ARENA: u64 = 64 << 20;

/// The mappings of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The process.
    pub process: Process,
    /// Its mappings, lowest address first.
    pub parts: Vec<Part>,
}

/// A mapping, its kind and its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The mapping.
    pub mapping: Mapping,
    /// Kind of memory.
    pub kind: MappingKind,
    /// Page size of a hugetlb mapping, if known.
    pub page: Option<PageSize>,
    /// Bytes in memory; `None` if the kernel cannot tell (before Linux 6.7).
    pub touched: Option<ByteSize>,
}

/// What processes would take of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// Number of processes.
    pub processes: usize,
    /// Shared memory, largest first.
    pub shared: Vec<SharedMemory>,
    /// Private memory of each process that has any, largest first.
    pub private: Vec<PrivateMemory>,
    /// Private mappings larger than memory, which no pool can hold; largest first.
    pub left_out: Vec<LeftOut>,
}

/// A private mapping that is not counted, because it is larger than memory and swap together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Bytes of the mapping.
    pub bytes: ByteSize,
    /// Bytes of it in memory; `None`: unknown.
    pub touched_bytes: Option<ByteSize>,
}

/// One object of shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedMemory {
    /// How it was made.
    pub kind: SharedKind,
    /// Its name in `/proc/PID/maps`.
    pub name: String,
    /// Bytes that any of the processes maps, each part once.
    pub bytes: ByteSize,
    /// Length of each part that is mapped, when parts of the object are not: a pool gives each whole pages.
    #[serde(skip)]
    ranges: Vec<(u64, u64)>,
    /// Most bytes that one process has in its page tables; `None`: unknown.
    pub touched_bytes: Option<ByteSize>,
    /// Number of processes that map it.
    pub processes: usize,
    /// Page size of the pool that it lies on already, if it does.
    pub page_bytes: Option<PageSize>,
}

/// How shared memory was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedKind {
    /// `MAP_SHARED | MAP_ANONYMOUS`.
    Anonymous,
    /// shmget.
    SysV,
    /// memfd_create.
    Memfd,
    /// shm_open, or another file on tmpfs.
    File,
    /// Pages of a pool.
    Hugetlb,
}

/// Private memory of one process that a pool could hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrivateMemory {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Bytes of malloc's arenas: the brk area and those of threads.
    pub heap_bytes: ByteSize,
    /// Number of arenas.
    pub arenas: usize,
    /// Bytes of private anonymous mappings that hold at least 2 MiB.
    pub mapped_bytes: ByteSize,
    /// Bytes of all these in memory; `None`: unknown.
    pub touched_bytes: Option<ByteSize>,
    /// Bytes of the parent's private memory, which counts for the parent.
    pub inherited_bytes: ByteSize,
    /// Bytes on a pool already, by page size.
    pub hugetlb_bytes: BTreeMap<PageSize, ByteSize>,
    #[serde(skip)]
    arena_lengths: Vec<u64>,
    #[serde(skip)]
    lengths: Vec<u64>,
}

/// Pages of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Need {
    /// For shared memory.
    pub shared_pages: u64,
    /// For private memory, if `superpage run --pages hugetlb` starts the program.
    pub private_pages: u64,
    /// The part of `private_pages` that may stay unused: what arenas are grown ahead, the first 4 MiB of the heap, and a
    /// page of each arena that is not wholly inside it.
    pub spare_pages: u64,
    /// Pages of this size that the processes have already.
    pub held_pages: u64,
}

impl Need {
    /// Shared and private together. With this number of pages, no request finds the pool empty.
    pub fn pages(&self) -> u64 {
        self.shared_pages.saturating_add(self.private_pages)
    }
}

impl Image {
    /// Reads the mappings of a process, and what is in memory if the kernel has PAGEMAP_SCAN.
    ///
    /// # Errors
    /// The process ended, or may not be read.
    pub fn read(root: &Root, process: &Process) -> Result<Self, SpaceError> {
        let mounts = MemoryMounts::from_pid(root, process.pid)?;
        let part = |mapping: Mapping, kind, pages: Option<Scanned>| Part {
            page: mounts.hugetlbfs.iter().find(|it| it.0 == mapping.device).and_then(|it| it.1),
            mapping,
            kind,
            touched: pages.map(|pages| pages.present),
        };
        let parts = match AddressSpace::read(root, process) {
            Ok(space) => {
                let extents = space.extents.into_iter();
                extents.map(|it| part(it.mapping, it.kind, Some(it.pages))).collect()
            }
            Err(SpaceError::NoScan) => {
                let mappings: Result<Vec<Mapping>, ReadError> =
                    Maps::open(root, process.pid)?.collect();
                let of = |mapping| {
                    let kind = MappingKind::from_mapping(&mapping, &mounts);
                    part(mapping, kind, None)
                };
                mappings?.into_iter().map(of).collect()
            }
            Err(error) => return Err(error),
        };
        Ok(Self { process: process.clone(), parts })
    }

    /// Leaves away private anonymous memory: its allocator maps it with MAP_NORESERVE, which is never put on a pool.
    pub fn drop_private(&mut self) {
        let is_kept = |part: &Part| {
            part.mapping.sharing == Sharing::Shared
                || !matches!(part.kind, MappingKind::Anonymous | MappingKind::Heap)
        };
        self.parts.retain(is_kept);
    }

    /// Whether this process was forked from `other` and has executed nothing since, or is the same.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.lineage().is_some() && self.lineage() == other.lineage()
    }

    /// Identifies the program image: a child that forked has its parent's, a program that was executed its own (the
    /// kernel chooses the places of stack and vdso anew).
    fn lineage(&self) -> Option<(u64, Option<u64>)> {
        let stack = self.parts.iter().find(|part| part.kind == MappingKind::Stack)?;
        let vdso = self.parts.iter().find(|part| part.mapping.name == "[vdso]");
        Some((stack.mapping.end, vdso.map(|part| part.mapping.start)))
    }
}

impl Demand {
    /// Adds up what processes would take. `limit`: private mappings longer than this have no memory behind them
    /// ([`largest_backed`]).
    pub fn new(images: &[Image], limit: u64) -> Self {
        let mut shared: BTreeMap<(SharedKind, Device, u64), SharedMemory> = BTreeMap::new();
        for image in images {
            let mut seen = BTreeSet::new();
            for part in &image.parts {
                let Some(kind) = shared_kind(part) else { continue };
                let mapping = &part.mapping;
                let key = (kind, mapping.device, mapping.inode);
                let object = shared.entry(key).or_insert_with(|| SharedMemory::new(kind, part));
                let end = mapping.offset.saturating_add(mapping.len());
                object.ranges.push((mapping.offset, end));
                if seen.insert(key) {
                    object.processes += 1;
                }
                object.touched_bytes =
                    object.touched_bytes.zip(part.touched).map(|(a, b)| a.max(b));
            }
        }
        let mut shared: Vec<SharedMemory> =
            shared.into_values().map(SharedMemory::joined).collect();
        shared.sort_by_key(|object| std::cmp::Reverse(object.bytes));
        // The oldest process of a lineage has the memory that the others inherited.
        let mut oldest: Vec<&Image> = images.iter().collect();
        oldest.sort_by_key(|image| (image.process.start_ticks, image.process.pid));
        let mut private = Vec::new();
        let mut left_out = Vec::new();
        for image in images {
            let lineage = image.lineage();
            let first = oldest.iter().find(|other| other.lineage() == lineage);
            let parent = first.filter(|first| first.process.pid != image.process.pid);
            let parent = parent.map(|it| &**it);
            private.extend(PrivateMemory::new(image, parent, limit, &mut left_out));
        }
        left_out.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        private.sort_by_key(|one| std::cmp::Reverse(one.bytes()));
        Self { processes: images.len(), shared, private, left_out }
    }

    /// Bytes that a pool would have to hold, before rounding.
    pub fn bytes(&self) -> u64 {
        let shared = self.shared.iter().map(|object| object.bytes.bytes());
        shared.chain(self.private.iter().map(PrivateMemory::bytes)).fold(0, u64::saturating_add)
    }

    /// Number of pages of `size`. Objects smaller than `least`, the smallest pool's pages, stay on base pages.
    pub fn need(&self, size: PageSize, least: PageSize) -> Need {
        let mut need = Need::default();
        for object in self.shared.iter().filter(|object| object.bytes.bytes() >= least.bytes()) {
            let pages = object.pages(size);
            need.shared_pages = need.shared_pages.saturating_add(pages);
            if object.page_bytes == Some(size) {
                need.held_pages = need.held_pages.saturating_add(pages);
            }
        }
        for one in &self.private {
            let (pages, spare) = one.pages(size);
            need.private_pages = need.private_pages.saturating_add(pages);
            need.spare_pages = need.spare_pages.saturating_add(spare);
            let held = one.hugetlb_bytes.get(&size).map_or(0, |bytes| size.count(bytes.bytes()));
            need.held_pages = need.held_pages.saturating_add(held);
        }
        need
    }
}

/// Bytes of the largest private mapping that can have memory behind it: all memory and swap. The kernel permits a
/// larger one only with MAP_NORESERVE (or with every overcommit allowed), which is never put on a pool.
pub fn largest_backed(root: &Root) -> u64 {
    let memory = MemInfo::read(root).ok();
    let bytes = memory.and_then(|it| {
        Some(it.total?.bytes().saturating_add(it.swap_total.map_or(0, ByteSize::bytes)))
    });
    bytes.unwrap_or(u64::MAX)
}

fn shared_kind(part: &Part) -> Option<SharedKind> {
    if part.mapping.sharing != Sharing::Shared {
        return None;
    }
    let name = part.mapping.name.as_str();
    match part.kind {
        MappingKind::Hugetlb => Some(SharedKind::Hugetlb),
        // The names that the kernel gives (mm/shmem.c, ipc/shm.c, mm/memfd.c). A segment's inode is its id, which
        // another object may have: the kind is part of the key.
        MappingKind::Shmem if name.starts_with("/SYSV") => Some(SharedKind::SysV),
        MappingKind::Shmem if name.starts_with("/memfd:") => Some(SharedKind::Memfd),
        MappingKind::Shmem if name.starts_with("/dev/zero") || name.starts_with('[') => {
            Some(SharedKind::Anonymous)
        }
        MappingKind::Shmem => Some(SharedKind::File),
        _ => None,
    }
}

impl SharedMemory {
    fn new(kind: SharedKind, part: &Part) -> Self {
        Self {
            kind,
            name: part.mapping.name.clone(),
            bytes: ByteSize(0),
            ranges: Vec::new(),
            touched_bytes: Some(ByteSize(0)),
            processes: 0,
            page_bytes: part.page.filter(|_| kind == SharedKind::Hugetlb),
        }
    }

    /// Joins the ranges that overlap or touch.
    fn joined(mut self) -> Self {
        self.ranges.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in self.ranges {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        let bytes = joined.iter().fold(0, |sum: u64, (from, to)| sum.saturating_add(to - from));
        Self { bytes: ByteSize(bytes), ranges: joined, ..self }
    }

    /// Number of pages of `size` that hold what is mapped of the object.
    pub fn pages(&self, size: PageSize) -> u64 {
        let mut pages = 0;
        let mut counted = 0; // the page after the last one counted
        for (start, end) in &self.ranges {
            let from = (start / size.bytes()).max(counted);
            let to = size.count(*end);
            pages += to.saturating_sub(from);
            counted = counted.max(to);
        }
        pages
    }
}

impl PrivateMemory {
    /// Adds up the private memory of a process, and notes in `left_out` the mappings longer than `limit`.
    fn new(
        image: &Image,
        parent: Option<&Image>,
        limit: u64,
        left_out: &mut Vec<LeftOut>,
    ) -> Option<Self> {
        let mut one = Self {
            pid: image.process.pid,
            name: image.process.name.clone(),
            heap_bytes: ByteSize(0),
            arenas: 0,
            mapped_bytes: ByteSize(0),
            touched_bytes: Some(ByteSize(0)),
            inherited_bytes: ByteSize(0),
            hugetlb_bytes: BTreeMap::new(),
            arena_lengths: Vec::new(),
            lengths: Vec::new(),
        };
        let mut joined = None;
        for (index, part) in image.parts.iter().enumerate() {
            let mapping = &part.mapping;
            let is_hugetlb = part.kind == MappingKind::Hugetlb;
            // The kernel splits a mapping where its protection changes; the pool holds it whole.
            let adjoins = joined == Some(mapping.start) && part.kind == MappingKind::Anonymous;
            let is_data = (mapping.writable || mapping.readable && adjoins) && !mapping.executable;
            if mapping.sharing != Sharing::Private || !is_hugetlb && !is_data {
                continue;
            }
            let before = index.checked_sub(1).map(|index| &image.parts[index]);
            let kind = private_kind(part, before, image.parts.get(index + 1));
            let Some(kind) = kind else { continue };
            let inherited = parent.map_or(0, |parent| overlap(parent, mapping));
            if mapping.len() > limit {
                left_out.extend((inherited < mapping.len()).then(|| LeftOut {
                    pid: image.process.pid,
                    name: image.process.name.clone(),
                    bytes: ByteSize(mapping.len()),
                    touched_bytes: part.touched,
                }));
                continue;
            }
            one.inherited_bytes = sum(one.inherited_bytes, inherited);
            let length = mapping.len() - inherited;
            match kind {
                Private::Arena => {
                    one.heap_bytes = sum(one.heap_bytes, length);
                    one.arena_lengths.push(length);
                }
                Private::Hugetlb => {
                    if let Some(page) = part.page {
                        let bytes = one.hugetlb_bytes.entry(page).or_default();
                        *bytes = sum(*bytes, length);
                    }
                }
                Private::Mapping => {
                    one.mapped_bytes = sum(one.mapped_bytes, length);
                    match one.lengths.last_mut().filter(|_| adjoins) {
                        Some(last) => *last += length,
                        None => one.lengths.push(length),
                    }
                    joined = Some(mapping.end);
                }
            }
            let touched = part.touched.filter(|_| inherited == 0);
            let touched = if inherited > 0 { Some(ByteSize(0)) } else { touched };
            one.touched_bytes =
                one.touched_bytes.zip(touched).map(|(all, more)| sum(all, more.bytes()));
        }
        one.arena_lengths.retain(|length| *length > 0);
        one.arenas = one.arena_lengths.len();
        (one.bytes() > 0 || one.inherited_bytes.bytes() > 0).then_some(one)
    }

    /// Bytes that a pool would have to hold, before rounding.
    pub fn bytes(&self) -> u64 {
        let own = self.heap_bytes.bytes().saturating_add(self.mapped_bytes.bytes());
        self.hugetlb_bytes.values().fold(own, |sum, bytes| sum.saturating_add(bytes.bytes()))
    }

    /// Number of pages of `size`, and how many of them may stay unused by the heap.
    fn pages(&self, size: PageSize) -> (u64, u64) {
        // Pages lie wholly inside a mapping; the ends stay on base pages.
        let whole = |bytes: u64| bytes / size.bytes();
        let mapped = self.lengths.iter().map(|length| whole(*length)).sum::<u64>();
        let held = self.hugetlb_bytes.get(&size).map_or(0, |bytes| size.count(bytes.bytes()));
        let heap = self.heap_bytes.bytes();
        let mut of_heap = 0;
        let mut certain = 0;
        if heap >= LEAST_HEAP {
            let ahead = (heap / 8).clamp(*AHEAD.start(), *AHEAD.end());
            of_heap = self.arena_lengths.iter().map(|length| whole(length + ahead)).sum();
            let sure = |length: &u64| whole(*length).saturating_sub(1);
            certain = self.arena_lengths.iter().map(sure).sum::<u64>();
            certain = certain.saturating_sub(size.count(LEAST_HEAP));
        }
        (mapped + held + of_heap, of_heap - certain)
    }
}

enum Private {
    /// The brk area, or an arena of a thread.
    Arena,
    Mapping,
    Hugetlb,
}

/// What a private writable mapping is for the pool; `None`: it stays on base pages.
fn private_kind(part: &Part, before: Option<&Part>, after: Option<&Part>) -> Option<Private> {
    let mapping = &part.mapping;
    let adjoins = |other: &&Part| other.mapping.end == mapping.start;
    let follows = |other: &&Part| other.mapping.start == mapping.end;
    let is_guard = |other: &Part| {
        let it = &other.mapping;
        other.kind == MappingKind::Anonymous && !it.readable && !it.writable && !it.executable
    };
    match part.kind {
        MappingKind::Hugetlb => Some(Private::Hugetlb),
        MappingKind::Heap => Some(Private::Arena),
        MappingKind::Anonymous => {
            let rest = after.filter(follows).filter(|after| is_guard(after));
            let is_arena = mapping.start.is_multiple_of(ARENA)
                && rest.is_some_and(|rest| rest.mapping.end.is_multiple_of(ARENA));
            // A stack of a thread: above a guard. Before glibc 2.27 the guard was a part of the stack's length.
            let guard = before.filter(adjoins).filter(|before| is_guard(before));
            let is_stack = guard.is_some_and(|guard| {
                let below = guard.mapping.len();
                below <= 64 << 10 && [STACK, STACK - below].contains(&mapping.len())
            });
            // The bss of a program or library: above its data.
            let is_data = before
                .filter(adjoins)
                .is_some_and(|before| before.kind == MappingKind::File && before.mapping.writable);
            match () {
                () if is_arena => Some(Private::Arena),
                () if is_stack || is_data => None,
                () => Some(Private::Mapping),
            }
        }
        _ => None,
    }
}

/// Length of a thread's stack: the default of RLIMIT_STACK.
const STACK: u64 = 8 << 20;

/// Bytes of `mapping` that private memory of `parent` covers.
fn overlap(parent: &Image, mapping: &Mapping) -> u64 {
    let private = parent.parts.iter().map(|part| &part.mapping);
    let private = private.filter(|it| it.sharing == Sharing::Private && it.writable);
    let common =
        private.map(|it| it.end.min(mapping.end).saturating_sub(it.start.max(mapping.start)));
    common.sum()
}

fn sum(bytes: ByteSize, more: u64) -> ByteSize {
    ByteSize(bytes.bytes().saturating_add(more))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const M: u64 = 1 << 20;

    fn size(bytes: u64) -> PageSize {
        PageSize::new(bytes).unwrap()
    }

    fn image(pid: i32, started: u64, lines: &str) -> Image {
        let process = Process {
            pid: Pid(pid),
            start_ticks: started,
            parent: Pid(1),
            name: format!("p{pid}"),
            command: Vec::new(),
            user: Some(0),
            cgroup: None,
            unit: None,
        };
        let hugetlbfs = Device { major: 0, minor: 17 };
        let mounts = MemoryMounts {
            tmpfs: vec![Device { major: 0, minor: 27 }],
            hugetlbfs: vec![(hugetlbfs, Some(size(2 * M)))],
        };
        let part = |line: &str| {
            let mapping = host::process::parse::maps_line(line).unwrap();
            Part {
                kind: MappingKind::from_mapping(&mapping, &mounts),
                page: (mapping.device == hugetlbfs).then(|| size(2 * M)),
                touched: Some(ByteSize(4096)),
                mapping,
            }
        };
        Image { process, parts: lines.lines().map(str::trim).map(part).collect() }
    }

    fn need(images: &[Image]) -> Need {
        Demand::new(images, u64::MAX).need(size(2 * M), size(2 * M))
    }

    const STACK_AND_VDSO: &str = "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
        7ffd00100000-7ffd00102000 r-xp 00000000 00:00 0 [vdso]";

    #[test]
    fn shared_memory_counts_whole_and_once_for_a_tree() {
        // 512 MiB of which a page is touched, in a server and its two children; a child has a segment too.
        let buffers = "7f0000000000-7f0020000000 rw-s 00000000 00:01 7 /dev/zero (deleted)";
        let segment = "7f0030000000-7f0030500000 rw-s 00000000 00:01 7 /SYSV0000002a (deleted)";
        let images = [
            image(10, 1, buffers),
            image(11, 2, buffers),
            image(12, 2, &format!("{buffers}\n{segment}")),
        ];
        let demand = Demand::new(&images, u64::MAX);
        assert_eq!(demand.shared.len(), 2, "an inode of a segment may be that of another object");
        assert_eq!(demand.shared[0].processes, 3);
        // 5 MiB are three pages.
        assert_eq!(need(&images), Need { shared_pages: 256 + 3, ..Need::default() });
        assert_eq!(demand.need(size(1 << 30), size(2 * M)).shared_pages, 2);
    }

    #[test]
    fn two_views_of_an_object_are_its_union_and_small_objects_stay_on_base_pages() {
        let images = [
            image(
                10,
                1,
                "7f0000000000-7f0000300000 rw-s 00000000 00:01 9 /memfd:a (deleted)
                 7f0000400000-7f0000500000 rw-s 00000000 00:01 10 /memfd:b (deleted)",
            ),
            image(11, 2, "7f0000000000-7f0000300000 rw-s 00200000 00:01 9 /memfd:a (deleted)"),
            image(12, 2, "7f0000000000-7f0000200000 rw-s 00900000 00:01 9 /memfd:a (deleted)"),
        ];
        let demand = Demand::new(&images, u64::MAX);
        // 0 to 5 MiB is pages 0 to 2; 9 to 11 MiB is pages 4 and 5.
        assert_eq!(demand.shared[0].bytes, ByteSize(7 * M));
        assert_eq!(need(&images).shared_pages, 5);
    }

    #[test]
    fn a_forked_child_takes_only_what_it_mapped_itself() {
        let heap = "555500000000-555502000000 rw-p 00000000 00:00 0 [heap]";
        let mapped = "7f0000000000-7f0000a00000 rw-p 00000000 00:00 0";
        let later = "7f0010000000-7f0010600000 rw-p 00000000 00:00 0";
        let parent = image(10, 1, &format!("{heap}\n{mapped}\n{STACK_AND_VDSO}"));
        let child = image(11, 2, &format!("{heap}\n{mapped}\n{later}\n{STACK_AND_VDSO}"));
        let alone = need(std::slice::from_ref(&parent));
        // 32 MiB of heap grown ahead by 4 MiB, and five pages of the mapping.
        assert_eq!((alone.private_pages, alone.spare_pages), (18 + 5, 5));
        let both = Demand::new(&[parent.clone(), child.clone()], u64::MAX);
        assert_eq!(both.need(size(2 * M), size(2 * M)).private_pages, 18 + 5 + 3);
        assert_eq!(both.private[1].inherited_bytes, ByteSize(42 * M));
        // An executed program has its stack at another address.
        let text =
            format!("{heap}\n{mapped}\n7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]");
        let other = image(12, 3, &text);
        assert_eq!(need(&[parent, other]).private_pages, 2 * (18 + 5));
    }

    #[test]
    fn private_mappings_hold_whole_pages_and_stacks_data_and_reservations_none() {
        let lines = "400000-500000 rw-p 00000000 08:01 5 /bin/x
            500000-d00000 rw-p 00000000 00:00 0
            7f0000000000-7f0000500000 rw-p 00000000 00:00 0
            7f0001000000-7f0001001000 ---p 00000000 00:00 0
            7f0001001000-7f0001801000 rw-p 00000000 00:00 0
            7f0001901000-7f0001902000 ---p 00000000 00:00 0
            7f0001902000-7f0002101000 rw-p 00000000 00:00 0
            7f0003000000-7f0013000000 ---p 00000000 00:00 0
            7f0020000000-7f0020100000 rw-p 00000000 00:00 0
            7e0000000000-7e1000000000 rw-p 00000000 00:00 0";
        let images = [image(10, 1, lines)];
        let demand = Demand::new(&images, 1 << 35);
        assert_eq!(demand.need(size(2 * M), size(2 * M)).private_pages, 2);
        assert_eq!(demand.private[0].mapped_bytes, ByteSize(6 * M));
        // The mapping of 64 GiB is not passed over in silence.
        let left_out = LeftOut {
            pid: Pid(10),
            name: "p10".into(),
            bytes: ByteSize(1 << 36),
            touched_bytes: Some(ByteSize(4096)),
        };
        assert_eq!(demand.left_out, [left_out]);
        assert_eq!(Demand::new(&images, u64::MAX).left_out, []);
    }

    #[test]
    fn a_mapping_that_protections_divide_is_one() {
        let lines = "7f0000000000-7f0000300000 rw-p 00000000 00:00 0
            7f0000300000-7f0000301000 r--p 00000000 00:00 0
            7f0000301000-7f0000400000 rw-p 00000000 00:00 0
            7f0000500000-7f0000700000 r--p 00000000 00:00 0";
        assert_eq!(need(&[image(10, 1, lines)]).private_pages, 2);
    }

    #[test]
    fn each_arena_is_grown_ahead_once_the_heap_is_large() {
        let arena = |at: u64, bytes: u64| {
            let (start, end) = (at * ARENA, (at + 1) * ARENA);
            let filled = start + bytes;
            format!(
                "{start:x}-{filled:x} rw-p 00000000 00:00 0\n{filled:x}-{end:x} ---p 00000000 00:00 0"
            )
        };
        let small = [image(10, 1, &format!("{}\n{}", arena(100, M), arena(102, M)))];
        assert_eq!(need(&small).private_pages, 0, "2 MiB of heap stay on base pages");
        let large = [image(10, 1, &format!("{}\n{}", arena(100, 10 * M), arena(102, 3 * M)))];
        let need = need(&large);
        assert_eq!((need.private_pages, need.spare_pages), (7 + 3, 10 - (5 - 1 - 2)));
    }

    #[test]
    fn pages_that_processes_have_already_are_told() {
        let lines = "7f0000000000-7f0000800000 rw-s 00000000 00:11 7 /anon_hugepage (deleted)
            7f0001000000-7f0001400000 rw-p 00000000 00:11 8 /anon_hugepage (deleted)";
        let images = [image(10, 1, lines), image(11, 2, lines.lines().next().unwrap())];
        let need = need(&images);
        assert_eq!((need.shared_pages, need.private_pages, need.held_pages), (4, 2, 6));
    }

    /// The kernel's names and inodes, of memory that this test makes.
    #[test]
    fn this_process_shows_its_shared_memory() {
        let file = std::fs::File::from(sys::memfd::create("demand", None).unwrap());
        file.set_len(3 << 20).unwrap();
        let mut view = sys::mem::Mapping::anonymous(3 << 20, sys::mem::Backing::Pages).unwrap();
        view.put_file(0, 3 << 20, file.as_fd(), 0).unwrap();
        let root = Root::real();
        let own = Process::read(&root, sys::param::own_pid()).unwrap().unwrap();
        let demand = Demand::new(&[Image::read(&root, &own).unwrap()], largest_backed(&root));
        let found = demand.shared.iter().find(|object| object.name.starts_with("/memfd:demand"));
        let found = found.expect("the memfd");
        assert_eq!((found.kind, found.bytes), (SharedKind::Memfd, ByteSize(3 * M)));
        assert_eq!(found.pages(size(2 * M)), 2);
    }
}
