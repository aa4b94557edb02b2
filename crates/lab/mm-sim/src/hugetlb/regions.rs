//! Reservation maps: lists of ranges of indexes (the kernel's `file_region` and `resv_map`).
//!
//! For an object, an entry means that the page is or was reserved. For a private mapping, it means that the reservation
//! was used.

use std::collections::BTreeMap;

use super::mapping::Backing;
use super::{Counts, Frames, HugetlbPool, Place, TooFew};
use crate::memory::Frame;

/// Disjoint, non-adjacent ranges by start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regions(BTreeMap<u32, u32>);

/// A prepared addition, to be committed or aborted (`region_chg`).
#[derive(Debug)]
#[must_use = "it ends with `add` or `abort`"]
pub struct Pending {
    from: u32,
    to: u32,
    missing: u32,
}

impl Pending {
    /// Returns the number of indexes that the addition would add.
    pub fn missing(&self) -> u32 {
        self.missing
    }
    /// Aborts the addition (`region_abort`). The kernel returns cached descriptors here; the simulation caches none.
    pub fn abort(self) {}
}

impl Regions {
    /// Prepares to add `from..to` (`region_chg`).
    pub fn chg(&self, from: u32, to: u32) -> Pending {
        Pending { from, to, missing: to - from - self.count(from, to) }
    }

    /// Commits an addition and joins adjacent ranges (`region_add`). Returns the number of new indexes.
    pub fn add(&mut self, pending: Pending) -> u32 {
        let Pending { mut from, mut to, missing } = pending;
        if from == to {
            return 0;
        }
        let touching = |(&start, &end): (&u32, &u32)| (end >= from).then_some((start, end));
        if let Some((start, end)) = self.0.range(..=from).next_back().and_then(touching) {
            (from, to) = (start, to.max(end));
        }
        while let Some((start, end)) = self.0.range(from..=to).next().map(|(&s, &e)| (s, e)) {
            self.0.remove(&start);
            to = to.max(end);
        }
        self.0.insert(from, to);
        missing
    }

    /// Removes `from..to`, splitting ranges (`region_del`). Returns the number of removed indexes.
    pub fn del(&mut self, from: u32, to: u32) -> u32 {
        let there = self.overlapping(from, to);
        for &(start, end) in &there {
            self.0.remove(&start);
            if start < from {
                self.0.insert(start, from);
            }
            if to < end {
                self.0.insert(to, end);
            }
        }
        there.iter().map(|&(start, end)| end.min(to) - start.max(from)).sum()
    }

    /// Returns the number of indexes present in `from..to` (`region_count`).
    pub fn count(&self, from: u32, to: u32) -> u32 {
        self.within(from, to).map(|(start, end)| end - start).sum()
    }

    /// Returns whether an index is present.
    pub fn contains(&self, index: u32) -> bool {
        self.0.range(..=index).next_back().is_some_and(|(_, &end)| index < end)
    }

    /// Returns whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the parts of `from..to` that are present, ascending. Each is a half-open range of indexes: the first
    /// index, and the one after the last.
    pub fn within(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = self.0.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let ranges = (first < to).then(|| self.0.range(first..to)).into_iter().flatten();
        let parts = ranges.map(move |(&start, &end)| (start.max(from), end.min(to)));
        parts.filter(|(start, end)| start < end)
    }

    /// Returns the whole ranges that overlap `from..to`.
    fn overlapping(&self, from: u32, to: u32) -> Vec<(u32, u32)> {
        if from >= to {
            return Vec::new();
        }
        let before = self.0.range(..from).next_back().filter(|&(_, &end)| end > from);
        let inside = self.0.range(from..to);
        before.into_iter().chain(inside).map(|(&start, &end)| (start, end)).collect()
    }
}

// The pool's pages: free lists per node, and the four counters.

