//! Aligned runs of free frames in a pageblock's bitmap: the free blocks of the buddy allocator.
//!
//! A run of 2^k frames is **maximal** if it is aligned and free and its buddy is not free. The maximal runs are the
//! blocks on the lists of a buddy allocator that merges at once. Orders 0 to 5 lie within words. Orders 6 to 8 are runs
//! of whole words; the same arithmetic finds them in a byte with one bit per full word.

use super::layout::is_movable;
use super::zone::Zone;
use super::{Claiming, Frame, MAX_ORDER, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER};

/// One bit per frame of a pageblock, set if free.
pub(crate) type Map = [u64; 8];

/// Possible starts of an aligned run of 2^order bits in a word, by order.
const STARTS: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// Returns the starts of maximal runs in a word, for orders 0 to 5.
#[inline]
const fn maximal(word: u64, order: u8) -> u64 {
    let mut runs = word;
    let mut step = 0;
    while step < order {
        runs &= runs >> (1 << step);
        step += 1;
    }
    runs &= STARTS[order as usize];
    let pairs = runs & (runs >> (1 << order)) & STARTS[order as usize + 1];
    runs & !(pairs | pairs << (1 << order))
}

/// Returns a byte with one bit per full word.
#[inline]
fn full(map: &Map) -> u64 {
    let mut full = 0;
    for (index, &word) in map.iter().enumerate() {
        full |= u64::from(word == u64::MAX) << index;
    }
    full
}

/// Returns whether the map has a maximal run of this order (0 to 8).
pub(crate) fn has(map: &Map, order: u8) -> bool {
    count(map, order) > 0
}

/// Returns the order of the maximal run around `slot`. The caller knows that the aligned run of 2^`order` frames around
/// `slot` is free. Returns 9 if the pageblock is wholly free.
#[inline]
pub(crate) fn order_of(map: &Map, slot: u32, order: u8) -> u8 {
    let mut found = order;
    if order < 6 {
        // Larger runs contain the smaller ones, so the number of free runs around the slot is the order. The loop is
        // branchless, because merges of random frames are unpredictable.
        let word = map[(slot >> 6) as usize];
        found = (1..=6)
            .map(|order: u8| {
                let start = slot & 63 & !((1 << order) - 1);
                let mask = u64::MAX >> (64 - (1 << order));
                u8::from(word >> start & mask == mask)
            })
            .sum();
        found = found.max(order);
    }
    while (6..9).contains(&found) && is_free(map, (slot >> found << found) ^ 1 << found, found) {
        found += 1;
    }
    found
}

/// Returns the start of the lowest maximal run of this order (0 to 8). At least one must exist.
#[inline]
pub(crate) fn first(map: &Map, order: u8) -> u32 {
    if order >= 6 {
        return maximal(full(map), order - 6).trailing_zeros() << 6;
    }
    for (index, &word) in map.iter().enumerate() {
        let runs = maximal(word, order);
        if runs != 0 {
            return (index as u32) << 6 | runs.trailing_zeros();
        }
    }
    unreachable!("a pageblock's orders say what its bitmap has")
}

/// Returns the number of maximal runs of this order (0 to 8).
pub(crate) fn count(map: &Map, order: u8) -> u32 {
    match order {
        0..6 => map.iter().map(|&word| maximal(word, order).count_ones()).sum(),
        _ => maximal(full(map), order - 6).count_ones(),
    }
}

/// Returns whether the 2^order aligned frames from `slot` on are all free.
#[inline]
pub(crate) fn is_free(map: &Map, slot: u32, order: u8) -> bool {
    let word = (slot >> 6) as usize;
    if order < 6 {
        let mask = mask(slot, order);
        return map[word] & mask == mask;
    }
    map[word..word + (1 << (order - 6))].iter().all(|&word| word == u64::MAX)
}

#[inline]
pub(crate) fn is_used(map: &Map, slot: u32, order: u8) -> bool {
    let word = (slot >> 6) as usize;
    if order < 6 {
        return map[word] & mask(slot, order) == 0;
    }
    map[word..word + (1 << (order - 6))].iter().all(|&word| word == 0)
}

#[inline]
pub(crate) fn set(map: &mut Map, slot: u32, order: u8) {
    let word = (slot >> 6) as usize;
    if order < 6 {
        map[word] |= mask(slot, order);
    } else {
        map[word..word + (1 << (order - 6))].fill(u64::MAX);
    }
}

#[inline]
pub(crate) fn clear(map: &mut Map, slot: u32, order: u8) {
    let word = (slot >> 6) as usize;
    if order < 6 {
        map[word] &= !mask(slot, order);
    } else {
        map[word..word + (1 << (order - 6))].fill(0);
    }
}

