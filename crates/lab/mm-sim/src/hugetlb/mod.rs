//! The explicit superpage pool: pages set aside beforehand, reserved when memory is mapped so that no
//! fault fails later, and its accounting as the kernel does it (Linux `mm/hugetlb.c`, the kernel's
//! hugetlbfs_reserv document, docs/sources/policies.md 3.7).
//!
//! The simulated system owns one [`HugetlbPool`] per superpage size. Everything is counted in pages of
//! the pool; physical memory comes and goes through [`Frames`], which the system passes in. The pool
//! keeps the reservation maps, which page backs which index, and who shares it after a fork; page
//! tables and costs are the caller's.
//!
//! Life of a page: free in the pool (persistent, from [`resize`](HugetlbPool::resize); or surplus, from
//! overcommit) → backing one index of mappings or of an object → free again, or back to memory while
//! its node has surplus.
//!
//! Three departures from the kernel, where its counters and its intent differ, are documented at
//! [`undo`](HugetlbPool::undo), [`discard`](HugetlbPool::discard) and in
//! [`resize`](HugetlbPool::resize).

mod mapping;
mod regions;

pub use mapping::{Fault, Why};
pub use mapping::{Kind, Request};
pub use regions::{Pending, Regions};

use std::collections::BTreeMap;

use crate::memory::Frame;

use self::mapping::{Mapping, Object};
use regions::Store;

/// Physical memory, as the pool asks for it.
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
    /// HugePages_Free: pages that back nothing.
    pub free: u64,
    /// HugePages_Rsvd: free pages that are reserved. Never more than `free`.
    pub reserved: u64,
    /// HugePages_Surp: pages beyond the persistent size; returned to memory when free.
    pub surplus: u64,
}

/// Where pages may come from: memory policy and cpuset.
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

/// Pages in use, by number; 0 is no page.
#[derive(Debug, Default)]
struct Pages {
    all: Vec<Page>,
    free: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    frame: Frame,
    node: u8,
    /// Number of mappings, or 1 for an object.
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
    /// Drops one user. The last user gets the page, to return it to the store.
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
    /// An empty pool on a machine with `nodes` nodes; up to `overcommit` surplus pages are allocated from memory
    /// on demand (nr_overcommit_hugepages).
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

    /// The counters.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// The counters of a node. The kernel reserves pages of no particular node: `reserved` is 0.
    pub fn node_counts(&self, node: u8) -> Counts {
        self.store.node_counts(node)
    }

    /// Whether the pool may allocate more surplus pages.
    pub fn grows(&self) -> bool {
        self.store.surplus() < self.store.overcommit
    }

    /// Sets the maximum number of surplus pages. Existing surplus pages stay.
    pub fn set_overcommit(&mut self, pages: u64) {
        self.store.overcommit = pages;
    }

    /// The page behind an index of a mapping, if any.
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
