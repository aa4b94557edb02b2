//! `Walk`: the page tables of one process, read in steps.
//!
//! A step is some system calls, each over at most 64 MiB of pages, with rests between them ([`sys::pagemap::Pace`]); the
//! kernel holds the process's mmap lock only during a call. Mappings are read as the walk proceeds, so a walk over
//! 100,000 mappings needs no list of them. Between calls the process may map and unmap memory: the sums are not of one
//! instant.
//!
//! See docs/decisions/watching.md#1.

use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use host::coverage::{MappingKind, Scanned};
use host::process::{Mapping, Maps, MemoryMounts};
use host::{ReadError, Root};
use serde::Serialize;
use services::{AddressSpace, Extent, SpaceError};
use sys::affinity::Undisturbed;
use sys::pagemap::{Categories, Pace, PageRegion, Pagemap};
use units::{ByteSize, PageSize, Pid};

/// Addresses of a step. Full of base pages, the kernel takes 4.4 ms for them (docs/sources/kernel_facts.md 2).
const STEP: u64 = 1 << 30;

/// Maximum addresses of a step where steps find nothing: programs reserve terabytes.
const MAX_STEP: u64 = 16 << 40;

/// Maximum number of mappings of a step, which limits what is read of `/proc/PID/maps` before it.
const MAPPINGS: usize = 512;

/// Memory that a process maps, in bytes, by its page tables. Memory shared with other processes is included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// Resident bytes, hugetlb pages included, without the zero page.
    pub resident: ByteSize,
    /// The part of `resident` on superpages: THP mapped as a whole, and hugetlb pages. Smaller folios (mTHP) are not
    /// in it.
    pub superpages: ByteSize,
    /// The part of `resident` that could be on superpages: base pages in whole, aligned, private anonymous blocks of a
    /// superpage's size of which at least half is resident. `None`: the kernel has no THP.
    pub possible: Option<ByteSize>,
    /// Bytes in swap.
    pub swapped: ByteSize,
}

impl Mapped {
    /// Share of the resident bytes on superpages, 0 to 1; `None` if nothing is resident.
    pub fn coverage(&self) -> Option<f64> {
        let resident = self.resident.bytes();
        (resident > 0).then(|| self.superpages.bytes() as f64 / resident as f64)
    }

    /// The memory of one mapping of an address space, with the same meaning.
    pub fn from_extent(space: &AddressSpace, extent: &Extent) -> Self {
        let (size, base) = (space.superpage.bytes(), space.base.bytes());
        let bounds = extent.mapping.start..=extent.mapping.end;
        let is_whole = |start: u64| bounds.contains(&start) && bounds.contains(&(start + size));
        let possible = extent
            .blocks
            .iter()
            .filter(|block| extent.kind.is_anonymous() && is_whole(block.start))
            .map(|block| u64::from(block.pages.base) * base)
            .filter(|bytes| *bytes >= size / 2);
        Self {
            resident: extent.pages.present,
            superpages: extent.pages.huge,
            possible: Some(ByteSize(possible.sum())),
            swapped: extent.pages.swapped,
        }
    }

    /// Adds the memory of another process.
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: ByteSize, b: ByteSize| ByteSize(a.bytes().saturating_add(b.bytes()));
        Self {
            resident: sum(self.resident, other.resident),
            superpages: sum(self.superpages, other.superpages),
            possible: self.possible.zip(other.possible).map(|(a, b)| sum(a, b)),
            swapped: sum(self.swapped, other.swapped),
        }
    }
}

/// A walk in progress.
#[derive(Debug)]
pub struct Walk {
    pagemap: Pagemap,
    maps: Maps<BufReader<File>>,
    /// A mapping of which the part from its address on is still to be read.
    rest: Option<(Mapping, u64)>,
    sums: Sums,
    pace: Pace,
    /// Addresses of the next step.
    length: u64,
}

/// What a step was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The walk goes on.
    More,
    /// The walk is at its end.
    End(Mapped),
}

