//! `hashmap`: the insertions and lookups of `workload::hashmap`. Which key lies in which slot is kept
//! here as 32-bit numbers: a quarter of the simulated size.

use std::sync::{Arc, OnceLock};

use trace::{Access, Block, Event, Process};
use workload::hashmap::Plan;

use super::btree::{Queries, lookups, next};
use crate::workloads::program::{Program, Step};
use crate::workloads::space::{Area, PAGE, Space};
use crate::workloads::{Description, Emit, Figure, Setup, Stream, Tables, WorkloadError};

/// The live kernel's default.
const SIZE: u64 = 1 << 30;
/// Bytes in a slot, slots in a page.
const SLOT: u64 = 16;
const SLOTS: u64 = PAGE / SLOT;

pub(crate) fn build(
    setup: &Setup,
    tables: &Tables,
) -> Result<(Description, Stream), WorkloadError> {
    let threads = setup.threads_or(1);
    let plan = Plan::new(&setup.settings(setup.size_or(SIZE)?, threads)?);
    let (weight, operations, queries) = lookups(setup, plan.keys, threads);
    let host = |why: String| WorkloadError::Host { workload: setup.name(), why };
    u32::try_from(plan.keys).map_err(|_| host(format!("{} keys", plan.keys)))?;
    let mut holds = Vec::new();
    holds.try_reserve_exact(plan.slots as usize).map_err(|error| host(error.to_string()))?;
    let area = Space::new(setup.first_region).anonymous(plan.slots * SLOT);

    let built = Arc::new(OnceLock::new());
    let mut program = Program::default();
    program
        .events([Event::Spawn(Process(setup.first_process)), area.map()])
        .phase("setup")
        .events([Event::Pace(setup.pace(tables.hashmap.setup, 1))])
        .step(Insert { table: Slots { plan, area }, number: 0, holds, built: built.clone() })
        .phase("run")
        .events([Event::Pace(setup.sampled(tables.hashmap.run, threads, weight))])
        .step(Lookups { table: Slots { plan, area }, built, queries, turn: 0 })
        .events([Event::Exit(Process(setup.first_process))]);
    let description = Description {
        name: setup.name(),
        summary: setup.entry().summary,
        footprint_pages: area.pages.into(),
        superpages: area.regions(),
        threads,
        figure: Figure::Rate { unit: "lookups/s", operations },
        phases: vec!["setup", "run"],
        regions: area.regions() as u32,
    };
    Ok((description, program.stream()))
}

#[derive(Clone, Copy)]
struct Slots {
    plan: Plan,
    area: Area,
}

impl Slots {
    /// Reads the slots from a key's home on until `stop`; yields the slot where that was.
    #[inline]
    fn probe(&self, key: u64, block: &mut Block, stop: impl Fn(usize) -> bool) -> usize {
        let mut place = self.plan.home(key) as usize;
        let (mut page, mut count) = (place as u64 / SLOTS, 0);
        loop {
            let here = place as u64 / SLOTS;
            if here != page {
                block.run(Access::read(self.area.page(page)), count);
                (page, count) = (here, 0);
            }
            count += 1;
            if stop(place) {
                block.run(Access::read(self.area.page(page)), count);
                return place;
            }
            place += 1;
            if place as u64 == self.plan.slots {
                place = 0;
            }
        }
    }
}

struct Insert {
    table: Slots,
    number: u64,
    /// Number of the key in each slot, plus 1; 0: empty.
    holds: Vec<u32>,
    built: Arc<OnceLock<Vec<u32>>>,
}

impl Step for Insert {
    fn fill(&mut self, block: &mut Block) -> bool {
        self.holds.resize(self.table.plan.slots as usize, 0);
        while self.number < self.table.plan.keys {
            if block.is_full() {
                return true;
            }
            let key = self.table.plan.key(self.number);
            let place = self.table.probe(key, block, |place| self.holds[place] == 0);
            block.run(Access::write(self.table.area.page(place as u64 / SLOTS)), 2);
            self.number += 1;
            self.holds[place] = self.number as u32;
        }
        let _ = self.built.set(std::mem::take(&mut self.holds));
        false
    }
}

struct Lookups {
    table: Slots,
    built: Arc<OnceLock<Vec<u32>>>,
    queries: Queries,
    turn: usize,
}

impl Step for Lookups {
    fn fill(&mut self, block: &mut Block) -> bool {
        let Some(holds) = self.built.get() else { return false };
        while !block.is_full() {
            let Some(query) = next(&mut self.queries, &mut self.turn) else { return false };
            let (key, holder) = match query.present {
                true => (self.table.plan.key(query.number), query.number as u32 + 1),
                false => (self.table.plan.key(self.table.plan.keys + query.number), 0),
            };
            self.table.probe(key, block, |place| holds[place] == 0 || holds[place] == holder);
        }
        true
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
            let mut insert = Insert { table, number: 0, holds: Vec::new(), built: built.clone() };
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
