//! The explicit superpage pool. Pages are set aside beforehand and reserved at mmap, so that later faults succeed. The
//! accounting follows the kernel (Linux `mm/hugetlb.c`, the kernel's hugetlbfs_reserv document,
//! docs/sources/policies.md 3.7).
//!
//! The simulated system owns one [`HugetlbPool`] per superpage size. All counts are in pages of the pool. The pool
//! allocates and frees physical memory through [`Frames`]. It stores the reservation maps, the page of each index, and
//! the sharers of a page after a fork. The caller handles page tables and costs.
//!
//! Life of a page: free in the pool (persistent, from [`resize`](HugetlbPool::resize); or surplus, from overcommit),
//! then backing one index of mappings or of an object, then free again, or back to memory while its node has surplus.
//!
//! [`undo`](HugetlbPool::undo), [`discard`](HugetlbPool::discard) and [`resize`](HugetlbPool::resize) each document a
//! deviation from the kernel, where its counters contradict its intent.

mod mapping;
mod regions;

pub use mapping::{Fault, Why};
pub use mapping::{Kind, Request};
pub use regions::{Pending, Regions};

use std::collections::BTreeMap;

use crate::memory::Frame;

use self::mapping::{Mapping, Object};
use regions::Store;

/// The physical memory that the pool uses.
pub trait Frames {
    /// Allocates a free block of a pool page's size on this node only.
    fn allocate(&mut self, node: u8) -> Option<Frame>;
    /// Frees a block.
    fn free(&mut self, frame: Frame, node: u8);
}

/// A mapping of pool pages by one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub u32);

/// An object that mappings share: a hugetlbfs file or a shared-memory segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// The counters of /proc/meminfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// HugePages_Total: all pages, including surplus.
    pub total: u64,
    /// HugePages_Free: pages that back no index.
    pub free: u64,
    /// HugePages_Rsvd: free pages that are reserved. Never more than `free`.
    pub reserved: u64,
    /// HugePages_Surp: pages beyond the persistent size; freed pages return to memory.
    pub surplus: u64,
}

/// Allowed nodes: memory policy and cpuset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The preferred node.
    pub near: u8,
    /// Bit n: node n is allowed.
    pub allowed: u64,
}

impl Place {
    /// Any node, starting with the first.
    pub const ANY: Self = Self { near: 0, allowed: !0 };
}

/// A refused mapping: the pool is `short_by` pages short and cannot grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{short_by} superpages too few in the pool for a mapping; make the pool or its overcommit limit \
     larger"
)]
pub struct TooFew {
    /// Number of free, unreserved pages missing.
    pub short_by: u64,
}

/// A pool with its mappings.
#[derive(Debug)]
pub struct HugetlbPool {
    store: Store,
    mappings: BTreeMap<MappingId, Mapping>,
    objects: BTreeMap<ObjectId, Object>,
    pages: Pages,
    next_mapping: u32,
    next_object: u32,
}

/// Pages in use, by page number; the number 0 means that there is no page.
#[derive(Debug, Default)]
struct Pages {
    all: Vec<Page>,
    free: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    frame: Frame,
    node: u8,
    /// Number of mappings that share the page; 1 for an object.
    users: u32,
}

impl Pages {
    fn add(&mut self, frame: Frame, node: u8) -> u32 {
        let page = Page { frame, node, users: 1 };
        if let Some(number) = self.free.pop() {
            self.all[number as usize - 1] = page;
            return number;
        }
        self.all.push(page);
        self.all.len() as u32
    }
    fn get(&mut self, number: u32) -> &mut Page {
        &mut self.all[number as usize - 1]
    }
    /// Drops one user of a page. If it was the last user, returns the page, which the caller gives back to the pool.
    fn drop_user(&mut self, number: u32) -> Option<(Frame, u8)> {
        let page = &mut self.all[number as usize - 1];
        page.users -= 1;
        (page.users == 0).then(|| {
            self.free.push(number);
            (page.frame, page.node)
        })
    }
}

impl HugetlbPool {
    /// Creates an empty pool on a machine with `nodes` nodes. Up to `overcommit` surplus pages are allocated from
    /// memory on demand (nr_overcommit_hugepages).
    pub fn new(nodes: u8, overcommit: u64) -> Self {
        Self {
            store: Store::new(nodes, overcommit),
            mappings: BTreeMap::new(),
            objects: BTreeMap::new(),
            pages: Pages::default(),
            next_mapping: 0,
            next_object: 0,
        }
    }

    /// Returns the pool's counters.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// Returns a node's counters. Reservations belong to no node, so `reserved` is 0.
    pub fn node_counts(&self, node: u8) -> Counts {
        self.store.node_counts(node)
    }

    /// Returns whether the pool may allocate more surplus pages.
    pub fn grows(&self) -> bool {
        self.store.surplus() < self.store.overcommit
    }

    /// Sets the maximum number of surplus pages. Existing surplus pages stay.
    pub fn set_overcommit(&mut self, pages: u64) {
        self.store.overcommit = pages;
    }

    /// Returns the page of an index of a mapping, if any.
    pub fn page(&self, mapping: MappingId, index: u32) -> Option<Frame> {
        let number = match &self.mappings[&mapping].kind {
            mapping::Backing::Private(private) => private.pages[index as usize],
            mapping::Backing::Shared { object, start } => {
                let pages = &self.objects[object].pages;
                pages.get(&(start + index)).copied().unwrap_or(0)
            }
        };
        (number != 0).then(|| self.pages.all[number as usize - 1].frame)
    }
}