impl Walk {
    /// Opens the files of a process. `superpage`: the size of a PMD's page, `None` without THP.
    ///
    /// # Errors
    /// The process ended, or may not be read (PTRACE_MODE_READ).
    pub fn new(root: &Root, pid: Pid, superpage: Option<PageSize>) -> Result<Self, SpaceError> {
        let pagemap = Pagemap::open(pid)?;
        let maps = Maps::open(root, pid)?;
        let (sums, pace) = (Sums::new(superpage), Pace::new());
        Ok(Self { pagemap, maps, rest: None, sums, pace, length: STEP })
    }

    /// The longest system call so far.
    pub fn longest(&self) -> Duration {
        self.pace.longest()
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// The process ended, or the kernel has no PAGEMAP_SCAN.
    pub fn step(&mut self) -> Result<Step, SpaceError> {
        let parts = self.next_parts()?;
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(Step::End(self.sums.finish()));
        };
        let wanted = Categories::PRESENT | Categories::SWAPPED;
        // While this thread waits for a CPU inside a call, the process's mmap lock stays held.
        let _undisturbed = Undisturbed::new();
        let (mut is_empty, sums) = (true, &mut self.sums);
        self.pagemap.scan_each(first.from, last.to, wanted, &mut self.pace, |regions| {
            is_empty &= regions.is_empty();
            sums.add(&parts, regions);
        })?;
        self.length = if is_empty { MAX_STEP.min(self.length * 8) } else { STEP };
        Ok(Step::More)
    }

    /// The next mappings within the addresses of a step, the first and last possibly in part.
    fn next_parts(&mut self) -> Result<Vec<Part>, ReadError> {
        let mut parts: Vec<Part> = Vec::new();
        while parts.len() < MAPPINGS {
            let (mapping, from) = match self.rest.take() {
                Some(rest) => rest,
                None => match self.maps.next().transpose()? {
                    Some(mapping) => {
                        let start = mapping.start;
                        (mapping, start)
                    }
                    None => break,
                },
            };
            // Only anonymous memory is treated differently, which needs no mounts of the process.
            let kind = MappingKind::from_mapping(&mapping, &MemoryMounts::default());
            if !kind.has_pages(&mapping) || mapping.is_empty() {
                continue;
            }
            let end = parts.first().map_or(from, |first| first.from).saturating_add(self.length);
            if from >= end {
                self.rest = Some((mapping, from));
                break;
            }
            let to = mapping.end.min(end);
            let bounds = (mapping.start, mapping.end);
            parts.push(Part { from, to, bounds, is_anonymous: kind.is_anonymous() });
            if to < mapping.end {
                self.rest = Some((mapping, to));
                break;
            }
        }
        Ok(parts)
    }
}

/// A part of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    from: u64,
    to: u64,
    /// Start and end of the mapping.
    bounds: (u64, u64),
    is_anonymous: bool,
}

/// Sums over the regions of a process, lowest address first.
#[derive(Debug)]
struct Sums {
    superpage: Option<PageSize>,
    scanned: Scanned,
    possible: u64,
    /// The superpage-sized block that was met last: its address, and its bytes on base pages.
    block: (u64, u64),
}

impl Sums {
    fn new(superpage: Option<PageSize>) -> Self {
        Self { superpage, scanned: Scanned::default(), possible: 0, block: (0, 0) }
    }

    /// Adds the regions found between the first and the last of `parts`. Regions outside every part are skipped.
    fn add(&mut self, parts: &[Part], regions: &[PageRegion]) {
        let Some(start) = regions.first().map(|region| region.start) else { return };
        let mut first = parts.partition_point(|part| part.to <= start);
        for region in regions {
            while parts.get(first).is_some_and(|part| part.to <= region.start) {
                first += 1;
            }
            for part in parts[first..].iter().take_while(|part| part.from < region.end) {
                let start = region.start.max(part.from);
                let end = region.end.min(part.to);
                let piece = PageRegion { start, end, categories: region.categories };
                self.scanned.add(&piece);
                if part.is_anonymous && is_base(region.categories) {
                    self.add_base(part, start, end);
                }
            }
        }
    }

