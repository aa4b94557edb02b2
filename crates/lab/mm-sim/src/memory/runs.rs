//! Aligned runs of free frames in a pageblock's bitmap: what the buddy allocator calls free blocks.
//!
//! A **maximal** run of 2^k frames is aligned, all free, and its buddy is not: exactly the blocks on
//! the lists of a buddy allocator that merges at once. Orders 0 to 5 lie within words; 6 to 8 are
//! runs of whole words, found by the same arithmetic on a byte that tells which words are full.

/// A bit for each frame of a pageblock, one where it is free.
pub(crate) type Map = [u64; 8];

/// The places at which an aligned run of 2^order bits can begin, by order.
const STARTS: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// Where maximal runs of order 0 to 5 begin in a word.
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

/// Which words are full, as a byte.
#[inline]
fn full(map: &Map) -> u64 {
    let mut full = 0;
    for (index, &word) in map.iter().enumerate() {
        full |= u64::from(word == u64::MAX) << index;
    }
    full
}

/// Whether it has a maximal run of this order, 0 to 8.
pub(crate) fn has(map: &Map, order: u8) -> bool {
    count(map, order) > 0
}

/// The order of the maximal run around `slot`, whose own aligned run of 2^order is free; 9 where all is.
#[inline]
pub(crate) fn order_of(map: &Map, slot: u32, order: u8) -> u8 {
    let mut found = order;
    if order < 6 {
        // Each larger run contains the smaller: as many orders are free as runs around the slot. No branch, since
        // what a random frame merges with cannot be foreseen.
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

/// Where its lowest maximal run of this order (0 to 8) begins. There must be one.
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

/// How many maximal runs of this order (0 to 8) it has.
pub(crate) fn count(map: &Map, order: u8) -> u32 {
    match order {
        0..6 => map.iter().map(|&word| maximal(word, order).count_ones()).sum(),
        _ => maximal(full(map), order - 6).count_ones(),
    }
}

/// Whether the 2^order frames from `slot` on, aligned, are all free.
#[inline]
pub(crate) fn is_free(map: &Map, slot: u32, order: u8) -> bool {
    let word = (slot >> 6) as usize;
    if order < 6 {
        let mask = mask(slot, order);
        return map[word] & mask == mask;
    }
    map[word..word + (1 << (order - 6))].iter().all(|&word| word == u64::MAX)
}

/// Whether none of them is free.
#[inline]
pub(crate) fn is_used(map: &Map, slot: u32, order: u8) -> bool {
    let word = (slot >> 6) as usize;
    if order < 6 {
        return map[word] & mask(slot, order) == 0;
    }
    map[word..word + (1 << (order - 6))].iter().all(|&word| word == 0)
}

/// Marks them free.
#[inline]
pub(crate) fn set(map: &mut Map, slot: u32, order: u8) {
    let word = (slot >> 6) as usize;
    if order < 6 {
        map[word] |= mask(slot, order);
    } else {
        map[word..word + (1 << (order - 6))].fill(u64::MAX);
    }
}

/// Marks them used.
#[inline]
pub(crate) fn clear(map: &mut Map, slot: u32, order: u8) {
    let word = (slot >> 6) as usize;
    if order < 6 {
        map[word] &= !mask(slot, order);
    } else {
        map[word..word + (1 << (order - 6))].fill(0);
    }
}

/// Marks `count` frames from `slot` on used, before which none is free.
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

/// The bits of 2^order frames (order 0 to 5) in their word.
#[inline]
const fn mask(slot: u32, order: u8) -> u64 {
    ((1 << (1 << order)) - 1) << (slot & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The textbook: a run is on the list of its order when it is free and its buddy is not.
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
