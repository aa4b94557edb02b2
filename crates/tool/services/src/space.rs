//! A process's address space: its mappings, and what each superpage-sized part of them holds.
//!
//! Read by PAGEMAP_SCAN in slices of 64 MiB of pages, between which the process may map and unmap memory; so mappings and pages
//! are not of one instant. Nothing is locked, stopped or written.

use std::time::Duration;

use host::coverage::{MappingKind, Scanned};
use host::process::{Mapping, Maps, MemoryMounts};
use host::{ReadError, Root, Thp};
use serde::Serialize;
use sys::SysError;
use sys::affinity::Undisturbed;
use sys::pagemap::{Categories, Pace, PageRegion, Pagemap};
use sys::procmap::Procmap;
use units::{ByteSize, PageSize};

use crate::Process;

/// asm-generic/errno.h, the same on every Linux architecture.
const ENOTTY: i32 = 25;

/// The memory of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddressSpace {
    /// The process.
    pub process: Process,
    /// The superpage size: the size of a PMD's page.
    pub superpage: PageSize,
    /// The base page size.
    pub base: PageSize,
    /// Lowest address first.
    pub extents: Vec<Extent>,
    /// The longest call on the page tables: the process's mmap lock was held at most so long at a time.
    pub longest_hold: Duration,
}

/// One mapping and its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// The mapping.
    pub mapping: Mapping,
    /// Kind of memory.
    pub kind: MappingKind,
    /// Its pages, by what maps them.
    pub pages: Scanned,
    /// The superpage-sized, aligned parts that hold any page, lowest first. The first and the last may reach beyond the
    /// mapping; only the mapping's pages are counted.
    pub blocks: Vec<Block>,
}

/// An aligned part of an address space, as large as a superpage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Block {
    /// First address, a multiple of the superpage size.
    pub start: u64,
    /// Its pages in the mapping.
    pub pages: Pages,
}

/// Number of base pages of a block, by state. A superpage counts as all its base pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Mapped by base-sized entries (mTHP included), without the zero page.
    pub base: u32,
    /// Mapped by an entry above the lowest level: THP or hugetlb.
    pub huge: u32,
    /// Mapped to the shared zero page.
    pub zero: u32,
    /// In swap.
    pub swapped: u32,
}

/// Why an address space could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SpaceError {
    /// The process ended, or its pid is another process's now.
    #[error("the process ended while its memory was read")]
    Ended,
    /// This user may not read the process.
    #[error("{0}")]
    Denied(ReadError),
    /// The process executed another program during each of three attempts.
    #[error("the process executed another program while its memory was read; try again")]
    Executes,
    /// The kernel has no PAGEMAP_SCAN.
    #[error("reading page tables needs PAGEMAP_SCAN (Linux 6.7)")]
    NoScan,
    /// Another error of a file or a system call.
    #[error(transparent)]
    Read(ReadError),
}

impl AddressSpace {
    /// Reads the memory of a process on the real machine. Takes 1 to 13 ms of CPU time per GiB of base pages.
    ///
    /// # Errors
    /// The process ended, may not be read, executes one program after another, or the kernel has no PAGEMAP_SCAN.
    pub fn read(root: &Root, process: &Process) -> Result<Self, SpaceError> {
        // While this thread waits for a CPU inside a call, the process's mmap lock stays held (docs/decisions/map.md#4).
        let _undisturbed = Undisturbed::new();
        // After an exec the open files are those of an address space that has no mappings any more.
        let stack = || host::process::stat(root, process.pid).ok().map(|stat| stat.stack_start);
        for _ in 0..3 {
            let before = stack();
            let result = Self::read_once(root, process);
            // A reused pid gives another process's memory, without an error.
            if !process.is_running(root) {
                return Err(SpaceError::Ended);
            }
            if before == stack() {
                return result;
            }
        }
        Err(SpaceError::Executes)
    }

    fn read_once(root: &Root, process: &Process) -> Result<Self, SpaceError> {
        let superpage = Thp::pmd_size_of(root).map_err(SpaceError::Read)?;
        let mounts = MemoryMounts::from_pid(root, process.pid)?;
        let pagemap = Pagemap::open(process.pid)?;
        let mut space = Self {
            process: process.clone(),
            superpage,
            base: root.page_size(),
            extents: Vec::new(),
            longest_hold: Duration::ZERO,
        };
        let mut pace = Pace::new();
        let mut mappings = Mappings::open(root, process.pid)?;
        while let Some(mapping) = mappings.next()? {
            let kind = MappingKind::from_mapping(&mapping, &mounts);
            let (start, end) = (mapping.start, mapping.end);
            let mut extent =
                Extent { mapping, kind, pages: Scanned::default(), blocks: Vec::new() };
            if kind.has_pages(&extent.mapping) {
                let wanted = Categories::PRESENT | Categories::SWAPPED;
                pagemap.scan_each(start, end, wanted, &mut pace, |regions| {
                    space.add(&mut extent, regions)
                })?;
            }
            space.extents.push(extent);
            pace.rest();
        }
        // The kernel counts its own swap entries. What else looks swapped are markers, such as those of userfaultfd.
        if host::process::status(root, process.pid)?.swap == Some(ByteSize(0)) {
            space.extents.iter_mut().for_each(Extent::forget_swap);
        }
        space.longest_hold = pace.longest();
        Ok(space)
    }

