//! `Full`: one fully associative array with exact LRU. A hash table finds the entry, and a circular
//! list of 8-bit indices keeps the order of use. A look-up takes 10 to 15 cycles for any number of
//! entries, without vectors. Comparing and shifting 64 lanes took 50 cycles, because each look-up
//! waits for the stores of the one before.

use machine::{Replacement, SIZES, Tlb};

use super::{Arrays, EMPTY, Placement, Vectors};

/// End of a bucket's chain.
const NONE: u8 = u8::MAX;

/// Up to `N` entries in `B` buckets. Both are powers of two, and `N` is below 255. `B` is much larger than `N`, so most
/// buckets have at most one entry.
#[derive(Debug, Clone)]
pub(crate) struct Full<const N: usize, const B: usize> {
    ways: u8,
    /// The most recently used entry. The entry before it in the circle is the least recently used.
    head: u8,
    tags: [u32; N],
    /// The circle of all entries in the order of use. Free entries are just before the head.
    next: [u8; N],
    prev: [u8; N],
    /// For each entry, its bucket and the next entry in this bucket.
    home: [u16; N],
    chain: [u8; N],
    bucket: [u8; B],
}

impl<const N: usize, const B: usize> Full<N, B> {
    /// Makes an empty array of `ways` entries; `None` if it needs more than `N`.
    pub(super) fn with_ways(ways: usize) -> Option<Self> {
        const { assert!(N.is_power_of_two() && N < NONE as usize && B.is_power_of_two()) };
        if ways == 0 || ways > N {
            return None;
        }
        let mut full = Self {
            ways: ways as u8,
            head: 0,
            tags: [EMPTY; N],
            next: [0; N],
            prev: [0; N],
            home: [0; N],
            chain: [NONE; N],
            bucket: [NONE; B],
        };
        full.flush();
        Some(full)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tags[Self::at(self.head)] == EMPTY
    }

    /// Converts an entry to an index. The mask shows the compiler that the index is below `N`.
    #[inline(always)]
    fn at(entry: u8) -> usize {
        usize::from(entry) & (N - 1)
    }

    /// Fibonacci hashing: the top bits of the product spread adjacent tags evenly.
    #[inline(always)]
    fn hash(tag: u32) -> usize {
        (tag.wrapping_mul(0x9e37_79b9) >> (u32::BITS - B.trailing_zeros())) as usize & (B - 1)
    }

    /// Looks `tag` up; returns whether it was found. Enters a missing tag. `tag` then is the most
    /// recently used.
    #[inline(always)]
    pub(super) fn touch_tag(&mut self, tag: u32) -> bool {
        let bucket = Self::hash(tag);
        let mut entry = self.bucket[bucket];
        while entry != NONE {
            if self.tags[Self::at(entry)] == tag {
                if entry != self.head {
                    self.unlink(entry);
                    self.link_before(entry, self.head);
                    self.head = entry;
                }
                return true;
            }
            entry = self.chain[Self::at(entry)];
        }
        // Evict the least recently used entry, which is before the head, and make it the head.
        let entry = self.prev[Self::at(self.head)];
        self.head = entry;
        self.leave_bucket(entry);
        let e = Self::at(entry);
        self.tags[e] = tag;
        self.home[e] = bucket as u16;
        self.chain[e] = self.bucket[bucket];
        self.bucket[bucket] = entry;
        false
    }

    #[inline(always)]
    fn unlink(&mut self, entry: u8) {
        let (next, prev) = (self.next[Self::at(entry)], self.prev[Self::at(entry)]);
        self.next[Self::at(prev)] = next;
        self.prev[Self::at(next)] = prev;
    }

    #[inline(always)]
    fn link_before(&mut self, entry: u8, next: u8) {
        let prev = self.prev[Self::at(next)];
        self.next[Self::at(prev)] = entry;
        self.prev[Self::at(entry)] = prev;
        self.next[Self::at(entry)] = next;
        self.prev[Self::at(next)] = entry;
    }

    fn drop_entry(&mut self, entry: u8) {
        self.leave_bucket(entry);
        self.tags[Self::at(entry)] = EMPTY;
        self.chain[Self::at(entry)] = NONE;
        // Reuse this entry next: move it before the head, or if it is the head, move the head past
        // it.
        if entry == self.head {
            self.head = self.next[Self::at(entry)];
        } else {
            self.unlink(entry);
            self.link_before(entry, self.head);
        }
    }

    #[inline(always)]
    fn leave_bucket(&mut self, entry: u8) {
        let home = usize::from(self.home[Self::at(entry)]) & (B - 1);
        let after = self.chain[Self::at(entry)];
        let mut other = self.bucket[home];
        if other == entry {
            self.bucket[home] = after;
            return;
        }
        // The search may fail, because a free entry is in no bucket.
        while other != NONE {
            let following = self.chain[Self::at(other)];
            if following == entry {
                self.chain[Self::at(other)] = after;
                return;
            }
            other = following;
        }
    }
}

impl<const N: usize, const B: usize> Arrays for Full<N, B> {
    /// Accepts only a level with one fully associative LRU array.
    fn new(level: &[Tlb]) -> Option<(Self, [Placement; SIZES])> {
        let [tlb] = level else { return None };
        if tlb.array.sets() != 1 || tlb.replacement != Replacement::Lru {
            return None;
        }
        let full = Self::with_ways(usize::from(tlb.array.ways))?;
        Some((full, [Placement::default(); SIZES]))
    }

    #[inline(always)]
    fn touch<V: Vectors>(&mut self, _: V, _: &Placement, _: u32, tag: u32) -> bool {
        self.touch_tag(tag)
    }

    fn drop_tag(&mut self, _: &Placement, _: u32, tag: u32) {
        let mut entry = self.bucket[Self::hash(tag)];
        while entry != NONE {
            if self.tags[Self::at(entry)] == tag {
                return self.drop_entry(entry);
            }
            entry = self.chain[Self::at(entry)];
        }
    }

    #[inline(always)]
    fn drop_matching(&mut self, pairs: &[(u32, u32)]) {
        for entry in 0..self.ways {
            let tag = self.tags[Self::at(entry)];
            if tag != EMPTY && pairs.iter().any(|(bits, value)| tag & bits == *value) {
                self.drop_entry(entry);
            }
        }
    }

    fn flush(&mut self) {
        self.head = 0;
        self.tags.fill(EMPTY);
        self.chain.fill(NONE);
        self.bucket.fill(NONE);
        for entry in 0..self.ways {
            let e = Self::at(entry);
            self.next[e] = if entry + 1 == self.ways { 0 } else { entry + 1 };
            self.prev[e] = if entry == 0 { self.ways - 1 } else { entry - 1 };
        }
    }
}
