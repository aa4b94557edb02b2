//! Division of a machine's memory into nodes, each with an optional movable-only partition.
//! See docs/decisions/lab-model.md#16.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use trace::Page;
use units::ByteSize;

use super::zone::{Zone, ZoneKind};
use super::{FRAME_BYTES, Frame, MAX_ORDER, Memory, PAGEBLOCK, PAGEBLOCK_ORDER};

/// Division of memory. The default is one node without a movable-only partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// The NUMA nodes.
    pub nodes: Nodes,
    /// Total size of the movable-only partitions (Linux' `movablecore=`), spread evenly over the nodes; 0: none.
    pub movable: ByteSize,
}

/// NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Nodes {
    /// A number of nodes of equal size, as far as possible.
    Equal(u64),
    /// One node per size.
    Of(Vec<ByteSize>),
}

/// Maximum number of nodes: a program's node mask has 64 bits.
pub const MAX_NODES: usize = 64;

/// Why a division of memory is invalid. Each message begins with the invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Too many or too few nodes.
    #[error("nodes {0}: a machine has 1 to {MAX_NODES}")]
    Count(Nodes),
    /// The sizes of the nodes do not sum up to the machine's memory.
    #[error("nodes {nodes}: together {sum}, and --memory is {memory}: make them equal")]
    Sum {
        /// The requested nodes.
        nodes: Nodes,
        /// Sum of the nodes' sizes.
        sum: ByteSize,
        /// Memory of the machine.
        memory: ByteSize,
    },
    /// A size that is not a multiple of the zone unit.
    #[error("{name} {size}: not a multiple of {unit}, the largest free block")]
    Uneven {
        /// Name of the setting.
        name: &'static str,
        /// The requested size.
        size: ByteSize,
        /// The required unit.
        unit: ByteSize,
    },
    /// A node too small to boot.
    #[error(
        "nodes {nodes}: one has {has}; each needs {needs} at least, for its kernel and its smallest zone"
    )]
    Small {
        /// The requested nodes.
        nodes: Nodes,
        /// Size of the smallest node.
        has: ByteSize,
        /// Minimum size.
        needs: ByteSize,
    },
    /// A partition that leaves too little memory, or is smaller than one block per node.
    #[error("movable {movable}: {least} to {most} of this machine can be for movable pages only")]
    Partition {
        /// The requested size.
        movable: ByteSize,
        /// Minimum size.
        least: ByteSize,
        /// Maximum size.
        most: ByteSize,
    },
}

impl Default for Nodes {
    fn default() -> Self {
        Self::Equal(1)
    }
}

/// Nodes that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid nodes `{0}`: expected how many, e.g. 2, or each one's memory, e.g. 8G,8G")]
pub struct ParseNodesError(String);

impl FromStr for Nodes {
    type Err = ParseNodesError;
    fn from_str(text: &str) -> Result<Self, ParseNodesError> {
        if let Ok(count) = text.parse() {
            return Ok(Self::Equal(count));
        }
        let sizes: Result<_, _> = text.split(',').map(str::parse).collect();
        sizes.map(Self::Of).map_err(|_| ParseNodesError(text.to_string()))
    }
}

impl fmt::Display for Nodes {
    /// Writes the format that `FromStr` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(count) => count.fmt(f),
            Self::Of(sizes) => {
                let sizes: Vec<String> = sizes.iter().map(|size| size.to_exact()).collect();
                f.write_str(&sizes.join(","))
            }
        }
    }
}

impl From<Nodes> for String {
    fn from(nodes: Nodes) -> Self {
        nodes.to_string()
    }
}

impl TryFrom<String> for Nodes {
    type Error = ParseNodesError;
    fn try_from(text: String) -> Result<Self, ParseNodesError> {
        text.parse()
    }
}

impl Nodes {
    /// Returns the sum of the nodes' sizes, if sizes are given.
    pub fn memory(&self) -> Option<ByteSize> {
        let Self::Of(sizes) = self else { return None };
        Some(ByteSize(sizes.iter().fold(0, |sum, size| size.bytes().saturating_add(sum))))
    }
}

