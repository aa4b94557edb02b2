//! `Status`: every pool, with every value that a change needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{NodeId, PageSize};

use super::outcome::PoolError;
use super::spec::PoolName;
use crate::root::Reasons;
use crate::{HugetlbPools, MemInfo, Pool, Root, Unknown, ZoneFree};

/// The machine's pools at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The default page size, for programs that do not name a size.
    pub default: Option<PageSize>,
    /// Every pool, for the machine and for each node.
    pub pools: HugetlbPools,
    /// For each size, whether pages are gigantic: larger than the buddy allocator's largest block. The kernel assembles
    /// a gigantic page from adjacent blocks, which succeeds best at boot. Gigantic pages cannot be overcommitted.
    pub gigantic: BTreeMap<PageSize, Option<bool>>,
    /// Values that could not be read, with reasons.
    pub unknown: Vec<Unknown>,
}

impl Status {
    /// Reads every pool. Fails only if there is no hugetlb at all.
    pub fn read(root: &Root) -> Result<Self, PoolError> {
        let mut reasons = Reasons::default();
        let pools = HugetlbPools::read(root, &mut reasons);
        if pools.sizes.is_empty() {
            return Err(PoolError::NoHugetlb);
        }
        let memory = reasons.ask("/proc/meminfo", MemInfo::read(root));
        let zones = reasons.ask("/proc/buddyinfo", ZoneFree::read(root));
        // A page is gigantic if its order exceeds MAX_PAGE_ORDER, the last column of buddyinfo
        // (mm/hugetlb.c hstate_is_gigantic()).
        let columns = zones.and_then(|zones| zones.iter().map(|zone| zone.blocks.len()).max());
        let largest =
            columns.and_then(|n| root.page_size().bytes().checked_shl(n.max(1) as u32 - 1));
        let gigantic =
            pools.sizes.keys().map(|size| (*size, largest.map(|block| size.bytes() > block)));
        let gigantic = gigantic.collect();
        let default = memory.and_then(|memory| memory.default_hugepage);
        Ok(Self { default, pools, gigantic, unknown: reasons.0 })
    }

    /// The page size of `name` on this machine.
    pub fn size(&self, name: PoolName) -> Result<PageSize, PoolError> {
        let size = match name {
            PoolName::Of(size) => size,
            PoolName::Default => self.default.ok_or(PoolError::NoHugetlb)?,
        };
        self.pool(size).map(|_| size)
    }

    /// The pool of `size`.
    pub fn pool(&self, size: PageSize) -> Result<&Pool, PoolError> {
        let has = || self.pools.sizes.keys().copied().collect();
        self.pools.sizes.get(&size).ok_or_else(|| PoolError::NoSuchPool { size, has: has() })
    }

    /// Whether the kernel allocates pages of `size` only for the persistent pool; false if unknown.
    pub fn is_gigantic(&self, size: PageSize) -> bool {
        self.gigantic.get(&size) == Some(&Some(true))
    }

    /// Number of persistent pages of a pool, on the machine or one node.
    pub fn persistent(&self, size: PageSize, node: Option<NodeId>) -> Result<u64, PoolError> {
        let unknown = || PoolError::Unknown { size, what: "how many pages it has" };
        let pool = self.pool(size)?;
        let Some(node) = node else { return pool.persistent().ok_or_else(unknown) };
        let share = self.node_share(size, node)?;
        let persistent = share.total.zip(share.surplus).map(|(total, s)| total.saturating_sub(s));
        persistent.ok_or_else(unknown)
    }

    /// Number of surplus pages of a pool, on the machine or one node.
    pub fn surplus(&self, size: PageSize, node: Option<NodeId>) -> Result<Option<u64>, PoolError> {
        match node {
            None => Ok(self.pool(size)?.surplus),
            Some(node) => Ok(self.node_share(size, node)?.surplus),
        }
    }

    fn node_share(&self, size: PageSize, node: NodeId) -> Result<&crate::NodePool, PoolError> {
        let has = || self.pools.nodes.keys().copied().collect();
        let pools = self.pools.nodes.get(&node);
        let pools = pools.ok_or_else(|| PoolError::NoSuchNode { node, has: has() })?;
        pools.get(&size).ok_or(PoolError::Unknown { size, what: "its share on this node" })
    }
}