#[derive(Debug, Default)]
pub(super) struct Node {
    /// Free pages, a stack as in the kernel.
    pub free: Vec<Frame>,
    /// Number of pages.
    pub total: u64,
    /// Number of surplus pages.
    pub surplus: u64,
}

#[derive(Debug)]
pub(super) struct Store {
    pub nodes: Vec<Node>,
    pub reserved: u64,
    pub overcommit: u64,
    /// The next node to grow or to shrink, round robin (`next_nid_to_alloc`).
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

    /// Returns the allowed nodes, the preferred one first.
    fn order(&self, place: Place) -> impl Iterator<Item = usize> + use<> {
        let (count, near) = (self.nodes.len(), usize::from(place.near));
        let allowed = move |&node: &usize| place.allowed >> node & 1 != 0;
        (0..count).map(move |step| (near + step) % count).filter(allowed)
    }

    /// Reserves `pages`. Allocates surplus pages if too few are free (`hugetlb_acct_memory`, `gather_surplus_pages`).
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
        // A momentary check: other mappings may take pages of these nodes later (best effort, says the kernel's comment
        // in `hugetlb_acct_memory`).
        let near: u64 = self.order(place).map(|node| self.nodes[node].free.len() as u64).sum();
        if pages > near {
            self.unreserve(pages, frames);
            return Err(TooFew { short_by: pages - near });
        }
        Ok(())
    }

    /// Cancels a reservation, and returns unneeded surplus pages to memory (`return_unused_surplus_pages`).
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

    /// Takes a page for a fault. `reserved`: the fault has a reservation (`dequeue_hugetlb_folio_vma`, then
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

    /// Releases an unused page (`free_huge_folio`). The page becomes free, or returns to memory if its node has surplus
    /// and no reservation needs it. `restore`: restores the page's reservation.
    pub fn give(&mut self, (frame, node): (Frame, u8), restore: bool, frames: &mut impl Frames) {
        let node = usize::from(node);
        self.reserved += u64::from(restore);
        if self.nodes[node].surplus > 0 && self.free() >= self.reserved {
            self.forget_surplus(node, frame, frames);
        } else {
            self.nodes[node].free.push(frame);
        }
    }

    /// Allocates a surplus page from memory and counts it; the caller puts it on a free list.
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

// The pool's persistent size (`set_max_huge_pages`, nr_hugepages).

impl HugetlbPool {
    /// Resizes the persistent pool, or one node's part of it, to `pages`. Returns the resulting size.
    ///
    /// Growing converts surplus pages to persistent ones first, and ends when memory is exhausted. Shrinking frees
    /// pages that are neither in use nor reserved; the remaining excess becomes surplus.
    pub fn resize(&mut self, pages: u64, only: Option<u8>, frames: &mut impl Frames) -> u64 {
        let store = &mut self.store;
        let count = store.nodes.len();
        let nodes: Vec<usize> = only.map_or((0..count).collect(), |node| vec![node.into()]);
        let persistent = |store: &super::Store| store.total() - store.surplus();
        // Converts a node's request to a size of the whole pool, as the kernel does.
        let pages = match only {
            Some(node) => pages + persistent(store) - store.nodes[usize::from(node)].persistent(),
            None => pages,
        };
        while persistent(store) < pages {
            let Some(node) = store.next_node(&nodes, |node| node.surplus > 0) else { break };
            store.nodes[node].surplus -= 1;
        }
        while persistent(store) < pages {
            let turns: Vec<usize> = store.turns(&nodes).collect();
            let got = turns.into_iter().find_map(|at| Some((frames.allocate(at as u8)?, at)));
            let Some((frame, node)) = got else { break };
            store.turn = node + 1;
            store.nodes[node].total += 1;
            store.nodes[node].free.push(frame);
        }
        let needed = pages.max(store.reserved + store.total() - store.free());
        while needed < persistent(store) {
            // The kernel lacks the second condition, so a node can end with more surplus than pages.
            let will_do = |node: &Node| !node.free.is_empty() && node.persistent() > 0;
            let Some(node) = store.next_node(&nodes, will_do) else { break };
            let frame = store.nodes[node].free.pop().expect("looked");
            store.nodes[node].total -= 1;
            frames.free(frame, node as u8);
        }
        while pages < persistent(store) {
            let Some(node) = store.next_node(&nodes, |node| node.surplus < node.total) else {
                break;
            };
            store.nodes[node].surplus += 1;
        }
        match only {
            Some(node) => store.nodes[usize::from(node)].persistent(),
            None => persistent(store),
        }
    }
}

