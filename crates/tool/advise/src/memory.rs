//! The memory that an access is to.

use host::coverage::MappingKind;
use prediction::Frames;
use services::{AddressSpace, Extent};
use sys::pagemap::Pagemap;
use units::Pid;

use crate::code::Access;

/// Bytes of a cache line, as a binary logarithm.
pub const LINE: u32 = 6;

/// An access with the memory it is to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// The access.
    pub access: Access,
    /// The thread.
    pub thread: Pid,
    /// Time of the sample in nanoseconds.
    pub time: u64,
    /// What memory it is to.
    pub on: On,
}

/// Memory, by what superpages change about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// On base pages, and superpages could hold it.
    Base {
        /// Resident base pages of the superpage-sized block.
        resident: u32,
    },
    /// On superpages already.
    Superpage,
    /// Memory that stays on base pages: code, files, stacks, mappings smaller than a superpage.
    Stays,
}

/// Binary logarithms of sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shifts {
    /// Of the base page.
    pub base: u32,
    /// Of the superpage.
    pub superpage: u32,
}

impl Shifts {
    /// The page sizes of a process's memory.
    pub fn of(space: &AddressSpace) -> Self {
        Self { base: space.base.bytes().ilog2(), superpage: space.superpage.bytes().ilog2() }
    }
}

impl On {
    /// The memory at an address; `None`: no mapping holds it.
    pub fn at(space: &AddressSpace, address: u64) -> Option<Self> {
        let at = space.extents.partition_point(|extent| extent.mapping.end <= address);
        let extent = space.extents.get(at).filter(|extent| extent.mapping.start <= address)?;
        let start = address - address % space.superpage.bytes();
        let block = extent.blocks.binary_search_by_key(&start, |block| block.start);
        let pages = block.ok().map(|at| extent.blocks[at].pages);
        Some(match pages {
            Some(pages) if pages.huge > 0 => Self::Superpage,
            _ if !is_eligible(extent, space) => Self::Stays,
            pages => Self::Base { resident: pages.map_or(1, |pages| pages.resident().max(1)) },
        })
    }
}

/// Blocks whose frames are read at once: the kernel holds the mmap lock meanwhile.
const BLOCKS: usize = 16;
/// Most blocks whose frames are read, evenly from all of them: 16 GiB in blocks of 2 MiB.
const MAX_BLOCKS: usize = 8192;

/// The spread of the frames of a process's base pages that superpages could hold: [`Frames::spread`]. `None`: no such
/// pages, or the numbers of frames are hidden (they need CAP_SYS_ADMIN).
pub fn spread(space: &AddressSpace) -> Option<f64> {
    let pagemap = Pagemap::open(space.process.pid).ok()?;
    let length = space.superpage.bytes();
    let starts: Vec<u64> = space
        .extents
        .iter()
        .filter(|extent| is_eligible(extent, space))
        .flat_map(|extent| &extent.blocks)
        .filter(|block| block.pages.huge == 0 && block.pages.resident() > 0)
        .map(|block| block.start)
        .collect();
    let mut frames = Frames::default();
    for starts in starts.chunks(BLOCKS).step_by(starts.len().div_ceil(MAX_BLOCKS).max(1)) {
        for start in starts {
            for frame in pagemap.frames(*start, start + length).ok()?.into_iter().flatten() {
                if frame == 0 {
                    return None;
                }
                frames.add(frame);
            }
        }
    }
    frames.spread()
}

/// Whether superpages could hold a mapping: memory without a file, at least a superpage long.
pub fn is_eligible(extent: &Extent, space: &AddressSpace) -> bool {
    matches!(extent.kind, MappingKind::Anonymous | MappingKind::Heap | MappingKind::Shmem)
        && extent.mapping.len() >= space.superpage.bytes()
}