    /// Adds the base pages of `start..end`, of an anonymous mapping.
    fn add_base(&mut self, part: &Part, start: u64, end: u64) {
        let Some(size) = self.superpage.map(PageSize::bytes) else { return };
        let mut from = start;
        while from < end {
            let block = from - from % size;
            let after = block.saturating_add(size);
            let to = end.min(after);
            if block >= part.bounds.0 && after <= part.bounds.1 {
                if self.block.0 != block {
                    self.close_block();
                    self.block = (block, 0);
                }
                self.block.1 += to - from;
            }
            from = to;
        }
    }

    fn close_block(&mut self) {
        let (_, bytes) = std::mem::take(&mut self.block);
        if self.superpage.is_some_and(|size| bytes >= size.bytes() / 2) {
            self.possible += bytes;
        }
    }

    fn finish(&mut self) -> Mapped {
        self.close_block();
        Mapped {
            resident: self.scanned.present,
            superpages: self.scanned.huge,
            possible: self.superpage.map(|_| ByteSize(self.possible)),
            swapped: self.scanned.swapped,
        }
    }
}

fn is_base(categories: Categories) -> bool {
    categories.contains(Categories::PRESENT)
        && !categories.contains(Categories::HUGE)
        && !categories.contains(Categories::PFNZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BASE: Categories = Categories::PRESENT;
    const HUGE: Categories = Categories(Categories::PRESENT.0 | Categories::HUGE.0);

    fn region(start: u64, end: u64, categories: Categories) -> PageRegion {
        PageRegion { start, end, categories }
    }

    fn anonymous(start: u64, end: u64) -> Part {
        Part { from: start, to: end, bounds: (start, end), is_anonymous: true }
    }

    fn sums(parts: &[&[Part]], regions: &[&[PageRegion]], size: u64) -> Mapped {
        let mut sums = Sums::new(PageSize::new(size).ok());
        for (parts, regions) in parts.iter().zip(regions) {
            sums.add(parts, regions);
        }
        sums.finish()
    }

    #[test]
    fn dense_aligned_anonymous_blocks_could_be_superpages() {
        // Blocks of 2 MiB at 2, 4, 6 and 8 MiB: half resident, less, on a superpage, and cut by the mapping's end.
        let part = anonymous(MIB, 9 * MIB);
        let regions = [
            region(MIB, 3 * MIB, BASE),
            region(4 * MIB, 5 * MIB - 4096, BASE),
            region(6 * MIB, 8 * MIB, HUGE),
            region(8 * MIB, 9 * MIB, BASE),
        ];
        let all = sums(&[&[part]], &[&regions], 2 * MIB);
        assert_eq!(all.possible, Some(ByteSize(MIB)));
        assert_eq!(all.superpages, ByteSize(2 * MIB));
        assert_eq!(all.resident, ByteSize(6 * MIB - 4096));
        // A file's pages are resident, not possible.
        let file = Part { is_anonymous: false, ..part };
        let all = sums(&[&[file]], &[&regions], 2 * MIB);
        assert_eq!((all.possible, all.resident.bytes()), (Some(ByteSize(0)), 6 * MIB - 4096));
        // The same pages, at 1 MiB (not a size of x86) and without THP.
        assert_eq!(sums(&[&[part]], &[&regions], MIB).possible, Some(ByteSize(4 * MIB - 4096)));
        assert_eq!(sums(&[&[part]], &[&regions], 0).possible, None);
    }

    #[test]
    fn neither_mappings_nor_slices_tear_a_block_or_join_two() {
        // One region over two mappings that meet inside a block: no whole block in either.
        let parts = [anonymous(2 * MIB, 3 * MIB), anonymous(3 * MIB, 4 * MIB)];
        let all = sums(&[&parts], &[&[region(2 * MIB, 4 * MIB, BASE)]], 2 * MIB);
        assert_eq!((all.possible, all.resident.bytes()), (Some(ByteSize(0)), 2 * MIB));
        // One mapping in two slices that meet inside a block: 0.5 MiB of it in each.
        let bounds = (2 * MIB, 4 * MIB);
        let first = Part { from: 2 * MIB, to: 3 * MIB, bounds, is_anonymous: true };
        let second = Part { from: 3 * MIB, to: 4 * MIB, bounds, is_anonymous: true };
        let halves =
            [region(3 * MIB - MIB / 2, 3 * MIB, BASE), region(3 * MIB, 3 * MIB + MIB / 2, BASE)];
        let all = sums(&[&[first], &[second]], &[&halves[..1], &halves[1..]], 2 * MIB);
        assert_eq!(all.possible, Some(ByteSize(MIB)));
        // Pages between mappings, as of a special mapping, are not counted; swap and the zero page are no base pages.
        let parts = [anonymous(2 * MIB, 4 * MIB), anonymous(6 * MIB, 8 * MIB)];
        let zero = Categories(BASE.0 | Categories::PFNZERO.0);
        let regions = [
            region(4 * MIB, 6 * MIB, BASE),
            region(6 * MIB, 7 * MIB, Categories::SWAPPED),
            region(7 * MIB, 8 * MIB, zero),
        ];
        let all = sums(&[&parts], &[&regions], 2 * MIB);
        let expected =
            Mapped { swapped: ByteSize(MIB), possible: Some(ByteSize(0)), ..Mapped::default() };
        assert_eq!(all, expected);
    }

    #[test]
    fn a_walk_in_slices_sees_what_one_read_of_the_space_sees() {
        use sys::mem::{Advice, Backing, Mapping as Memory};
        let (root, own) = (Root::real(), sys::param::own_pid());
        let Ok(superpage) = host::Thp::pmd_size_of(&root) else {
            testkit::skipped!("this kernel has no THP");
            return;
        };
        // 200 MiB, of which every second block is full, and some are on superpages if the kernel has them.
        let mut memory = Memory::anonymous(200 << 20, Backing::Pages).unwrap();
        memory.advise(Advice::NoHugePage).unwrap();
        let first =
            (memory.address().next_multiple_of(superpage.bytes()) - memory.address()) as usize;
        let size = superpage.bytes() as usize;
        for block in 0..20 {
            let at = first + 2 * block * size;
            memory.bytes_mut()[at..at + size].fill(1);
        }
        let process = services::Process::read(&root, own).unwrap().unwrap();
        let walk = || {
            let mut walk = Walk::new(&root, own, Some(superpage))?;
            let mut steps = 0;
            loop {
                match walk.step()? {
                    Step::More => steps += 1,
                    Step::End(mapped) => return Ok::<_, SpaceError>((mapped, steps)),
                }
            }
        };
        let (before, steps) = match walk() {
            Err(SpaceError::NoScan) => {
                testkit::skipped!("this kernel has no PAGEMAP_SCAN");
                return;
            }
            result => result.unwrap(),
        };
        assert!(steps > 1, "{steps}");
        let space = AddressSpace::read(&root, &process).unwrap();
        let extents = space.extents.iter().map(|extent| Mapped::from_extent(&space, extent));
        let zero = Mapped { possible: Some(ByteSize(0)), ..Mapped::default() };
        let sum = extents.fold(zero, Mapped::plus);
        let space = space.pages();
        assert_eq!((sum.resident, sum.superpages), (space.present, space.huge));
        assert!(
            sum.possible.unwrap().bytes().abs_diff(before.possible.unwrap().bytes()) < 16 << 20
        );
        let (after, _) = walk().unwrap();
        // Other threads of the test run allocate meanwhile: equal within what changed, and 40 MiB at least.
        let close = |a: ByteSize, b: ByteSize| a.bytes().abs_diff(b.bytes()) < 16 << 20;
        assert!(close(before.resident, space.present) && close(after.resident, space.present));
        assert!(before.possible.unwrap().bytes() >= 20 * superpage.bytes());
        drop(memory);
        let (gone, _) = walk().unwrap();
        assert!(
            gone.possible.unwrap().bytes() + 20 * superpage.bytes()
                <= after.possible.unwrap().bytes()
        );
    }
}
