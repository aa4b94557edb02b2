//! A set of pageblocks with a fast minimum: bits, and above each 64 of them a bit that says "any".
//!
//! Three levels find the lowest of 262,144 pageblocks (512 GB) in three words; beyond that the top
//! is scanned. 65/64 bits per pageblock.

/// The set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    leaves: Vec<u64>,
    middle: Vec<u64>,
    top: Vec<u64>,
}

impl Tree {
    /// An empty set of numbers below `count`.
    pub(crate) fn new(count: usize) -> Self {
        let leaves = count.div_ceil(64);
        let middle = leaves.div_ceil(64);
        Self { leaves: vec![0; leaves], middle: vec![0; middle], top: vec![0; middle.div_ceil(64)] }
    }

    /// Adds a number.
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

    /// Takes a number out.
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

    /// Whether it is in.
    pub(crate) fn contains(&self, number: usize) -> bool {
        self.leaves[number >> 6] >> (number & 63) & 1 != 0
    }

    /// The lowest.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        let (index, word) = self.top.iter().enumerate().find(|(_, word)| **word != 0)?;
        let middle = index << 6 | word.trailing_zeros() as usize;
        let leaf = middle << 6 | self.middle[middle].trailing_zeros() as usize;
        Some(leaf << 6 | self.leaves[leaf].trailing_zeros() as usize)
    }

    /// The numbers from `start` on, ascending.
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

#[cfg(test)]
mod tests {
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