impl Node {
    fn persistent(&self) -> u64 {
        self.total - self.surplus
    }
}

impl super::Store {
    /// Returns the nodes in round-robin order, beginning at the current turn.
    fn turns<'a>(&self, nodes: &'a [usize]) -> impl Iterator<Item = usize> + use<'a> {
        let first = nodes.iter().position(|&node| node >= self.turn).unwrap_or(0);
        nodes.iter().copied().cycle().skip(first).take(nodes.len())
    }

    /// Returns the first suitable node and advances the turn.
    fn next_node(&mut self, nodes: &[usize], will_do: impl Fn(&Node) -> bool) -> Option<usize> {
        let node = self.turns(nodes).find(|&node| will_do(&self.nodes[node]))?;
        self.turn = node + 1;
        Some(node)
    }
}

// Invariants of the pool, computed from scratch.

impl HugetlbPool {
    /// Returns all pages of the pool: free pages, then pages in use.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> + '_ {
        let free = self.store.nodes.iter().flat_map(|node| node.free.iter().copied());
        let used = self.pages.all.iter().filter(|page| page.users > 0).map(|page| page.frame);
        free.chain(used)
    }

    /// Checks all redundant state. Slow: for tests, and for debug builds at rare points.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn verify(&self) -> Result<(), String> {
        let mut users: BTreeMap<u32, u32> = BTreeMap::new();
        let mut promised = 0;
        for mapping in self.mappings.values() {
            let Backing::Private(private) = &mapping.kind else { continue };
            for &number in private.pages.iter().filter(|&&number| number != 0) {
                *users.entry(number).or_default() += 1;
            }
            if let Some(used) = &private.used {
                let live = mapping.live.within(0, mapping.length).flat_map(|(from, to)| from..to);
                promised += live.filter(|&index| !used.contains(index)).count() as u64;
            }
        }
        for object in self.objects.values() {
            let entries = object.reserved.within(0, u32::MAX).flat_map(|(from, to)| from..to);
            promised += entries.filter(|index| !object.pages.contains_key(index)).count() as u64;
            for (index, &number) in &object.pages {
                *users.entry(number).or_default() += 1;
                if !object.reserved.contains(*index) {
                    return Err(format!("page {index} of an object has no entry in its map"));
                }
            }
        }
        let counts = self.counts();
        if promised != counts.reserved {
            return Err(format!("{promised} promised, kept {}", counts.reserved));
        }
        if counts.free < counts.reserved {
            return Err(format!("{} free, but {} promised", counts.free, counts.reserved));
        }
        if counts.total != counts.free + users.len() as u64 {
            let used = users.len();
            return Err(format!("{} in all, {} free, {used} used", counts.total, counts.free));
        }
        for (&number, &count) in &users {
            let kept = self.pages.all[number as usize - 1].users;
            if kept != count {
                return Err(format!("page {number} has {count} users, kept {kept}"));
            }
        }
        for (at, node) in self.store.nodes.iter().enumerate() {
            let here =
                |&&number: &&u32| usize::from(self.pages.all[number as usize - 1].node) == at;
            let used = users.keys().filter(here).count() as u64;
            if node.total != node.free.len() as u64 + used || node.surplus > node.total {
                return Err(format!("node {at}: {node:?}, {used} used"));
            }
        }
        Ok(())
    }
}
