//! Reservation maps: lists of ranges of indexes (the kernel's `file_region` and `resv_map`).
//!
//! For an object, an entry says that a page is or was reserved. For a private mapping it is the
//! reverse: an entry says that the reservation was used.

use std::collections::BTreeMap;

/// Disjoint ranges that do not touch, by their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Regions(BTreeMap<u32, u32>);

/// An addition that was counted, and is to be made or given up (`region_chg`).
#[derive(Debug)]
#[must_use = "it ends with `add` or `abort`"]
pub struct Pending {
    from: u32,
    to: u32,
    missing: u32,
}

impl Pending {
    /// How many indexes of the range are missing.
    pub fn missing(&self) -> u32 {
        self.missing
    }
    /// Gives it up (`region_abort`). The kernel returns descriptors that it cached; there are none here.
    pub fn abort(self) {}
}

impl Regions {
    /// Counts what adding `from..to` would add.
    pub fn chg(&self, from: u32, to: u32) -> Pending {
        Pending { from, to, missing: to - from - self.count(from, to) }
    }

    /// Adds what was counted, joining ranges that touch (`region_add`). Returns how many are new.
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

    /// Removes `from..to`, splitting ranges (`region_del`). Returns how many were there.
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

    /// How many indexes of `from..to` are there (`region_count`).
    pub fn count(&self, from: u32, to: u32) -> u32 {
        self.within(from, to).map(|(start, end)| end - start).sum()
    }

    /// Whether an index is there.
    pub fn contains(&self, index: u32) -> bool {
        self.0.range(..=index).next_back().is_some_and(|(_, &end)| index < end)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts of `from..to` that are there, ascending: page numbers, the end not included.
    pub fn within(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let first = self.0.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let ranges = (first < to).then(|| self.0.range(first..to)).into_iter().flatten();
        let parts = ranges.map(move |(&start, &end)| (start.max(from), end.min(to)));
        parts.filter(|(start, end)| start < end)
    }

    /// The ranges that have an index of `from..to`, whole.
    fn overlapping(&self, from: u32, to: u32) -> Vec<(u32, u32)> {
        if from >= to {
            return Vec::new();
        }
        let before = self.0.range(..from).next_back().filter(|&(_, &end)| end > from);
        let inside = self.0.range(from..to);
        before.into_iter().chain(inside).map(|(&start, &end)| (start, end)).collect()
    }
}
