//! Zones: free blocks by order (`/proc/buddyinfo`) and their levels (`/proc/zoneinfo`).

use std::path::Path;

use serde::{Deserialize, Serialize};
use units::NodeId;

use crate::{ReadError, Root, text};

/// Free blocks of one zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneFree {
    /// The node the zone belongs to.
    pub node: NodeId,
    /// The zone's name: `DMA`, `DMA32`, `Normal`, `Movable`, ...
    pub zone: String,
    /// How many blocks of 2^index base pages are free.
    pub blocks: Vec<u64>,
}

/// One zone's size and watermarks, in base pages. `None`: not printed (an empty zone).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneLevels {
    /// The node the zone belongs to.
    pub node: NodeId,
    /// The zone's name.
    pub zone: String,
    /// Free pages.
    pub free: Option<u64>,
    /// Below this only emergencies allocate.
    pub min: Option<u64>,
    /// Below this kswapd wakes.
    pub low: Option<u64>,
    /// Above this kswapd sleeps.
    pub high: Option<u64>,
    /// Pages that the buddy allocator manages.
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

/// Reads the text of `/proc/buddyinfo`; `path` is named in errors.
pub fn parse_buddyinfo(text: &str, path: &Path) -> Result<Vec<ZoneFree>, ReadError> {
    let mut zones = Vec::new();
    for (line, bad) in text::numbered(text, path) {
        let expected = "`Node N, zone NAME` and a number of free blocks for each order";
        let (node, zone, counts) = text::node_and_zone(line).ok_or_else(|| bad(expected))?;
        let counts = counts.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>();
        let blocks: Vec<u64> = counts.map_err(|_| bad(expected))?;
        if blocks.is_empty() || blocks.len() > 64 {
            return Err(bad(expected));
        }
        zones.push(ZoneFree { node, zone: zone.to_string(), blocks });
    }
    Ok(zones)
}

/// Reads the text of `/proc/zoneinfo`; `path` is named in errors. Unknown lines are skipped.
pub fn parse_zoneinfo(text: &str, path: &Path) -> Result<Vec<ZoneLevels>, ReadError> {
    let mut zones: Vec<ZoneLevels> = Vec::new();
    for (line, bad) in text::numbered(text, path) {
        if line.starts_with("Node") {
            let header = text::node_and_zone(line).ok_or_else(|| bad("`Node N, zone NAME`"))?;
            let (node, zone) = (header.0, header.1.to_string());
            let (free, min, low, high, managed) = Default::default();
            zones.push(ZoneLevels { node, zone, free, min, low, high, managed });
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let (Some(zone), Some(first)) = (zones.last_mut(), words.next()) else { continue };
        // `pages free 3840` opens the block; `high:` further down is a per-CPU limit, not a level.
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
