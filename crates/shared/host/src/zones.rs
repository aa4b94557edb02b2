//! Memory zones: free blocks by order (`/proc/buddyinfo`) and watermarks (`/proc/zoneinfo`).

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::{ByteSize, NodeId, PageSize};

use crate::{ReadError, Root, hugetlb, root};

/// Free blocks of one zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneFree {
    /// The node the zone belongs to.
    pub node: NodeId,
    /// The zone's name: `DMA`, `DMA32`, `Normal`, `Movable`, ...
    pub zone: String,
    /// Number of free blocks of 2^index base pages.
    pub blocks: Vec<u64>,
}

/// One zone's size and watermarks, in base pages. A field is `None` if the kernel does not print
/// it, as for an empty zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneLevels {
    /// The node the zone belongs to.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// Number of free pages.
    pub free: Option<u64>,
    /// Number of free pages below which only emergency allocations succeed.
    pub min: Option<u64>,
    /// Number of free pages below which kswapd wakes.
    pub low: Option<u64>,
    /// Number of free pages above which kswapd sleeps.
    pub high: Option<u64>,
    /// Number of pages that the buddy allocator manages.
    pub managed: Option<u64>,
}

impl ZoneFree {
    /// Reads `/proc/buddyinfo`.
    pub fn read(root: &Root) -> Result<Vec<Self>, ReadError> {
        parse_buddyinfo(&root.read("/proc/buddyinfo")?, &root.path("/proc/buddyinfo"))
    }
}

impl ZoneLevels {
    /// Reads `/proc/zoneinfo`.
    pub fn read(root: &Root) -> Result<Vec<Self>, ReadError> {
        parse_zoneinfo(&root.read("/proc/zoneinfo")?, &root.path("/proc/zoneinfo"))
    }
}

/// Reads the text of `/proc/buddyinfo`; errors name `path`.
pub fn parse_buddyinfo(text: &str, path: &Path) -> Result<Vec<ZoneFree>, ReadError> {
    let mut zones = Vec::new();
    for (line, bad) in root::numbered(text, path) {
        let expected = "`Node N, zone NAME` and a number of free blocks for each order";
        let (node, zone, counts) = root::node_and_zone(line).ok_or_else(|| bad(expected))?;
        let counts = counts.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>();
        let blocks: Vec<u64> = counts.map_err(|_| bad(expected))?;
        if blocks.is_empty() || blocks.len() > 64 {
            return Err(bad(expected));
        }
        zones.push(ZoneFree { node, zone: zone.to_string(), blocks });
    }
    Ok(zones)
}

/// Reads the text of `/proc/zoneinfo`; errors name `path`. Unknown lines are skipped.
pub fn parse_zoneinfo(text: &str, path: &Path) -> Result<Vec<ZoneLevels>, ReadError> {
    let mut zones: Vec<ZoneLevels> = Vec::new();
    for (line, bad) in root::numbered(text, path) {
        if line.starts_with("Node") {
            let header = root::node_and_zone(line).ok_or_else(|| bad("`Node N, zone NAME`"))?;
            let (node, zone) = (header.0, header.1.to_string());
            let (free, min, low, high, managed) = Default::default();
            zones.push(ZoneLevels { node, zone, free, min, low, high, managed });
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let (Some(zone), Some(first)) = (zones.last_mut(), words.next()) else { continue };
        // `pages free 3840` starts the block; `high:` further down in the block is a per-CPU limit, not a watermark.
        let slot = match first {
            "pages" if words.next() == Some("free") => &mut zone.free,
            "min" => &mut zone.min,
            "low" => &mut zone.low,
            "high" => &mut zone.high,
            "managed" => &mut zone.managed,
            _ => continue,
        };
        let value = words.next().and_then(|word| word.parse().ok());
        *slot = Some(value.ok_or_else(|| bad("`name number`"))?);
    }
    Ok(zones)
}

// `/proc/pagetypeinfo` (readable by root only): free blocks and pageblocks by migratetype.

/// Contents of pagetypeinfo.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTypes {
    /// Order of a pageblock: log2 of its number of base pages.
    pub block_order: Option<u32>,
    /// Free blocks, by zone and migratetype.
    pub free: Vec<PageTypeFree>,
    /// Numbers of pageblocks, by zone.
    pub blocks: Vec<PageBlocks>,
}

