//! hugetlb pools by page size, for the machine and for each node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{NodeId, PageSize};

use crate::root::Reasons;
use crate::{Root, root};

/// Directory of the machine-wide pools.
pub(crate) const DIR: &str = "/sys/kernel/mm/hugepages";
pub(crate) const NODES: &str = "/sys/devices/system/node";

/// Every hugetlb pool of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugetlbPools {
    /// By page size; empty when the kernel has no hugetlb.
    pub sizes: BTreeMap<PageSize, Pool>,
    /// The pools of each node.
    pub nodes: BTreeMap<NodeId, BTreeMap<PageSize, NodePool>>,
}

/// One pool; numbers are in pages of its size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Number of pages in the pool, including surplus pages.
    pub total: Option<u64>,
    /// Number of these pages not in use (some may be reserved).
    pub free: Option<u64>,
    /// Number of pages reserved for mappings but not yet faulted in.
    pub reserved: Option<u64>,
    /// Number of pages allocated on demand beyond the persistent pool; the kernel returns freed surplus pages to the
    /// buddy allocator.
    pub surplus: Option<u64>,
    /// Maximum number of surplus pages.
    pub overcommit: Option<u64>,
    /// The smaller size a page of this pool can be split into; `None` for the smallest.
    pub demote_size: Option<PageSize>,
}

/// The part of a pool on one node; numbers are in pages of its size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePool {
    /// Number of pages in the pool on this node, including surplus pages.
    pub total: Option<u64>,
    /// Number of these pages not in use.
    pub free: Option<u64>,
    /// Number of surplus pages on this node.
    pub surplus: Option<u64>,
}

impl Pool {
    /// Number of pages that a new mapping can reserve without surplus pages.
    pub fn unreserved(&self) -> Option<u64> {
        Some(self.free?.saturating_sub(self.reserved?))
    }

    /// Number of pages that stay in the pool when freed: `total` less `surplus`.
    pub fn persistent(&self) -> Option<u64> {
        Some(self.total?.saturating_sub(self.surplus?))
    }

    fn read(root: &Root, dir: &str, reasons: &mut Reasons) -> Self {
        let demote_size = format!("{dir}/demote_size");
        let demote_size = match root::word(root, &demote_size) {
            Ok(word) => root::size_of_dir(&format!("hugepages-{word}")),
            Err(_) => None,
        };
        let mut pages = |name: &str| pages(root, dir, name, reasons);
        Self {
            total: pages("nr_hugepages"),
            free: pages("free_hugepages"),
            reserved: pages("resv_hugepages"),
            surplus: pages("surplus_hugepages"),
            overcommit: pages("nr_overcommit_hugepages"),
            demote_size,
        }
    }
}

impl HugetlbPools {
    /// Reads every pool; [`crate::Snapshot`] gives the reasons for missing values.
    pub fn read_sizes(root: &Root) -> BTreeMap<PageSize, Pool> {
        sizes_in(root, DIR, |dir| Pool::read(root, dir, &mut Reasons::default()))
    }

    pub(crate) fn read(root: &Root, reasons: &mut Reasons) -> Self {
        if let Err(error) = root.list(DIR) {
            reasons.note(DIR, error.to_string());
        }
        let sizes = sizes_in(root, DIR, |dir| Pool::read(root, dir, reasons));
        let mut nodes = BTreeMap::new();
        for name in root.list(NODES).unwrap_or_default() {
            let Some(node) = name.strip_prefix("node").and_then(|n| n.parse().ok()) else {
                continue;
            };
            let pools = sizes_in(root, &format!("{NODES}/{name}/hugepages"), |dir| NodePool {
                total: pages(root, dir, "nr_hugepages", reasons),
                free: pages(root, dir, "free_hugepages", reasons),
                surplus: pages(root, dir, "surplus_hugepages", reasons),
            });
            nodes.insert(NodeId(node), pools);
        }
        if nodes.is_empty() {
            reasons.note(NODES, "no node directories: the kernel has no NUMA support");
        }
        Self { sizes, nodes }
    }
}

fn pages(root: &Root, dir: &str, name: &str, reasons: &mut Reasons) -> Option<u64> {
    let path = format!("{dir}/{name}");
    reasons.ask(&path, root::number(root, &path))
}

fn sizes_in<T>(root: &Root, dir: &str, mut read: impl FnMut(&str) -> T) -> BTreeMap<PageSize, T> {
    let names = root.list(dir).unwrap_or_default();
    let sizes = names.iter().filter_map(|name| Some((root::size_of_dir(name)?, name)));
    sizes.map(|(size, name)| (size, read(&format!("{dir}/{name}")))).collect()
}
