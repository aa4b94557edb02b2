//! `btree`: the lookups of `workload::btree`. The path of a lookup depends only on the key's number, because every key
//! lies in its own gap. So no tree is built.

use trace::{Access, Block};
use workload::btree::{BLOCK as KEYS, Plan};
use workload::lookup::{Query, queries};

use super::Sweep;
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Emit, Figure, Setup, Tables};

/// Default size of the live kernel in bytes.
pub(super) const SIZE: u64 = 1 << 30;
/// Maximum of the live kernel's default number of lookups.
const MAX_LOOKUPS: u64 = 1 << 24;
/// Number of words per page.
const WORDS: u64 = PAGE / 8;
/// Number of key blocks per page.
const BLOCKS: u64 = WORDS / KEYS as u64;

/// The remaining queries of each thread. Threads take turns.
pub(super) type Queries = Vec<Box<dyn Iterator<Item = Query> + Send>>;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let settings = setup.settings(setup.size_or(SIZE)?, threads)?;
    let plan = Plan::new(&settings);
    let (weight, operations, queries) = lookups(setup, plan.keys, threads);
    let mut space = Space::of(setup);
    let layers = plan.layers().into_iter().map(|blocks| blocks * KEYS as u64 * 8);
    let sizes = layers.chain([plan.keys * 8]).collect::<Vec<_>>();
    let areas = sizes.iter().map(|&bytes| space.anonymous(bytes)).collect::<Vec<_>>();
    let (values, layers) = areas.split_last().expect("the values have one");

    let mut program = Program::new(setup);
    program.phase("setup").pace(setup.pace(tables.btree.setup, 1));
    for (&area, bytes) in areas.iter().zip(sizes) {
        program.map(area).step(Sweep::first(area, bytes, 8));
    }
    program.phase("run").pace(setup.sampled(tables.btree.run, threads, weight)).step(Lookups {
        plan,
        layers: layers.to_vec(),
        values: *values,
        queries,
        turn: 0,
    });
    let figure = Figure::Rate { unit: "lookups/s", operations };
    program.exit(setup, threads, figure, Extent::new(&areas))
}

/// Returns the weight, the number of the program's lookups, and the simulated queries that stand
/// for them.
pub(super) fn lookups(setup: &Setup, keys: u64, threads: u16) -> (u32, u64, Queries) {
    let operations = setup.operations.unwrap_or(keys.min(MAX_LOOKUPS)).max(threads.into());
    // The weight is at most the number of lookups per thread.
    let most = (operations / u64::from(threads)).min(u64::from(u32::MAX)) as u32;
    let weight = setup.weight.unwrap_or(1).min(most);
    let made = operations / u64::from(weight);
    let threads = usize::from(threads);
    let one = |thread| Box::new(queries(keys, made, setup.seed, thread, threads)) as Box<_>;
    (weight, operations, (0..threads).map(one).collect())
}

/// Returns the query of the thread whose turn is next.
pub(super) fn next(queries: &mut Queries, turn: &mut usize) -> Option<Query> {
    while !queries.is_empty() {
        if *turn >= queries.len() {
            *turn = 0;
        }
        if let Some(query) = queries[*turn].next() {
            *turn += 1;
            return Some(query);
        }
        drop(queries.remove(*turn));
    }
    None
}

pub(super) fn remaining(queries: &Queries) -> u64 {
    queries.iter().map(|queries| queries.size_hint().0 as u64).sum()
}

struct Lookups {
    plan: Plan,
    layers: Vec<Area>,
    values: Area,
    queries: Queries,
    turn: usize,
}

impl Lookups {
    /// Returns the index of the leaf where the search for a query's key ends, and whether the key
    /// is present.
    fn place(&self, query: Query) -> (u64, bool) {
        if query.present {
            return (query.number, true);
        }
        let key = self.plan.absent_key(query.number);
        let above = key > self.plan.key(query.number);
        (if above { query.number } else { query.number.saturating_sub(1) }, false)
    }
}

impl Step for Lookups {
    fn fill(&mut self, block: &mut Block) -> bool {
        if block.has_counts() {
            return true;
        }
        while !block.is_full() {
            let Some(query) = next(&mut self.queries, &mut self.turn) else { return false };
            let (place, found) = self.place(query);
            for (number, layer) in self.layers.iter().enumerate().rev() {
                let read = place >> (KEYS.ilog2() * (number as u32 + 1));
                block.access(Access::read(layer.page(read / BLOCKS)));
            }
            if found {
                block.access(Access::read(self.values.page(place / WORDS)));
            }
        }
        true
    }

    fn records(&self) -> Option<u64> {
        // One read per layer, and one read of the value for the 3 of 4 keys that are present.
        Some(remaining(&self.queries) * (self.layers.len() as u64 * 4 + 3) / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::btree::Tree;
    use workload::lookup::Index;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn paths_are_those_of_the_live_tree(blocks in 1u64..3000, seed: u64) {
            let plan = Plan { keys: blocks * KEYS as u64, seed };
            let tree = Tree::build(&plan).unwrap();
            let mut space = Space::new(0);
            let layers = plan.layers().iter().map(|n| space.anonymous(n * 128)).collect::<Vec<_>>();
            let values = space.anonymous(plan.keys * 8);
            let made = queries(plan.keys, 300, seed, 0, 1).collect::<Vec<_>>();
            let mut naive = Vec::new();
            for query in &made {
                let key = if query.present { tree.present(query.number) } else { tree.absent(query.number) };
                let place = tree.descend(key, |layer, block| {
                    naive.push(Access::read(layers[layer].page(block as u64 * 128 / PAGE)));
                });
                if tree.get(key).is_some() {
                    naive.push(Access::read(values.page(place as u64 * 8 / PAGE)));
                }
            }
            let queries: Queries = vec![Box::new(made.into_iter())];
            let mut lookups = Lookups { plan, layers, values, queries, turn: 0 };
            let mut block = Block::default();
            prop_assert!(!lookups.fill(&mut block));
            prop_assert_eq!(block.accesses, naive);
        }
    }
}
