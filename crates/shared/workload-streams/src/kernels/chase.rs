//! `chase`: the links and walks of `workload::chase`. Successors are stored as 32-bit numbers, which take a sixteenth
//! of the simulated memory.

use std::sync::{Arc, OnceLock};

use trace::{Access, BLOCK, Block};
use workload::chase::{NODE, Plan, swaps};

use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Emit, Figure, Setup, Tables};

use super::Sweep;

/// Default size of the live kernel in bytes.
pub(super) const SIZE: u64 = 1 << 30;
const NODES: u64 = PAGE / NODE;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let plan = Plan::new(&setup.settings(setup.size_or(SIZE)?, threads)?);
    let weight = setup.weight.unwrap_or(1);
    let loads = (plan.loads / u64::from(weight)).max(1);
    let too_many = |_| setup.host(format!("{} nodes", plan.nodes));
    let count = u32::try_from(plan.nodes).map_err(too_many)?;
    let mut next = Vec::new();
    next.try_reserve_exact(count as usize).map_err(|error| setup.host(error))?;
    let area = Space::of(setup).anonymous(plan.nodes * NODE);

    let linked = Arc::new(OnceLock::new());
    let swaps = Box::new(swaps(plan.nodes, plan.seed));
    let here = (0..plan.threads).map(|thread| plan.start(thread) as u32).collect();
    let mut program = Program::new(setup);
    program
        .map(area)
        .phase("setup")
        .pace(setup.pace(tables.chase.setup, 1))
        .step(Sweep::first(area, u64::from(area.pages) * PAGE, NODE))
        .step(Link { area, count, next, swaps, linked: linked.clone() })
        .phase("run")
        .pace(setup.sampled(tables.chase.run, threads, weight))
        .step(Walk { area, linked, here, left: loads });
    let figure = Figure::Rate { unit: "loads/s", operations: plan.loads * plan.threads };
    program.exit(setup, threads, figure, Extent::new(&[area]))
}

/// Links the nodes by Sattolo's swaps, each of which writes two nodes.
struct Link {
    area: Area,
    count: u32,
    next: Vec<u32>,
    swaps: Box<dyn Iterator<Item = (u64, u64)> + Send>,
    linked: Arc<OnceLock<Vec<u32>>>,
}

impl Step for Link {
    fn fill(&mut self, block: &mut Block) -> bool {
        if block.has_counts() {
            return true;
        }
        if self.next.is_empty() {
            self.next.extend(0..self.count);
        }
        while !block.is_full() {
            let Some((i, j)) = self.swaps.next() else {
                let _ = self.linked.set(std::mem::take(&mut self.next));
                return false;
            };
            self.next.swap(i as usize, j as usize);
            block.access(Access::write(self.area.page(j / NODES)));
            block.access(Access::write(self.area.page(i / NODES)));
        }
        true
    }

    fn records(&self) -> Option<u64> {
        // Two writes per swap, and one swap for each node but one.
        Some((u64::from(self.count) * 2).saturating_sub(2))
    }
}

/// The walks of all threads, which take turns of one load.
struct Walk {
    area: Area,
    linked: Arc<OnceLock<Vec<u32>>>,
    here: Vec<u32>,
    left: u64,
}

impl Step for Walk {
    fn fill(&mut self, block: &mut Block) -> bool {
        let Some(next) = self.linked.get() else { return false };
        while self.left > 0 && block.accesses.len() < BLOCK {
            self.left -= 1;
            for here in &mut self.here {
                block.access(Access::read(self.area.page(u64::from(*here) / NODES)));
                *here = next[*here as usize];
            }
        }
        self.left > 0
    }

    fn records(&self) -> Option<u64> {
        Some(self.left * self.here.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use workload::rng::{SplitMix64, below};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Links the nodes by Sattolo's shuffle, as the live kernel does, and walks the links.
        #[test]
        fn walks_are_those_of_the_live_kernel(count in 2u64..5000, seed: u64, threads in 1u64..4) {
            let plan = Plan { nodes: count, loads: count + 7, threads, seed };
            let area = Space::new(0).anonymous(count * NODE);
            let mut nodes = (0..count).collect::<Vec<_>>();
            let mut rng = SplitMix64::new(seed);
            let (mut naive, mut made, mut block) = (Vec::new(), Vec::new(), Block::default());
            for i in (1..count).rev() {
                let j = below(rng.draw(), i);
                nodes.swap(i as usize, j as usize);
                naive.extend([j, i].map(|node| Access::write(area.page(node * NODE / PAGE))));
            }
            let mut here = (0..threads).map(|thread| plan.start(thread)).collect::<Vec<_>>();
            for _ in 0..plan.loads {
                for here in &mut here {
                    naive.push(Access::read(area.page(*here * NODE / PAGE)));
                    *here = nodes[*here as usize];
                }
            }
            let linked = Arc::new(OnceLock::new());
            let swaps = Box::new(swaps(count, seed));
            let here = (0..threads).map(|thread| plan.start(thread) as u32).collect();
            let mut steps: [Box<dyn Step>; 2] = [
                Box::new(Link { area, count: count as u32, next: Vec::new(), swaps, linked: linked.clone() }),
                Box::new(Walk { area, linked, here, left: plan.loads }),
            ];
            for step in &mut steps {
                loop {
                    block.clear();
                    let more = step.fill(&mut block);
                    made.extend_from_slice(&block.accesses);
                    if !more { break }
                }
            }
            prop_assert_eq!(made, naive);
        }
    }
}
