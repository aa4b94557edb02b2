//! `Distances`: the number of other items used since an item was last used (its LRU stack distance).
//!
//! [`crate::Watch`] owns it. Bennett and Kruskal's tree over time slots (IBM J. R&D 1975), implemented as a Fenwick
//! tree. Beyond a fixed number, items are sampled by a hash of their numbers and the distances scaled (SHARDS,
//! Waldspurger et al., FAST 2015), so that memory and time per access are bounded.

/// Number of octaves of distances: 2^31 pages are 8 TiB.
pub const OCTAVES: usize = 32;

/// Returns the octave of a distance: 0 for 0, otherwise k for 2^(k-1) <= distance < 2^k.
pub const fn octave(distance: u64) -> usize {
    let octave = (u64::BITS - distance.leading_zeros()) as usize;
    if octave < OCTAVES { octave } else { OCTAVES - 1 }
}

const NEVER: u32 = u32::MAX;

/// Stack distances of items with dense numbers.
#[derive(Debug, Clone)]
pub struct Distances {
    /// Slot of each item's last use, or `NEVER`.
    last: Vec<u32>,
    /// Item whose last use is in each slot, or `NEVER`.
    at: Vec<u32>,
    /// Fenwick tree over slots: number of items whose last use is in each slot.
    tree: Vec<u32>,
    /// The next free slot.
    now: u32,
    /// Number of items in the tree.
    tracked: usize,
    /// Maximum number of items in the tree.
    most: usize,
    /// One in 2^`thinning` items is tracked.
    thinning: u32,
}

impl Distances {
    /// Creates an empty tracker of at most `most` items.
    pub fn new(most: usize) -> Self {
        let slots = 4 * most.max(16);
        Self {
            last: Vec::new(),
            at: vec![NEVER; slots],
            tree: vec![0; slots + 1],
            now: 0,
            tracked: 0,
            most: most.max(16),
            thinning: 0,
        }
    }

    /// Returns the number of items that each tracked one stands for.
    pub fn stands_for(&self) -> u64 {
        1 << self.thinning
    }

    /// Returns whether `thing` is one of the tracked items.
    #[inline]
    pub fn is_tracked(&self, thing: u32) -> bool {
        // Fibonacci hashing: the high bits of the product are nearly random for dense numbers.
        self.thinning == 0
            || u64::from(thing).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.thinning) == 0
    }

    /// Records a use of `thing`, which must be tracked. Returns its distance; `None` at its first use.
    pub fn touch(&mut self, thing: u32) -> Option<u64> {
        debug_assert!(self.is_tracked(thing));
        if self.now as usize == self.at.len() {
            self.compact();
        }
        if self.last.len() <= thing as usize {
            self.last.resize(thing as usize + 1, NEVER);
        }
        let slot = self.last[thing as usize];
        let distance = (slot != NEVER).then(|| {
            // Items used after `thing`: all tracked items minus the items in slots up to its own.
            let after = self.tracked as u64 - self.up_to(slot);
            self.take(slot);
            after << self.thinning
        });
        self.put(thing);
        if self.tracked > self.most {
            self.thin();
        }
        distance
    }

    /// Forgets `thing`: its next use counts as a first one.
    pub fn forget(&mut self, thing: u32) {
        if let Some(slot) = self.last.get_mut(thing as usize)
            && *slot != NEVER
        {
            let slot = std::mem::replace(slot, NEVER);
            self.take(slot);
        }
    }

    fn put(&mut self, thing: u32) {
        let slot = self.now;
        self.now += 1;
        self.last[thing as usize] = slot;
        self.at[slot as usize] = thing;
        self.add(slot, 1);
        self.tracked += 1;
    }

    fn take(&mut self, slot: u32) {
        self.at[slot as usize] = NEVER;
        self.add(slot, u32::MAX);
        self.tracked -= 1;
    }

    fn add(&mut self, slot: u32, delta: u32) {
        let mut i = slot as usize + 1;
        while i < self.tree.len() {
            self.tree[i] = self.tree[i].wrapping_add(delta);
            i += i & i.wrapping_neg();
        }
    }

    /// Returns the number of items in slots up to and including `slot`.
    fn up_to(&self, slot: u32) -> u64 {
        let (mut i, mut sum) = (slot as usize + 1, 0u64);
        while i > 0 {
            sum += u64::from(self.tree[i]);
            i &= i - 1;
        }
        sum
    }

    /// Moves the tracked items to the first slots, in order, to free slots.
    fn compact(&mut self) {
        let things: Vec<u32> = self.at.iter().copied().filter(|&thing| thing != NEVER).collect();
        self.at.fill(NEVER);
        self.tree.fill(0);
        self.now = 0;
        self.tracked = 0;
        for thing in things {
            self.put(thing);
        }
    }

    /// Halves the number of tracked items until they fit.
    fn thin(&mut self) {
        while self.tracked > self.most && self.thinning < 20 {
            self.thinning += 1;
            for slot in 0..self.now {
                let thing = self.at[slot as usize];
                if thing != NEVER && !self.is_tracked(thing) {
                    self.take(slot);
                    self.last[thing as usize] = NEVER;
                }
            }
        }
        self.compact();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference model: a list, most recent first.
    fn naive(list: &mut Vec<u32>, thing: u32) -> Option<u64> {
        let place = list.iter().position(|&other| other == thing);
        if let Some(place) = place {
            list.remove(place);
        }
        list.insert(0, thing);
        place.map(|place| place as u64)
    }

    proptest! {
        #[test]
        fn equals_a_list(steps in prop::collection::vec((0u32..60, prop::bool::weighted(0.05)), 1..1500)) {
            let (mut fast, mut list) = (Distances::new(64), Vec::new());
            for (thing, forget) in steps {
                if forget {
                    fast.forget(thing);
                    list.retain(|&other| other != thing);
                } else {
                    prop_assert_eq!(fast.touch(thing), naive(&mut list, thing));
                }
            }
        }
    }

    #[test]
    fn octaves_begin_at_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(octave), [0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(octave(u64::MAX), OCTAVES - 1);
    }

    #[test]
    fn sampled_distances_have_the_right_mean() {
        // With uniform use of N items, all distances below N are equally likely, and their mean is (N - 1) / 2.
        const THINGS: u64 = 50_000;
        let mut fast = Distances::new(2_000);
        let (mut sum, mut count, mut state) = (0u64, 0u64, 1u64);
        for step in 0..2_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let thing = ((state >> 33) % THINGS) as u32;
            if !fast.is_tracked(thing) {
                continue;
            }
            if let Some(distance) = fast.touch(thing)
                && step > 500_000
            {
                sum += distance;
                count += 1;
            }
        }
        assert!(fast.stands_for() >= 32, "{}", fast.stands_for());
        let mean = sum as f64 / count as f64;
        assert!((mean / (THINGS as f64 / 2.0) - 1.0).abs() < 0.1, "{mean}");
    }
}
