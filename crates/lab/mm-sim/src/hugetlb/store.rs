//! The pages themselves: free lists per node, and the four counters.

use crate::memory::Frame;

use super::{Counts, Frames, Place, TooFew};

/// A node's part of the pool.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Free pages, the last freed on top, as the kernel's list has them.
    pub free: Vec<Frame>,
    /// All pages.
    pub total: u64,
    /// Of these, surplus.
    pub surplus: u64,
}

/// Free pages and counters.
#[derive(Debug)]
pub(super) struct Store {
    pub nodes: Vec<Node>,
    pub reserved: u64,
    pub overcommit: u64,
    /// The node whose turn it is to grow or to shrink (`next_nid_to_alloc`).
    pub turn: usize,
}

impl Store {
    pub fn new(nodes: u8, overcommit: u64) -> Self {
        let nodes = (0..nodes.max(1)).map(|_| Node::default()).collect();
        Self { nodes, reserved: 0, overcommit, turn: 0 }
    }

    pub fn counts(&self) -> Counts {
        let (total, surplus) = (self.total(), self.surplus());
        Counts { total, free: self.free(), reserved: self.reserved, surplus }
    }

    pub fn node_counts(&self, node: u8) -> Counts {
        let node = &self.nodes[usize::from(node)];
        let free = node.free.len() as u64;
        Counts { total: node.total, free, reserved: 0, surplus: node.surplus }
    }

    pub fn total(&self) -> u64 {
        self.nodes.iter().map(|node| node.total).sum()
    }
    pub fn free(&self) -> u64 {
        self.nodes.iter().map(|node| node.free.len() as u64).sum()
    }
    pub fn surplus(&self) -> u64 {
        self.nodes.iter().map(|node| node.surplus).sum()
    }

    /// The allowed nodes, the near one first.
    fn order(&self, place: Place) -> impl Iterator<Item = usize> + use<> {
        let (count, near) = (self.nodes.len(), usize::from(place.near));
        let allowed = move |&node: &usize| place.allowed >> node & 1 != 0;
        (0..count).map(move |step| (near + step) % count).filter(allowed)
    }

    /// Promises `pages`, with surplus pages if too few are free (`hugetlb_acct_memory`,
    /// `gather_surplus_pages`).
    pub fn reserve(
        &mut self,
        pages: u64,
        place: Place,
        frames: &mut impl Frames,
    ) -> Result<(), TooFew> {
        let needed = (self.reserved + pages).saturating_sub(self.free());
        let mut got = Vec::new();
        while (got.len() as u64) < needed {
            let Some(page) = self.grow_surplus(place, frames) else { break };
            got.push(page);
        }
        let short_by = needed - got.len() as u64;
        if short_by > 0 {
            for (frame, node) in got {
                self.forget_surplus(node, frame, frames);
            }
            return Err(TooFew { short_by });
        }
        for (frame, node) in got {
            self.nodes[node].free.push(frame);
        }
        self.reserved += pages;
        // A check at one moment only: others may take pages of these nodes later (the kernel's comment
        // in `hugetlb_acct_memory` calls it best effort).
        let near: u64 = self.order(place).map(|node| self.nodes[node].free.len() as u64).sum();
        if pages > near {
            self.unreserve(pages, frames);
            return Err(TooFew { short_by: pages - near });
        }
        Ok(())
    }

    /// Takes a promise back, and returns surplus pages that nobody needs
    /// (`return_unused_surplus_pages`).
    pub fn unreserve(&mut self, pages: u64, frames: &mut impl Frames) {
        self.reserved -= pages;
        for _ in 0..pages.min(self.surplus()) {
            let mut nodes = (0..self.nodes.len()).map(|step| (self.turn + step) % self.nodes.len());
            let has_both =
                |node: &usize| self.nodes[*node].surplus > 0 && !self.nodes[*node].free.is_empty();
            let Some(node) = nodes.find(has_both) else { return };
            self.turn = node + 1;
            let frame = self.nodes[node].free.pop().expect("looked");
            self.forget_surplus(node, frame, frames);
        }
    }

    /// Takes a page for a fault. `reserved`: one was promised to it (`dequeue_hugetlb_folio_vma`, then
    /// `alloc_buddy_hugetlb_folio_with_mpol`).
    pub fn take(
        &mut self,
        reserved: bool,
        place: Place,
        frames: &mut impl Frames,
    ) -> Option<(Frame, u8)> {
        let mut taken = None;
        if reserved || self.free() > self.reserved {
            let node = self.order(place).find(|&node| !self.nodes[node].free.is_empty());
            taken = node.map(|node| (self.nodes[node].free.pop().expect("looked"), node));
        }
        let (frame, node) = taken.or_else(|| self.grow_surplus(place, frames))?;
        self.reserved -= u64::from(reserved);
        Some((frame, node as u8))
    }

    /// A page backs nothing any more (`free_huge_folio`): it is free, or goes back to memory if its
    /// node has surplus and no promise needs it. `restore`: the promise it was taken for is renewed.
    pub fn give(&mut self, (frame, node): (Frame, u8), restore: bool, frames: &mut impl Frames) {
        let node = usize::from(node);
        self.reserved += u64::from(restore);
        if self.nodes[node].surplus > 0 && self.free() >= self.reserved {
            self.forget_surplus(node, frame, frames);
        } else {
            self.nodes[node].free.push(frame);
        }
    }

    /// A surplus page fresh from memory, counted and not yet free.
    fn grow_surplus(&mut self, place: Place, frames: &mut impl Frames) -> Option<(Frame, usize)> {
        if self.surplus() >= self.overcommit {
            return None;
        }
        let mut order = self.order(place);
        let (frame, node) = order.find_map(|node| Some((frames.allocate(node as u8)?, node)))?;
        self.nodes[node].total += 1;
        self.nodes[node].surplus += 1;
        Some((frame, node))
    }

    fn forget_surplus(&mut self, node: usize, frame: Frame, frames: &mut impl Frames) {
        self.nodes[node].total -= 1;
        self.nodes[node].surplus -= 1;
        frames.free(frame, node as u8);
    }
}