impl Layout {
    /// Returns the nodes of a machine with `memory` bytes and base pages of `base_page` bytes. The machine's kernel
    /// uses `kernel` bytes.
    ///
    /// # Errors
    /// [`LayoutError`]: this memory cannot be divided so.
    pub fn shape(
        &self,
        memory: ByteSize,
        base_page: u64,
        kernel: ByteSize,
    ) -> Result<Vec<NodeShape>, LayoutError> {
        let unit = base_page << MAX_ORDER;
        let size = |blocks: u64| ByteSize(blocks * unit);
        let nodes = self.nodes_of(memory, unit)?;
        let count = nodes.len() as u64;
        // The kernel's memory is spread evenly (`Memory::boot`). At least one more block per node must remain.
        let needs = kernel.bytes().div_ceil(count).div_ceil(unit) + 1;
        let smallest = nodes.iter().copied().min().unwrap_or(0);
        if *self == Self::default() {
            return Ok(vec![shape_of(smallest, 0)]);
        }
        if smallest < needs {
            let nodes = self.nodes.clone();
            return Err(LayoutError::Small { nodes, has: size(smallest), needs: size(needs) });
        }
        let movable = blocks("movable", self.movable, unit)?;
        let most = (smallest - needs) * count;
        if movable > 0 && !(count..=most).contains(&movable) {
            let (least, most) = (size(count), size(most));
            return Err(LayoutError::Partition { movable: self.movable, least, most });
        }
        let parts = evenly(movable, count);
        Ok(nodes.into_iter().zip(parts).map(|(all, movable)| shape_of(all, movable)).collect())
    }

    /// Returns the memory of each node, in bytes.
    ///
    /// # Errors
    /// As [`Self::shape`].
    pub fn sizes(
        &self,
        memory: ByteSize,
        base_page: u64,
        kernel: ByteSize,
    ) -> Result<Vec<ByteSize>, LayoutError> {
        let nodes = self.shape(memory, base_page, kernel)?;
        let size = |node: &NodeShape| ByteSize(node.bytes.bytes() / FRAME_BYTES * base_page);
        Ok(nodes.iter().map(size).collect())
    }

    /// Returns the number of blocks of the largest order on each node.
    fn nodes_of(&self, memory: ByteSize, unit: u64) -> Result<Vec<u64>, LayoutError> {
        let count = match &self.nodes {
            Nodes::Equal(count) => usize::try_from(*count).unwrap_or(usize::MAX),
            Nodes::Of(sizes) => sizes.len(),
        };
        if !(1..=MAX_NODES).contains(&count) {
            return Err(LayoutError::Count(self.nodes.clone()));
        }
        let Nodes::Of(sizes) = &self.nodes else {
            return Ok(evenly(memory.bytes() / unit, count as u64).collect());
        };
        if let Some(sum) = self.nodes.memory().filter(|&sum| sum != memory) {
            return Err(LayoutError::Sum { nodes: self.nodes.clone(), sum, memory });
        }
        sizes.iter().map(|&size| blocks("nodes", size, unit)).collect()
    }
}

/// Creates a node of `all` blocks of the largest order, the last `movable` of them movable-only.
fn shape_of(all: u64, movable: u64) -> NodeShape {
    let bytes = |blocks: u64| ByteSize(blocks * (FRAME_BYTES << MAX_ORDER));
    NodeShape { bytes: bytes(all), movable_partition: (movable > 0).then(|| bytes(movable)) }
}

/// Returns the number of whole blocks of `unit` bytes.
fn blocks(name: &'static str, size: ByteSize, unit: u64) -> Result<u64, LayoutError> {
    let uneven = LayoutError::Uneven { name, size, unit: ByteSize(unit) };
    if size.bytes().is_multiple_of(unit) { Ok(size.bytes() / unit) } else { Err(uneven) }
}

/// Splits `total` into `count` parts that differ by at most one.
fn evenly(total: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |number| total / count + u64::from(number < total % count))
}

// The owner of a frame, in one word. The words form the reverse map from frames to pages.