/// Free blocks of one migratetype in one zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTypeFree {
    /// The node the zone belongs to.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// `Unmovable`, `Movable`, `Reclaimable`, ...
    pub migratetype: String,
    /// Number of free blocks of 2^index base pages.
    pub blocks: Vec<u64>,
    /// The orders whose count is only a lower bound: the kernel stops counting at 100000
    /// (`>100000`, mm/vmstat.c, pagetypeinfo_showfree_print).
    pub lower_bounds: Vec<u32>,
}

/// Pageblocks of one zone by migratetype.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageBlocks {
    /// The node the zone belongs to.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// Number of pageblocks by migratetype.
    pub counts: BTreeMap<String, u64>,
}

impl PageTypes {
    /// Reads `/proc/pagetypeinfo`.
    pub fn read(root: &Root) -> Result<Self, ReadError> {
        parse(&root.read("/proc/pagetypeinfo")?, &root.path("/proc/pagetypeinfo"))
    }
}

/// Reads the text of `/proc/pagetypeinfo`; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<PageTypes, ReadError> {
    let mut types = PageTypes::default();
    let mut columns: Vec<&str> = Vec::new();
    for (line, bad) in root::numbered(text, path) {
        if let Some(order) = line.strip_prefix("Page block order:") {
            types.block_order = Some(order.trim().parse().map_err(|_| bad("an order"))?);
        } else if let Some(names) = line.strip_prefix("Number of blocks type") {
            columns = names.split_ascii_whitespace().collect();
        } else if line.starts_with("Node") {
            let (node, zone, rest) =
                root::node_and_zone(line).ok_or_else(|| bad("`Node N, zone NAME`"))?;
            let zone = zone.to_string();
            if let Some(rest) = rest.trim_start().strip_prefix(',') {
                let expected = "`, type NAME` and a number of free blocks for each order";
                let row = free_row(node, zone, rest).ok_or_else(|| bad(expected))?;
                types.free.push(row);
            } else {
                let expected = "a number of pageblocks for each migratetype";
                let counts = block_row(&columns, rest).ok_or_else(|| bad(expected))?;
                types.blocks.push(PageBlocks { node, zone, counts });
            }
        }
    }
    Ok(types)
}

fn free_row(node: NodeId, zone: String, rest: &str) -> Option<PageTypeFree> {
    let mut words = rest.trim_start().strip_prefix("type")?.split_ascii_whitespace();
    let migratetype = words.next()?.to_string();
    let (mut blocks, mut lower_bounds) = (Vec::new(), Vec::new());
    for word in words {
        if word.starts_with('>') {
            lower_bounds.push(blocks.len() as u32);
        }
        blocks.push(word.trim_start_matches('>').parse().ok()?);
    }
    Some(PageTypeFree { node, zone, migratetype, blocks, lower_bounds })
}

fn block_row(columns: &[&str], rest: &str) -> Option<BTreeMap<String, u64>> {
    let counts: Vec<u64> =
        rest.split_ascii_whitespace().map(|w| w.parse().ok()).collect::<Option<_>>()?;
    let names = columns.iter().map(|name| (*name).to_string());
    (counts.len() == columns.len()).then(|| names.zip(counts).collect())
}

// Free memory that is contiguous enough for superpages, computed from `/proc/buddyinfo` alone.

