//! `/proc/pagetypeinfo` (readable by root only): free blocks and pageblocks by migratetype.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use units::NodeId;

use crate::{ReadError, Root, text};

/// What pagetypeinfo tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageTypes {
    /// A pageblock is 2^order base pages.
    pub block_order: Option<u32>,
    /// Free blocks, by zone and migratetype.
    pub free: Vec<PageTypeFree>,
    /// Pageblocks, by zone.
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
    /// How many blocks of 2^index base pages are free.
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
    /// How many pageblocks are of each migratetype.
    pub counts: BTreeMap<String, u64>,
}

impl PageTypes {
    /// Reads `/proc/pagetypeinfo`.
    pub fn read(root: &Root) -> Result<Self, ReadError> {
        parse(&root.read("/proc/pagetypeinfo")?, &root.path("/proc/pagetypeinfo"))
    }
}

/// Reads the text of `/proc/pagetypeinfo`; `path` is named in errors.
pub fn parse(text: &str, path: &Path) -> Result<PageTypes, ReadError> {
    let mut types = PageTypes::default();
    let mut columns: Vec<&str> = Vec::new();
    for (line, bad) in text::numbered(text, path) {
        if let Some(order) = line.strip_prefix("Page block order:") {
            types.block_order = Some(order.trim().parse().map_err(|_| bad("an order"))?);
        } else if let Some(names) = line.strip_prefix("Number of blocks type") {
            columns = names.split_ascii_whitespace().collect();
        } else if line.starts_with("Node") {
            let (node, zone, rest) =
                text::node_and_zone(line).ok_or_else(|| bad("`Node N, zone NAME`"))?;
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