/// The owner of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// No owner: the frame is free, or held without contents (unpopulated part of a reservation).
    None,
    /// The kernel; neither movable nor evictable.
    Kernel,
    /// A program that pins the frame (mlock is movable, a long-term pin is not).
    Pinned,
    /// The page cache: a clean page of a file, by its number in the cache (30 bits).
    Cache(u32),
    /// Anonymous memory: the page's number in the stream (31 bits).
    Page(Page),
}

const KERNEL: u32 = 1;
const PINNED: u32 = 2;
const CACHE: u32 = 1 << 30;
const PAGE: u32 = 1 << 31;

impl Owner {
    /// Returns whether compaction and reclaim may try to move the page.
    pub const fn movable(self) -> bool {
        matches!(self, Self::Cache(_) | Self::Page(_))
    }

    /// Packs the owner into a word. `None` is zero, so untouched words cost no host memory.
    pub(crate) const fn pack(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Kernel => KERNEL,
            Self::Pinned => PINNED,
            Self::Cache(number) => CACHE | number & (CACHE - 1),
            Self::Page(page) => PAGE | page.0,
        }
    }

    pub(crate) const fn unpack(word: u32) -> Self {
        if word & PAGE != 0 {
            return Self::Page(Page(word & !PAGE));
        }
        if word & CACHE != 0 {
            return Self::Cache(word & !CACHE);
        }
        match word {
            0 => Self::None,
            PINNED => Self::Pinned,
            _ => Self::Kernel,
        }
    }
}

pub(crate) const fn is_cache(word: u32) -> bool {
    word >> 30 == 1
}

/// Returns whether a word denotes a movable page.
pub(crate) const fn is_movable(word: u32) -> bool {
    word >> 30 != 0
}

/// The memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The NUMA nodes, by number.
    pub nodes: Vec<NodeShape>,
    /// Whether pages are grouped by mobility (Gorman). Without grouping all share one set of free lists.
    pub grouping: bool,
    /// When a pageblock changes its mobility.
    pub claiming: Claiming,
    /// Memory that the kernel takes at boot and never frees: the lowest addresses of each node, split evenly. Linux'
    /// memblock takes the highest; the counts are the same.
    pub kernel: ByteSize,
    /// Whether the watermarks are raised for superpages, as Linux does when THP is enabled
    /// (`set_recommended_min_free_kbytes` in mm/khugepaged.c).
    pub raised_watermarks: bool,
}

/// Memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeShape {
    /// Size in bytes, rounded down to 4 MB, the largest block.
    pub bytes: ByteSize,
    /// Size of the movable-only partition at the node's end (Linux' ZONE_MOVABLE, Gorman's partition).
    pub movable_partition: Option<ByteSize>,
}

/// When an allocation that falls back to another mobility claims the whole pageblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claiming {
    /// When half of the pageblock is free (`steal_suitable_fallback`, Linux until 4.11).
    HalfFree,
    /// When half of the pageblock is free or holds pages of a compatible mobility. A movable request that cannot claim
    /// takes the smallest block instead of the largest (Linux since 4.12).
    HalfCompatible,
}

impl Shape {
    /// Creates one node of `bytes` bytes, with the rules of current Linux and no kernel memory.
    pub fn simple(bytes: ByteSize) -> Self {
        Self {
            nodes: vec![NodeShape { bytes, movable_partition: None }],
            grouping: true,
            claiming: Claiming::HalfCompatible,
            kernel: ByteSize(0),
            raised_watermarks: true,
        }
    }
}

/// Use of a part of memory, in base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartUse {
    /// The node.
    pub node: usize,
    /// Whether the part is movable-only.
    pub movable_only: bool,
    /// All base pages.
    pub pages: u64,
    /// Pages of the kernel, neither movable nor evictable.
    pub unmovable_pages: u64,
    /// Pages of the explicit pool.
    pub pool_pages: u64,
    /// Pages of programs and of the page cache.
    pub movable_pages: u64,
    /// Free pages.
    pub free_pages: u64,
    /// Superpages of 512 base pages in free memory.
    pub free_superpages: u64,
}

impl Memory {
    /// Returns the use of each node's zones.
    pub fn uses(&self) -> Vec<PartUse> {
        self.zones.iter().map(|zone| self.use_of(zone)).collect()
    }

