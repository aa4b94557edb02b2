//! Whether pages fit into memory, before anything is taken from it.

use serde::{Deserialize, Serialize};
use units::{ByteSize, NodeId, PageSize};

use super::error::PoolError;
use crate::{MemInfo, ReadError, Root, hugetlb, text};

/// Memory that a pool could be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headroom {
    /// On the whole machine (`None`) or on this node.
    pub node: Option<NodeId>,
    /// What could be had without swapping.
    pub available: ByteSize,
    /// What should stay with the rest of the machine: a twentieth of memory, at least 64 MiB and at
    /// most 2 GiB. A pool's pages are taken from reclaim for good, and a machine that has given all
    /// away ends in the OOM killer, not in an error.
    pub margin: ByteSize,
}

impl Headroom {
    /// Reads what is available on the machine, or on one node.
    pub fn read(root: &Root, node: Option<NodeId>) -> Result<Option<Self>, ReadError> {
        let memory = MemInfo::read(root)?;
        let (Some(available), Some(total)) = (memory.available, memory.total) else {
            return Ok(None);
        };
        let (available, total) = match node {
            None => (available, total),
            Some(node) => match node_memory(root, node)? {
                Some((here, total)) => (here.min(available), total),
                None => return Ok(None),
            },
        };
        Ok(Some(Self { node, available, margin: margin(total) }))
    }

    /// How many more pages of `size` fit.
    pub fn fits(&self, size: PageSize) -> u64 {
        self.available.bytes().saturating_sub(self.margin.bytes()) / size.bytes()
    }

    /// The error if `bytes` more, `pages` of them of `size`, do not fit.
    pub fn check(&self, pages: u64, size: PageSize, bytes: u64) -> Result<(), PoolError> {
        let free = self.available.bytes().saturating_sub(self.margin.bytes());
        if bytes <= free {
            return Ok(());
        }
        let place = match self.node {
            None => "the machine".to_string(),
            Some(node) => format!("node {node}"),
        };
        let (available, margin) = (self.available, self.margin);
        let bytes = ByteSize(bytes);
        Err(PoolError::NoHeadroom {
            pages,
            size,
            bytes,
            place,
            available,
            margin,
            fits: self.fits(size),
        })
    }

    /// What even a forced growth leaves: a quarter of the margin.
    pub fn floor(&self) -> ByteSize {
        ByteSize(self.margin.bytes() / 4)
    }
}

fn margin(total: ByteSize) -> ByteSize {
    ByteSize((total.bytes() / 20).clamp(64 << 20, 2 << 30))
}

/// Available and total bytes of a node. The kernel estimates MemAvailable for the whole machine
/// only; here it is what is free, and half of the page cache (si_mem_available() keeps at most half
/// of it back as what the machine is working with).
fn node_memory(root: &Root, node: NodeId) -> Result<Option<(ByteSize, ByteSize)>, ReadError> {
    let path = format!("{}/node{node}/meminfo", hugetlb::NODES);
    let text = root.read(&path)?;
    let line = |key: &str| {
        let value = text.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found.split_ascii_whitespace().last() == Some(key)).then_some(value)
        });
        value.and_then(text::bytes)
    };
    let file = line("Active(file)").zip(line("Inactive(file)"));
    let file = file.map_or(0, |(active, inactive)| active.saturating_add(inactive) / 2);
    let known = line("MemFree").zip(line("MemTotal"));
    Ok(known.map(|(free, total)| (ByteSize(free.saturating_add(file)), ByteSize(total))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_margin_and_names_what_fits() {
        assert_eq!(margin(ByteSize::gib(24)), ByteSize(ByteSize::gib(24).bytes() / 20));
        assert_eq!(margin(ByteSize::gib(1000)), ByteSize::gib(2));
        assert_eq!(margin(ByteSize::mib(10)), ByteSize::mib(64));
        let size = PageSize::new(2 << 20).unwrap();
        let headroom =
            Headroom { node: None, available: ByteSize::gib(3), margin: ByteSize::gib(1) };
        assert_eq!(headroom.fits(size), 1024);
        assert!(headroom.check(1024, size, 2 << 30).is_ok());
        let error = headroom.check(1025, size, (2 << 30) + (2 << 20)).unwrap_err().to_string();
        assert!(error.contains("at most 1024 more fit"), "{error}");
        let empty = Headroom { node: None, available: ByteSize(0), margin: ByteSize::gib(1) };
        assert_eq!(empty.fits(size), 0);
    }
}
