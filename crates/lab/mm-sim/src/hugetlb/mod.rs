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
    /// A free block of a pool page's size on this node, and no other.
    fn allocate(&mut self, node: u8) -> Option<Frame>;
    /// Gives one back.
    fn free(&mut self, frame: Frame, node: u8);
}

/// A mapping of pool pages by one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(pub u32);

/// An object that mappings share: a file of hugetlbfs, a segment of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// The counters of /proc/meminfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// HugePages_Total: all pages, surplus among them.
    pub total: u64,
    /// HugePages_Free: those that back nothing.
    pub free: u64,
    /// HugePages_Rsvd: free ones that are promised. Never more than `free`.
    pub reserved: u64,
    /// HugePages_Surp: those beyond the persistent size; they go back when they are free.
    pub surplus: u64,
}

/// Where pages may come from: memory policy and cpuset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The node that is tried first.
    pub near: u8,
    /// Bit n: node n is allowed.
    pub allowed: u64,
}

impl Place {
    /// Any node, from the first on.
    pub const ANY: Self = Self { near: 0, allowed: !0 };
}

/// A mapping that was refused: the pool is short by so many pages, and no more can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{short_by} superpages too few in the pool for a mapping; make the pool or its overcommit limit \
     larger"
)]
pub struct TooFew {
    /// How many more free, unpromised pages would have been needed.
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
    /// Mappings, or 1 for the object.
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
    /// One user less. The last one gets the page, to give it back to the store.
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
    /// An empty pool of a machine with so many nodes, of which `overcommit` surplus pages may be taken
    /// from memory on demand (nr_overcommit_hugepages).
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

    /// The counters of a node. The kernel promises pages of no particular node: `reserved` is 0.
    pub fn node_counts(&self, node: u8) -> Counts {
        self.store.node_counts(node)
    }

    /// Whether there may be more surplus pages than there are.
    pub fn grows(&self) -> bool {
        self.store.surplus() < self.store.overcommit
    }

    /// Sets how many surplus pages there may be. Those that exist stay.
    pub fn set_overcommit(&mut self, pages: u64) {
        self.store.overcommit = pages;
    }

    /// The page behind an index of a mapping, if it has one.
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