    /// Updates the uses without a scan of all frames. Assumes that the kernel's pages are unchanged. `pool` yields the
    /// pool's superpages.
    pub(crate) fn update_uses(&self, uses: &mut [PartUse], pool: impl Iterator<Item = Frame>) {
        uses.iter_mut().for_each(|part| part.pool_pages = 0);
        pool.for_each(|frame| uses[self.zone_of(frame)].pool_pages += u64::from(PAGEBLOCK));
        for (part, zone) in uses.iter_mut().zip(&self.zones) {
            part.free_pages = zone.free;
            part.free_superpages = zone.contiguity(PAGEBLOCK_ORDER).suitable;
            part.movable_pages = part.pages - zone.free - part.unmovable_pages - part.pool_pages;
        }
    }

    fn use_of(&self, zone: &Zone) -> PartUse {
        let frames = zone.frame(0, 0).0..zone.end().0;
        let words = &self.owners[frames.start as usize..frames.end as usize];
        let owned = |by: Owner| words.iter().filter(|&&word| word == by.pack()).count() as u64;
        // Frames that the kernel took at boot have no words. A pool page has one word per pageblock, for its first
        // frame.
        let boot = self
            .boot
            .iter()
            .map(|boot| boot.end.min(frames.end).saturating_sub(boot.start.max(frames.start)));
        let unmovable = owned(Owner::Kernel) + boot.map(u64::from).sum::<u64>();
        let pool = owned(Owner::Pinned) * u64::from(PAGEBLOCK);
        let pages = words.len() as u64;
        PartUse {
            node: zone.node,
            movable_only: zone.kind == ZoneKind::Movable,
            pages,
            unmovable_pages: unmovable,
            pool_pages: pool,
            movable_pages: pages - zone.free - unmovable - pool,
            free_pages: zone.free,
            free_superpages: zone.contiguity(PAGEBLOCK_ORDER).suitable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(nodes: &str, movable: &str) -> Layout {
        Layout { nodes: nodes.parse().unwrap(), movable: movable.parse().unwrap() }
    }

    /// Returns the mebibytes of each node and of its partition.
    fn divided(nodes: &str, movable: &str) -> Result<Vec<(u64, u64)>, String> {
        let memory = ByteSize::mib(64);
        let shape = layout(nodes, movable).shape(memory, 4096, ByteSize::mib(5));
        let mebibytes = |size: ByteSize| size.bytes() >> 20;
        let pair =
            |node: NodeShape| (mebibytes(node.bytes), node.movable_partition.map_or(0, mebibytes));
        shape.map(|nodes| nodes.into_iter().map(pair).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn memory_and_partition_are_spread_over_the_nodes() {
        assert_eq!(divided("1", "0"), Ok(vec![(64, 0)]));
        assert_eq!(divided("2", "0"), Ok(vec![(32, 0); 2]));
        assert_eq!(divided("3", "20M"), Ok(vec![(24, 8), (20, 8), (20, 4)]));
        assert_eq!(divided("40M,24M", "8M"), Ok(vec![(40, 4), (24, 4)]));
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (nodes, movable, part) in [
            ("0", "0", "nodes 0: a machine has 1 to 64"),
            ("65", "0", "1 to 64"),
            ("16", "0", "nodes 16: one has 4 MiB; each needs 8 MiB"),
            ("32M,16M", "0", "nodes 32MiB,16MiB: together 48 MiB, and --memory is 64 MiB"),
            ("62M,2M", "0", "nodes 62 MiB: not a multiple of 4 MiB"),
            ("1", "3M", "movable 3 MiB: not a multiple of 4 MiB"),
            ("1", "56M", "movable 56 MiB: 4 MiB to 52 MiB"),
            ("2", "4M", "movable 4 MiB: 8 MiB to 48 MiB"),
        ] {
            let why = divided(nodes, movable).unwrap_err();
            assert!(why.contains(part), "{nodes} {movable}: {why}");
        }
        assert!("8G;8G".parse::<Nodes>().unwrap_err().to_string().contains("`8G;8G`"));
        assert_eq!(layout("8G,1.5G", "0").nodes.to_string(), "8GiB,1.5GiB");
    }
}