/// Marks `count` frames from `slot` on used. No frame before `slot` may be free.
#[inline]
pub(crate) fn clear_until(map: &mut Map, slot: u32, count: u32) {
    if count == 1 {
        return clear(map, slot, 0);
    }
    for (word, first) in map.iter_mut().zip((0..).step_by(64)) {
        let used = (slot + count).saturating_sub(first).min(64);
        *word &= !u64::MAX.checked_shr(64 - used).unwrap_or(0);
    }
}

/// Returns the bits of 2^order frames (order 0 to 5) in their word.
#[inline]
const fn mask(slot: u32, order: u8) -> u64 {
    ((1 << (1 << order)) - 1) << (slot & 63)
}

// A set of pageblocks with a fast minimum: a bitmap, with one summary bit per 64 bits of the level below.
//
// Three levels find the lowest of 262,144 pageblocks (512 GB) with three words. Beyond that, the top level is scanned.
// The size is about 65/64 bits per pageblock.

#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    leaves: Vec<u64>,
    middle: Vec<u64>,
    top: Vec<u64>,
}

impl Tree {
    /// Creates an empty set for numbers below `count`.
    pub(crate) fn new(count: usize) -> Self {
        let leaves = count.div_ceil(64);
        let middle = leaves.div_ceil(64);
        Self { leaves: vec![0; leaves], middle: vec![0; middle], top: vec![0; middle.div_ceil(64)] }
    }

