//! `hashmap`: the insertions and lookups of `workload::hashmap`.
//!
//! Stores only what determines the length of searches: one bit per slot (full or not), and for each key its distance
//! from its home slot. This takes a 24th of the simulated memory, and most of what is accessed stays in this machine's
//! cache.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use trace::{Access, Block};
use workload::hashmap::Plan;

use super::btree::{Queries, lookups, next, remaining};
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Emit, Figure, Setup, Tables};

/// Default size of the live kernel in bytes.
pub(super) const SIZE: u64 = 1 << 30;
/// Number of bytes per slot.
const SLOT: u64 = 16;
/// Number of slots per page.
const SLOTS: u64 = PAGE / SLOT;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let plan = Plan::new(&setup.settings(setup.size_or(SIZE)?, threads)?);
    let (weight, operations, queries) = lookups(setup, plan.keys, threads);
    let host = |error| setup.host::<std::collections::TryReserveError>(error);
    let mut found = Found::default();
    found.full.try_reserve_exact(plan.slots as usize / 64 + 1).map_err(host)?;
    found.away.try_reserve_exact(plan.keys as usize).map_err(host)?;
    let area = Space::of(setup).anonymous(plan.slots * SLOT);

    let built = Arc::new(OnceLock::new());
    let mut program = Program::new(setup);
    program
        .map(area)
        .phase("setup")
        .pace(setup.pace(tables.hashmap.setup, 1))
        .step(Insert { table: Slots { plan, area }, number: 0, found, built: built.clone() })
        .phase("run")
        .pace(setup.sampled(tables.hashmap.run, threads, weight))
        .step(Lookups { table: Slots { plan, area }, built, queries, turn: 0 });
    let figure = Figure::Rate { unit: "lookups/s", operations };
    program.exit(setup, threads, figure, Extent::new(&[area]))
}

#[derive(Clone, Copy)]
struct Slots {
    plan: Plan,
    area: Area,
}

impl Slots {
    /// Reads `count` slots, starting at a key's home; returns the last slot read.
    #[inline]
    fn probe(&self, home: u64, count: u64, block: &mut Block) -> u64 {
        let mut place = home;
        let mut left = count;
        loop {
            let end = ((place / SLOTS + 1) * SLOTS).min(self.plan.slots);
            let here = left.min(end - place);
            block.run(Access::read(self.area.page(place / SLOTS)), here as u32);
            left -= here;
            if left == 0 {
                return place + here - 1;
            }
            place = if end == self.plan.slots { 0 } else { end };
        }
    }
}

/// State that determines the length of searches.
#[derive(Default)]
struct Found {
    /// One bit per slot: whether it is full.
    full: Vec<u64>,
    /// Distance of each key from its home; 255 means 255 or more, see `far`.
    away: Vec<u8>,
    /// Distances that do not fit in a byte.
    far: BTreeMap<u32, u32>,
}

impl Found {
    /// Number of slots that a search from `home` reads until it finds an empty one.
    #[inline]
    fn to_empty(&self, home: u64, slots: u64) -> u64 {
        let mut place = home;
        let mut count = 1;
        while self.full[(place / 64) as usize] >> (place % 64) & 1 == 1 {
            place = if place + 1 == slots { 0 } else { place + 1 };
            count += 1;
        }
        count
    }

    fn distance(&self, number: u64) -> u64 {
        match self.away[number as usize] {
            u8::MAX => self.far[&(number as u32)].into(),
            near => near.into(),
        }
    }
}

struct Insert {
    table: Slots,
    number: u64,
    found: Found,
    built: Arc<OnceLock<Found>>,
}

impl Step for Insert {
    fn fill(&mut self, block: &mut Block) -> bool {
        let Plan { slots, keys, .. } = self.table.plan;
        self.found.full.resize(slots as usize / 64 + 1, 0);
        while self.number < keys {
            if block.is_full() {
                return true;
            }
            let home = self.table.plan.home(self.table.plan.key(self.number));
            let count = self.found.to_empty(home, slots);
            let place = self.table.probe(home, count, block);
            block.run(Access::write(self.table.area.page(place / SLOTS)), 2);
            self.found.full[(place / 64) as usize] |= 1 << (place % 64);
            self.found.away.push((count - 1).min(u8::MAX.into()) as u8);
            if count > u8::MAX.into() {
                self.found.far.insert(self.number as u32, (count - 1) as u32);
            }
            self.number += 1;
        }
        let _ = self.built.set(std::mem::take(&mut self.found));
        false
    }

    fn records(&self) -> Option<u64> {
        // One record for the search, which seldom leaves its page, and one for the entry.
        Some(self.table.plan.keys * 2)
    }
}

struct Lookups {
    table: Slots,
    built: Arc<OnceLock<Found>>,
    queries: Queries,
    turn: usize,
}

impl Step for Lookups {
    fn fill(&mut self, block: &mut Block) -> bool {
        let Some(found) = self.built.get() else { return false };
        let plan = self.table.plan;
        while !block.is_full() {
            let Some(query) = next(&mut self.queries, &mut self.turn) else { return false };
            if query.present {
                let home = plan.home(plan.key(query.number));
                self.table.probe(home, found.distance(query.number) + 1, block);
            } else {
                let home = plan.home(plan.key(plan.keys + query.number));
                self.table.probe(home, found.to_empty(home, plan.slots), block);
            }
        }
        true
    }

    fn records(&self) -> Option<u64> {
        Some(remaining(&self.queries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::hashmap::Table;
    use workload::lookup::{Index, queries};

    fn expanded(block: &Block) -> Vec<Access> {
        let counts = block.counts.iter();
        block.accesses.iter().zip(counts).flat_map(|(&a, &n)| vec![a; n as usize]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn probes_are_those_of_the_live_table(slots in 8u64..4000, seed: u64) {
            let plan = Plan { slots, keys: slots / 8 * 5, seed };
            let area = Space::new(0).anonymous(slots * SLOT);
            let built = Arc::new(OnceLock::new());
            let table = Slots { plan, area };
            let mut insert = Insert { table, number: 0, found: Found::default(), built: built.clone() };
            let mut block = Block::default();
            prop_assert!(!insert.fill(&mut block));
            let writes = block.accesses.iter().filter(|access| access.writes()).count() as u64;
            prop_assert_eq!(writes, plan.keys);

            let live = Table::build(&plan).unwrap();
            let made = queries(plan.keys, 300, seed, 0, 1).collect::<Vec<_>>();
            let mut naive = Vec::new();
            for query in &made {
                let key = if query.present { live.present(query.number) } else { live.absent(query.number) };
                live.probe(key, |place| naive.push(Access::read(area.page(place as u64 * SLOT / PAGE))));
            }
            let queries: Queries = vec![Box::new(made.into_iter())];
            let mut lookups = Lookups { table, built, queries, turn: 0 };
            let mut block = Block::default();
            prop_assert!(!lookups.fill(&mut block));
            prop_assert_eq!(expanded(&block), naive);
        }
    }
}
