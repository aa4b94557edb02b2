//! What a machine's memory looks like before anything runs.

use units::ByteSize;

/// The memory of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its NUMA nodes, by number.
    pub nodes: Vec<NodeShape>,
    /// Whether pages are grouped by mobility (Gorman). Without, all share one set of free lists.
    pub grouping: bool,
    /// When a pageblock changes its type.
    pub claiming: Claiming,
    /// Memory that the kernel took at boot and never gives back, on each node at the lowest addresses, split
    /// evenly (Linux' memblock takes it from the top; where it lies changes no count).
    pub kernel: ByteSize,
    /// Whether the watermarks are raised for superpages, as Linux does once THP is enabled
    /// (`set_recommended_min_free_kbytes` in mm/khugepaged.c).
    pub raised_watermarks: bool,
}

/// The memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeShape {
    /// How much there is. Rounded down to 4 MB, the largest block.
    pub bytes: ByteSize,
    /// How much of it, at its end, takes movable pages only (Linux' ZONE_MOVABLE, Gorman's partition).
    pub movable_partition: Option<ByteSize>,
}

/// When an allocation that found no block of its own mobility makes a whole pageblock its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claiming {
    /// When half of the pageblock is free (`steal_suitable_fallback`, Linux until 4.11).
    HalfFree,
    /// When half is free or used by pages of a compatible mobility; and a movable request that cannot
    /// claim takes the smallest block instead of the largest (Linux since 4.12).
    HalfCompatible,
}

impl Shape {
    /// One node of `bytes`, with Linux' present rules and nothing taken by the kernel.
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