    fn add(&self, extent: &mut Extent, regions: &[PageRegion]) {
        for region in regions {
            extent.pages.add(region);
            let mut from = region.start;
            while from < region.end {
                let start = from - from % self.superpage.bytes();
                let to = region.end.min(start.saturating_add(self.superpage.bytes()));
                let pages = ((to - from) / self.base.bytes()) as u32;
                if extent.blocks.last().is_none_or(|last| last.start != start) {
                    extent.blocks.push(Block { start, ..Block::default() });
                }
                if let Some(block) = extent.blocks.last_mut() {
                    *block.pages.of(region.categories) += pages;
                }
                from = to;
            }
        }
    }

    /// Sum over all extents.
    pub fn pages(&self) -> Scanned {
        self.extents.iter().map(|extent| extent.pages).fold(Scanned::default(), Scanned::plus)
    }
}

/// The mappings of a process, lowest address first: by PROCMAP_QUERY, else (before Linux 6.11) by `/proc/PID/maps`.
enum Mappings {
    Query { maps: Procmap, from: u64 },
    File(Maps<std::io::BufReader<std::fs::File>>),
}

impl Mappings {
    fn open(root: &Root, pid: units::Pid) -> Result<Self, SpaceError> {
        if root.is_real() {
            let maps = Procmap::open(pid)?;
            match maps.at_or_above(0) {
                Err(error) if error.errno() == ENOTTY => {}
                _ => return Ok(Self::Query { maps, from: 0 }),
            }
        }
        Ok(Self::File(Maps::open(root, pid)?))
    }

    fn next(&mut self) -> Result<Option<Mapping>, SpaceError> {
        match self {
            Self::File(maps) => Ok(maps.next().transpose()?),
            Self::Query { maps, from } => {
                let Some(found) = maps.at_or_above(*from)? else { return Ok(None) };
                let mut mapping = Mapping::from(found);
                // A mapping may have grown down, or been joined with the last one, since the last query.
                if mapping.start < *from {
                    mapping.offset = mapping.offset.saturating_add(*from - mapping.start);
                    mapping.start = *from;
                }
                *from = mapping.end;
                Ok(Some(mapping))
            }
        }
    }
}

impl Extent {
    fn forget_swap(&mut self) {
        self.pages.swapped = ByteSize(0);
        self.blocks.iter_mut().for_each(|block| block.pages.swapped = 0);
        self.blocks.retain(|block| block.pages != Pages::default());
    }

    /// Resident bytes that superpages map, and all resident bytes.
    pub fn coverage(&self) -> (ByteSize, ByteSize) {
        (self.pages.huge, self.pages.present)
    }
}

impl Pages {
    /// Number of base pages that hold the process's own data in memory.
    pub fn resident(&self) -> u32 {
        self.base + self.huge
    }

    /// The count of pages with these categories.
    fn of(&mut self, categories: Categories) -> &mut u32 {
        match categories {
            _ if categories.contains(Categories::PFNZERO) => &mut self.zero,
            _ if categories.contains(Categories::PRESENT | Categories::HUGE) => &mut self.huge,
            _ if categories.contains(Categories::PRESENT) => &mut self.base,
            _ => &mut self.swapped,
        }
    }
}

impl From<ReadError> for SpaceError {
    fn from(error: ReadError) -> Self {
        match error {
            error if error.is_gone() => Self::Ended,
            error if error.is_denied() => Self::Denied(error),
            error => Self::Read(error),
        }
    }
}

impl From<SysError> for SpaceError {
    fn from(error: SysError) -> Self {
        match error.errno() {
            ENOTTY => Self::NoScan,
            _ => ReadError::from(error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Target, select};
    use sys::mem::{Advice, Backing, Mapping as Memory};

    fn own_space() -> AddressSpace {
        let root = Root::real();
        let own = select(&root, &[Target::Pid(sys::param::own_pid())]).unwrap().processes;
        AddressSpace::read(&root, &own[0]).unwrap()
    }

    #[test]
    fn touched_pages_are_in_their_blocks() {
        testkit::require!(Thp::pmd_size_of(&Root::real()).is_ok(), "this kernel has no THP");
        let page = sys::param::page_size().bytes();
        let mut memory = Memory::anonymous(16 << 20, Backing::Pages).unwrap();
        memory.advise(Advice::NoHugePage).unwrap();
        let superpage = Thp::pmd_size_of(&Root::real()).unwrap().bytes();
        let first = memory.address().next_multiple_of(superpage);
        // Three pages in the second whole block, none in the first, one in the third.
        for at in [superpage, superpage + page, superpage + 7 * page, 2 * superpage] {
            let offset = (first + at - memory.address()) as usize;
            memory.bytes_mut()[offset] = 1;
        }
        let space = match AddressSpace::read(
            &Root::real(),
            &Process::read(&Root::real(), sys::param::own_pid()).unwrap().unwrap(),
        ) {
            Err(SpaceError::NoScan) => {
                testkit::skipped!("this kernel has no PAGEMAP_SCAN");
                return;
            }
            space => space.unwrap(),
        };
        let is_around = |extent: &&Extent| {
            extent.mapping.start <= first && extent.mapping.end > first + 2 * superpage
        };
        let extent = space.extents.iter().find(is_around).unwrap();
        let block = |at| extent.blocks.iter().find(|block| block.start == at).map(|b| b.pages.base);
        assert_eq!(block(first + superpage), Some(3));
        assert_eq!(block(first + 2 * superpage), Some(1));
        assert_eq!(block(first), None);
        assert_eq!(own_space().superpage.bytes(), superpage);
    }

    #[test]
    fn a_process_that_ended_is_told_from_one_that_may_not_be_read() {
        let root = Root::real();
        let own = Process::read(&root, sys::param::own_pid()).unwrap().unwrap();
        let reused = Process { start_ticks: own.start_ticks + 1, ..own };
        assert!(matches!(AddressSpace::read(&root, &reused), Err(SpaceError::Ended)));
    }
}