    #[inline]
    pub(crate) fn insert(&mut self, number: usize) {
        let leaf = &mut self.leaves[number >> 6];
        let before = *leaf;
        *leaf |= 1 << (number & 63);
        if before == 0 {
            let middle = &mut self.middle[number >> 12];
            let before = *middle;
            *middle |= 1 << (number >> 6 & 63);
            if before == 0 {
                self.top[number >> 18] |= 1 << (number >> 12 & 63);
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, number: usize) {
        let leaf = &mut self.leaves[number >> 6];
        *leaf &= !(1 << (number & 63));
        if *leaf == 0 {
            let middle = &mut self.middle[number >> 12];
            *middle &= !(1 << (number >> 6 & 63));
            if *middle == 0 {
                self.top[number >> 18] &= !(1 << (number >> 12 & 63));
            }
        }
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.leaves[number >> 6] >> (number & 63) & 1 != 0
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        let (index, word) = self.top.iter().enumerate().find(|(_, word)| **word != 0)?;
        let middle = index << 6 | word.trailing_zeros() as usize;
        let leaf = middle << 6 | self.middle[middle].trailing_zeros() as usize;
        Some(leaf << 6 | self.leaves[leaf].trailing_zeros() as usize)
    }

    /// Returns the numbers from `start` on, ascending.
    pub(crate) fn from(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        let mut index = start >> 6;
        let mut word = self.leaves.get(index).map_or(0, |word| word & (u64::MAX << (start & 63)));
        std::iter::from_fn(move || {
            while word == 0 {
                index += 1;
                word = *self.leaves.get(index)?;
            }
            let number = index << 6 | word.trailing_zeros() as usize;
            word &= word - 1;
            Some(number)
        })
    }
}

// Fallback of an allocation whose own mobility type has no free block (Linux' `__rmqueue_fallback`).
//
// The fallback takes the largest free block of another type: stealing from nearly free pageblocks mixes fewer
// pageblocks. If half of a pageblock is free or compatible, the request claims the whole pageblock. Otherwise it takes
// only the needed frames.

/// Minimum order of a block for a movable request to claim its pageblock: half of a pageblock's order
/// (`can_steal_fallback`).
const CLAIM_ORDER: u8 = PAGEBLOCK_ORDER / 2;
/// Minimum number of free or compatible frames to claim a pageblock.
const HALF: u32 = PAGEBLOCK / 2;

/// Returns the fallback types in order (Linux' table `fallbacks`).
pub(crate) const fn others(mobility: Mobility) -> [Mobility; 2] {
    match mobility {
        Mobility::Unmovable => [Mobility::Reclaimable, Mobility::Movable],
        Mobility::Reclaimable => [Mobility::Unmovable, Mobility::Movable],
        Mobility::Movable => [Mobility::Reclaimable, Mobility::Unmovable],
    }
}

impl Zone {
    /// Takes 2^order frames from another mobility's lists. `owners` has the words of the zone's frames.
    pub(crate) fn take_fallback(
        &mut self,
        mobility: Mobility,
        order: u8,
        rule: Claiming,
        owners: &[u32],
    ) -> Option<Frame> {
        self.settle();
        let (found, other) = self.largest(mobility, order)?;
        let may_claim = found >= CLAIM_ORDER || mobility != Mobility::Movable;
        if may_claim {
            let block = self.index[other.index()][found as usize].first()?;
            if found >= PAGEBLOCK_ORDER || self.alike(block, mobility, rule, owners) >= HALF {
                self.set_mobility(block, mobility);
                return self.take(mobility, order);
            }
        } else if rule == Claiming::HalfCompatible {
            let (found, other) = self.smallest(mobility, order)?;
            return Some(self.take_from(other, found, order));
        }
        Some(self.take_from(other, found, order))
    }

    fn largest(&self, mobility: Mobility, order: u8) -> Option<(u8, Mobility)> {
        (order..=MAX_ORDER).rev().find_map(|order| self.first_other(mobility, order))
    }

    fn smallest(&self, mobility: Mobility, order: u8) -> Option<(u8, Mobility)> {
        (order..=MAX_ORDER).find_map(|order| self.first_other(mobility, order))
    }

    fn first_other(&self, mobility: Mobility, order: u8) -> Option<(u8, Mobility)> {
        let other =
            others(mobility).into_iter().find(|other| self.orders(*other) >> order & 1 != 0)?;
        Some((order, other))
    }

    /// Returns the number of frames in a pageblock that match this mobility: the free frames and, with the newer rule,
    /// used frames of compatible mobility (`steal_suitable_fallback`).
    fn alike(&self, block: usize, mobility: Mobility, rule: Claiming, owners: &[u32]) -> u32 {
        let free = u32::from(self.blocks[block].free);
        if rule == Claiming::HalfFree {
            return free;
        }
        let start = block << PAGEBLOCK_ORDER;
        let words = &owners[start..start + PAGEBLOCK as usize];
        let movable = words.iter().filter(|&&word| is_movable(word)).count() as u32;
        match mobility {
            Mobility::Movable => free + movable,
            _ if self.blocks[block].mobility == Mobility::Movable => PAGEBLOCK - movable,
            _ => free,
        }
    }

    /// Returns whether any type has a block of at least this order: a request may take from other types
    /// (`__zone_watermark_ok` counts every type's list).
    pub(crate) fn has(&self, mobility: Mobility, order: u8) -> bool {
        let own = self.orders(mobility) >> order != 0;
        own || self.smallest(mobility, order).is_some()
    }

    /// Returns whether an allocation would find a block or claim one (`find_suitable_fallback` with `only_stealable`).
    /// A compaction run ends when this holds.
    pub(crate) fn suits(&self, mobility: Mobility, order: u8) -> bool {
        let own = self.orders(mobility) >> order != 0;
        let claims = |found: u8| found >= CLAIM_ORDER || mobility != Mobility::Movable;
        own || (order..=MAX_ORDER)
            .any(|order| claims(order) && self.first_other(mobility, order).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference model: a run is on its order's list if it is free and its buddy is not.
    fn starts(map: &Map, order: u8) -> Vec<u32> {
        let free = |slot: u32, order: u8| {
            (slot..slot + (1 << order)).all(|slot| map[slot as usize / 64] >> (slot % 64) & 1 == 1)
        };
        (0..512)
            .step_by(1 << order)
            .filter(|&slot| free(slot, order) && !free(slot ^ 1 << order, order))
            .collect()
    }

    proptest! {
        #[test]
        fn are_those_of_the_textbook(
            runs in prop::collection::vec((0u32..512, 0u8..9, any::<bool>()), 0..40),
        ) {
            let mut map = [0; 8];
            for (slot, order, free) in runs {
                let slot = slot >> order << order;
                if free { set(&mut map, slot, order) } else { clear(&mut map, slot, order) }
                prop_assert_eq!(is_free(&map, slot, order), free);
                prop_assert_eq!(is_used(&map, slot, order), !free);
                if free {
                    let largest = (order..10).rev().find(|&order| {
                        let start = slot >> order << order;
                        (start..start + (1 << order)).all(|slot| is_free(&map, slot, 0))
                    });
                    prop_assert_eq!(Some(order_of(&map, slot, order)), largest);
                }
            }
            for order in 0..9 {
                let starts = starts(&map, order);
                prop_assert_eq!(has(&map, order), !starts.is_empty());
                prop_assert_eq!(count(&map, order), starts.len() as u32);
                if let Some(&lowest) = starts.first() {
                    prop_assert_eq!(first(&map, order), lowest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tree_tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_set(steps in prop::collection::vec((0usize..9000, any::<bool>()), 1..400), start in 0usize..9000) {
            let (mut tree, mut set) = (Tree::new(9000), BTreeSet::new());
            for (number, add) in steps {
                if add {
                    tree.insert(number);
                    set.insert(number);
                } else {
                    tree.remove(number);
                    set.remove(&number);
                }
                prop_assert_eq!(tree.first(), set.first().copied());
                prop_assert_eq!(tree.contains(number), add);
            }
            prop_assert!(tree.from(start).eq(set.range(start..).copied()));
        }
    }

    #[test]
    fn finds_what_is_far_apart() {
        let mut tree = Tree::new(1 << 20);
        tree.insert((1 << 20) - 1);
        assert_eq!(tree.first(), Some((1 << 20) - 1));
        tree.insert(1 << 18);
        assert_eq!(tree.first(), Some(1 << 18));
        tree.remove(1 << 18);
        tree.remove((1 << 20) - 1);
        assert_eq!(tree.first(), None);
    }
}
