//! The memory that an access is to.

use host::coverage::MappingKind;
use services::{AddressSpace, Extent};
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

/// Whether superpages could hold a mapping: memory without a file, at least a superpage long.
pub fn is_eligible(extent: &Extent, space: &AddressSpace) -> bool {
    matches!(extent.kind, MappingKind::Anonymous | MappingKind::Heap | MappingKind::Shmem)
        && extent.mapping.len() >= space.superpage.bytes()
}
