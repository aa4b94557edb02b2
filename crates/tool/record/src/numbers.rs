//! Allocator of dense region numbers. Pure.

use std::collections::BTreeMap;

/// Maximum number of regions: the lab's limit (2^20 regions, 2 TiB). The trace format allows four times as many.
pub const MAX_NUMBERS: u32 = 1 << 20;

/// Free numbers, stored as runs: first number and length.
#[derive(Debug, Clone)]
pub struct Numbers {
    free: BTreeMap<u32, u32>,
}

impl Numbers {
    /// Makes an allocator without free numbers.
    pub fn none() -> Self {
        Self { free: BTreeMap::new() }
    }

    /// Makes an allocator in which all numbers are free.
    pub fn all() -> Self {
        Self { free: BTreeMap::from([(0, MAX_NUMBERS)]) }
    }

    /// Allocates `count` consecutive numbers: from `wanted` on if these are free, otherwise from the lowest free run
    /// that is long enough.
    pub fn allocate(&mut self, count: u32, wanted: Option<u32>) -> Option<u32> {
        if let Some(wanted) = wanted.filter(|&wanted| self.holds(wanted, count)) {
            self.cut(wanted, count);
            return Some(wanted);
        }
        self.allocate_above(0, count)
    }

    /// Allocates the lowest `count` consecutive numbers that are at least `least`.
    pub fn allocate_above(&mut self, least: u32, count: u32) -> Option<u32> {
        let first = self.free.iter().find_map(|(&begin, &length)| {
            let first = begin.max(least);
            (u64::from(begin) + u64::from(length) >= u64::from(first) + u64::from(count))
                .then_some(first)
        })?;
        self.cut(first, count);
        Some(first)
    }

    /// Frees `count` numbers from `first` on.
    pub fn free(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        let (mut begin, mut end) = (first, first + count);
        if let Some((&before, &length)) = self.free.range(..first).next_back()
            && before + length == first
        {
            begin = before;
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(begin, end - begin);
    }

    /// The free runs: first number and length.
    #[cfg(test)]
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.free.iter().map(|(&first, &count)| (first, count))
    }

    fn holds(&self, first: u32, count: u32) -> bool {
        let run = self.free.range(..=first).next_back();
        run.is_some_and(|(&begin, &length)| {
            u64::from(begin) + u64::from(length) >= u64::from(first) + u64::from(count)
        })
    }

    fn cut(&mut self, first: u32, count: u32) {
        let run = self.free.range(..=first).next_back().map(|(&begin, &length)| (begin, length));
        let Some((begin, length)) = run else { return };
        self.free.remove(&begin);
        if begin < first {
            self.free.insert(begin, first - begin);
        }
        let (end, stop) = (begin + length, first + count);
        if stop < end {
            self.free.insert(stop, end - stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a set of single numbers.
        #[test]
        fn runs_are_the_numbers_that_were_given(
            steps in prop::collection::vec((1u32..9, prop::option::of(0u32..64), any::<bool>()), 1..60)
        ) {
            let mut numbers = Numbers::none();
            numbers.free(0, 64);
            let mut twin: BTreeSet<u32> = (0..64).collect();
            let mut taken = Vec::new();
            for (count, wanted, frees) in steps {
                if frees && let Some((first, count)) = taken.pop() {
                    numbers.free(first, count);
                    twin.extend(first..first + count);
                } else if let Some(first) = numbers.allocate(count, wanted) {
                    for number in first..first + count {
                        prop_assert!(twin.remove(&number), "{} was not free", number);
                    }
                    taken.push((first, count));
                } else {
                    let fits = |first: u32| (first..first + count).all(|one| twin.contains(&one));
                    prop_assert!(!(0..64).any(fits));
                }
                let all: BTreeSet<u32> =
                    numbers.runs().flat_map(|(first, count)| first..first + count).collect();
                prop_assert_eq!(&all, &twin);
            }
        }
    }
}