/// Free memory, and the part that could become superpages without compaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeContiguity {
    /// The superpage size.
    pub superpage: PageSize,
    /// Free bytes in the buddy allocator, of every block size.
    pub free: ByteSize,
    /// Free bytes in blocks of at least the superpage size. `None`: the superpage is larger than the buddy allocator's
    /// largest block, so buddyinfo cannot tell.
    pub in_superpages: Option<ByteSize>,
    /// Number of superpages in the blocks of `in_superpages`.
    pub superpages: Option<u64>,
}

impl FreeContiguity {
    /// Reads `/proc/buddyinfo`.
    pub fn read(root: &Root, superpage: PageSize) -> Result<Self, ReadError> {
        Ok(Self::from_zones(&ZoneFree::read(root)?, root.page_size(), superpage))
    }

    /// Like [`Self::read`], without the DMA zone, which the kernel does not give to programs.
    ///
    /// # Errors
    /// `/proc/buddyinfo` cannot be read.
    pub fn for_programs(root: &Root, superpage: PageSize) -> Result<Self, ReadError> {
        Ok(Self::for_programs_of(&ZoneFree::read(root)?, root.page_size(), superpage))
    }

    /// [`Self::for_programs`] of zones that were read.
    pub fn for_programs_of(zones: &[ZoneFree], base: PageSize, superpage: PageSize) -> Self {
        let zones: Vec<_> = zones.iter().filter(|zone| zone.zone != "DMA").cloned().collect();
        Self::from_zones(&zones, base, superpage)
    }

    /// Computes the contiguity of `zones`; `base` is the base page size.
    pub fn from_zones(zones: &[ZoneFree], base: PageSize, superpage: PageSize) -> Self {
        let order = superpage.bytes().ilog2().saturating_sub(base.bytes().ilog2()) as usize;
        let mut free_pages = 0u64;
        let mut superpages = None::<u64>;
        for (index, count) in zones.iter().flat_map(|zone| zone.blocks.iter().enumerate()) {
            free_pages = free_pages.saturating_add(count.saturating_mul(power(index)));
            if let Some(above) = index.checked_sub(order) {
                let held = count.saturating_mul(power(above));
                superpages = Some(superpages.unwrap_or(0).saturating_add(held));
            }
        }
        let bytes = |pages: u64, size: PageSize| ByteSize(pages.saturating_mul(size.bytes()));
        Self {
            superpage,
            free: bytes(free_pages, base),
            in_superpages: superpages.map(|n| bytes(n, superpage)),
            superpages,
        }
    }

    /// Share of free memory that could become superpages without compaction; `None` if no memory is free.
    pub fn ratio(&self) -> Option<f64> {
        let usable = self.in_superpages?.bytes();
        (self.free.bytes() > 0).then(|| usable as f64 / self.free.bytes() as f64)
    }
}

fn power(order: usize) -> u64 {
    u32::try_from(order).ok().and_then(|order| 1u64.checked_shl(order)).unwrap_or(u64::MAX)
}

// Compaction on demand: migrates pages so that free memory becomes contiguous.
//
// Compaction is not a [`crate::journal::Knob`], because there is no value to restore. It uses CPU time in the kernel
// and stalls users of the migrated pages.

/// The kernel refused to compact.
#[derive(Debug, thiserror::Error)]
#[error("cannot compact memory ({}): {source}", path.display())]
pub struct CompactError {
    /// The file written.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: io::Error,
}

/// Compacts every zone of the machine, or of one node, and returns when compaction is done
/// (`/proc/sys/vm/compact_memory`, `nodeN/compact`). Needs root and CONFIG_COMPACTION.
pub fn compact(root: &Root, node: Option<NodeId>) -> Result<(), CompactError> {
    let path = root.path(&match node {
        None => "/proc/sys/vm/compact_memory".to_string(),
        Some(node) => format!("{}/node{node}/compact", hugetlb::NODES),
    });
    // Write 1, the only value that the kernel accepts (mm/compaction.c sysctl_compaction_handler,
    // since Linux 5.13).
    let written =
        OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(b"1\n"));
    written.map_err(|source| CompactError { path, source })
}
