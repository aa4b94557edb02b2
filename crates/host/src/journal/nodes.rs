//! The nodes of a pool: giving pages back takes them from the nodes that grew. The kernel takes them from each in turn.

use std::collections::BTreeMap;

use units::NodeId;

use super::error::JournalError;
use super::knob::Knob;
use crate::{Root, hugetlb};

/// Persistent pages of each node, if `knob` is a pool on several.
pub(super) fn read(root: &Root, knob: &Knob) -> BTreeMap<u32, u64> {
    let Some(size) = knob.pool_size() else { return BTreeMap::new() };
    let names = root.list(hugetlb::NODES).unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
    let pages = |node: u32| {
        let knob = Knob::hugetlb_node_pool(NodeId(node), size);
        Some((node, knob.read(root).ok()?.parse().ok()?))
    };
    let nodes: BTreeMap<u32, u64> = numbers.filter_map(pages).collect();
    if nodes.len() > 1 { nodes } else { BTreeMap::new() }
}

/// Takes up to `pages` from nodes that have more than they had.
pub(super) fn lower(
    root: &Root,
    knob: &Knob,
    nodes: &BTreeMap<u32, u64>,
    pages: u64,
) -> Result<(), JournalError> {
    let Some(size) = knob.pool_size() else { return Ok(()) };
    let mut left = pages;
    for (node, had) in nodes {
        let knob = Knob::hugetlb_node_pool(NodeId(*node), size);
        let now = knob.read(root).ok().and_then(|now| now.parse::<u64>().ok()).unwrap_or(0);
        let given = left.min(now.saturating_sub(*had));
        if given > 0 {
            knob.write(root, &(now - given).to_string())?;
            left -= given;
        }
    }
    Ok(())
}
