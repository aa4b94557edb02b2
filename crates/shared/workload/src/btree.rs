//! `btree`: lookups in a static B+-tree kept in arrays.
//!
//! The leaves are the sorted keys. Each layer above holds the first key of every block of 16 keys in the layer below,
//! so a node's position determines its children and no pointers are stored. A lookup reads one block of two cache lines
//! per layer and then the value, which lies in a separate array: the last two or three of these reads are far apart.
//! Rejected: `std::collections::BTreeMap`, whose insertion aborts when out of memory.

use crate::lookup::{self, Index, value};
use crate::memory::Zeroed;
use crate::outcome::Run;
use crate::rng::mix;
use crate::{Settings, Workload, WorkloadError};

/// Number of keys in a block.
pub const BLOCK: usize = 16;
/// Mean number of cache lines per block that a lookup reads: the first comparison is in the second of the block's two
/// lines, and half of the lookups continue in the first line.
pub const LINES_PER_BLOCK: f64 = 1.5;
/// Each key is drawn from its own gap, so keys are generated in order and absent keys are known.
const GAP_BITS: u32 = 20;

type Block = [u64; BLOCK];

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of keys in the tree; a multiple of [`BLOCK`].
    pub keys: u64,
    /// The seed.
    pub seed: u64,
}

impl Plan {
    /// Applies the defaults: as many keys as fit in the given size.
    pub fn new(settings: &Settings) -> Self {
        let block = BLOCK as u64;
        // 8 bytes of key, 8 of value, and 8/15 of the layers above for each key.
        let fit = (u128::from(settings.size.bytes()) * 15 / 248) as u64;
        let mut plan = Self { keys: fit / block * block, seed: settings.seed };
        while plan.footprint() > settings.size.bytes() && plan.keys > block {
            plan.keys -= block; // the layers' last blocks are padded
        }
        plan
    }

    /// Number of blocks in each layer, from the leaves up to the root (one block).
    pub fn layers(&self) -> Vec<u64> {
        let mut layers = vec![self.keys / BLOCK as u64];
        while let Some(&below) = layers.last().filter(|&&blocks| blocks > 1) {
            layers.push(below.div_ceil(BLOCK as u64));
        }
        layers
    }

    pub(crate) fn footprint(&self) -> u64 {
        let blocks = self.layers().iter().sum::<u64>() + self.keys / BLOCK as u64;
        blocks.saturating_mul(size_of::<Block>() as u64)
    }

    /// Returns key `number`; keys ascend with their numbers.
    #[inline]
    pub fn key(&self, number: u64) -> u64 {
        number << GAP_BITS | mix(self.seed ^ number) & ((1 << GAP_BITS) - 1)
    }

    /// Returns an absent key, in the gap of key `number`.
    #[inline]
    pub fn absent_key(&self, number: u64) -> u64 {
        self.key(number) ^ 1
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    lookup::run(Workload::Btree, settings, plan.footprint(), || Tree::build(&plan))
}

/// The tree.
#[derive(Debug)]
pub struct Tree {
    plan: Plan,
    /// The layers from the leaves up. Places beyond a layer's end hold the maximum key.
    layers: Vec<Zeroed<Block>>,
    values: Zeroed<u64>,
}

impl Tree {
    /// Builds the tree of a plan.
    pub fn build(plan: &Plan) -> Result<Self, WorkloadError> {
        let mut layers = Vec::new();
        for blocks in plan.layers() {
            let mut layer = Zeroed::<Block>::new("the btree's keys", blocks as usize)?;
            let stride = (BLOCK as u64).pow(layers.len() as u32);
            for (place, key) in layer.as_flattened_mut().iter_mut().enumerate() {
                let number = place as u64 * stride;
                *key = if number < plan.keys { plan.key(number) } else { u64::MAX };
            }
            layers.push(layer);
        }
        let mut values = Zeroed::<u64>::new("the btree's values", plan.keys as usize)?;
        for (place, slot) in values.iter_mut().enumerate() {
            *slot = value(plan.key(place as u64));
        }
        Ok(Self { plan: *plan, layers, values })
    }

    /// Returns the index in the leaves of the largest key that is at most `key`. Calls `visit(layer, block)` for each
    /// block that it reads, from the root down to the leaves (layer 0).
    #[inline]
    pub fn descend(&self, key: u64, mut visit: impl FnMut(usize, usize)) -> usize {
        self.layers.iter().enumerate().rev().fold(0, |block, (number, layer)| {
            visit(number, block);
            // Branchless bisection: no misprediction, so the next lookup can start while this one waits. Counting all
            // 16 keys took 1.8 times as long, because SSE2 has no comparison of 64-bit numbers.
            let halve = |place, step| place + step * usize::from(layer[block][place + step] <= key);
            block * BLOCK + [8, 4, 2, 1].into_iter().fold(0, halve)
        })
    }
}

impl Index for Tree {
    fn keys(&self) -> u64 {
        self.plan.keys
    }
    #[inline]
    fn present(&self, number: u64) -> u64 {
        self.plan.key(number)
    }
    #[inline]
    fn absent(&self, number: u64) -> u64 {
        self.plan.absent_key(number)
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let place = self.descend(key, |_, _| ());
        (self.layers[0].as_flattened()[place] == key).then(|| self.values[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn finds_what_a_btreemap_finds(blocks in 1u64..600, seed: u64, keys: [u64; 32]) {
            let plan = Plan { keys: blocks * BLOCK as u64, seed };
            let tree = Tree::build(&plan).unwrap();
            let map = (0..plan.keys).map(|n| (tree.present(n), value(tree.present(n))));
            let map = map.collect::<BTreeMap<_, _>>();
            prop_assert_eq!(map.len() as u64, plan.keys);
            for number in 0..plan.keys {
                let (present, absent) = (tree.present(number), tree.absent(number));
                prop_assert_eq!(tree.get(present), map.get(&present).copied());
                prop_assert_eq!(tree.get(absent), None);
            }
            let range = plan.keys << GAP_BITS;
            for key in keys.into_iter().chain(keys.map(|k| k % range)).chain([0, u64::MAX - 1]) {
                prop_assert_eq!(tree.get(key), map.get(&key).copied());
            }
        }
    }

    #[test]
    fn a_descent_reads_one_block_per_layer() {
        let tree = Tree::build(&Plan { keys: 100 * BLOCK as u64, seed: 1 }).unwrap();
        let mut path = Vec::new();
        let place = tree.descend(tree.present(777), |layer, block| path.push((layer, block)));
        assert_eq!((place, path), (777, vec![(2, 0), (1, 3), (0, 48)]));
    }

    #[test]
    fn corruption_fails_the_check() {
        let settings =
            &Settings { size: units::ByteSize::kib(64), ..Settings::new(Workload::Btree) };
        let fails = |corrupt: fn(&mut Tree)| {
            let mut tree = Tree::build(&Plan::new(settings)).unwrap();
            corrupt(&mut tree);
            let (found, _) = lookup::look_up(&tree, settings, 50_000).unwrap();
            lookup::check(Workload::Btree, &tree, settings, 50_000, found).is_err()
        };
        assert!(!fails(|_| ()));
        assert!(fails(|tree| tree.values[1000] ^= 1));
        assert!(fails(|tree| tree.layers[0][7][3] += 1));
        assert!(fails(|tree| tree.layers[1][2][1] = 0));
    }

    #[test]
    fn fills_the_size() {
        for size in [64 << 10, 1 << 20, 1 << 30, 7 << 33, u64::MAX >> 8] {
            let settings =
                Settings { size: units::ByteSize(size), ..Settings::new(Workload::Btree) };
            let footprint = Plan::new(&settings).footprint();
            assert!(footprint <= size && footprint as f64 > 0.95 * size as f64, "{size}");
        }
    }
}
