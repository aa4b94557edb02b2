//! `chase`: dependent loads along one cycle through every cache line.
//!
//! Node `i` is 64 bytes whose first word names the next node. Sattolo's shuffle (1986), done in place, links all nodes
//! in one random cycle. So prefetchers do not help, loads do not overlap, and the time per load is the latency of
//! memory plus address translation. Each thread walks from its own start, by default once around the cycle.
//!
//! The walk verifies itself: it sums the nodes it visits and counts its returns to the start. A walk of `n` loads that
//! returns exactly once, at its end, has visited all `n` nodes. The sum and the count are off the dependent path and
//! cost no time.

use std::time::Instant;

use crate::memory::Zeroed;
use crate::outcome::{Details, Run};
use crate::rng::{SplitMix64, below};
use crate::team::{self, Region};
use crate::{Settings, Workload, WorkloadError};

/// Number of bytes in a node: a cache line of x86-64 and most Arm CPUs.
pub const NODE: u64 = 64;

type Node = [u64; NODE as usize / 8];

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of nodes in the cycle.
    pub nodes: u64,
    /// Number of loads of each thread; by default one load per node.
    pub loads: u64,
    /// Number of threads.
    pub threads: u64,
    /// The seed.
    pub seed: u64,
}

impl Plan {
    /// Applies the defaults.
    pub fn new(settings: &Settings) -> Self {
        let nodes = settings.size.bytes() / NODE;
        Self {
            nodes,
            loads: settings.options.operations.unwrap_or(nodes),
            threads: settings.threads.get() as u64,
            seed: settings.seed,
        }
    }

    pub(crate) fn footprint(&self) -> u64 {
        self.nodes * NODE
    }

    /// Returns the node at which `thread` starts. Starts are far apart in memory, so they are at random places of the
    /// cycle.
    pub fn start(&self, thread: u64) -> u64 {
        (u128::from(self.nodes) * u128::from(thread) / u128::from(self.threads)) as u64
    }
}

/// Returns Sattolo's shuffle as a sequence of swaps. Applied in order to `0, 1, ..., nodes - 1`, the swaps give the
/// successors of a single cycle through all nodes.
pub fn swaps(nodes: u64, seed: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut rng = SplitMix64::new(seed);
    (1..nodes).rev().map(move |i| (i, below(rng.draw(), i)))
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let setup = Instant::now();
    let mut nodes = Zeroed::<Node>::new("the chase nodes", plan.nodes as usize)?;
    link(&mut nodes, plan.seed);
    let setup_seconds = setup.elapsed().as_secs_f64();
    let (walks, region) = chase(&nodes, &plan)?;
    let verify = Instant::now();
    for walk in walks {
        check(&nodes, walk)?;
    }
    Ok(Run {
        footprint_bytes: plan.footprint(),
        setup_seconds,
        verify_seconds: verify.elapsed().as_secs_f64(),
        figure: region.seconds * 1e9 / plan.loads as f64,
        region,
        details: Details::Chase { nodes: plan.nodes, loads_per_thread: plan.loads },
    })
}

fn link(nodes: &mut [Node], seed: u64) {
    for (index, node) in nodes.iter_mut().enumerate() {
        node[0] = index as u64;
    }
    for (i, j) in swaps(nodes.len() as u64, seed) {
        let (low, high) = nodes.split_at_mut(i as usize);
        std::mem::swap(&mut low[j as usize][0], &mut high[0][0]);
    }
}

fn chase(nodes: &[Node], plan: &Plan) -> Result<(Vec<Walk>, Region), WorkloadError> {
    team::timed_numbers(plan.threads as usize, |thread| {
        Walk::at(plan.start(thread as u64)).on(nodes, plan.loads)
    })
}

#[derive(Debug, Clone, Copy)]
struct Walk {
    start: u64,
    here: u64,
    loads: u64,
    /// Sum of the visited nodes.
    sum: u64,
    /// Number of returns to `start`.
    returns: u64,
}

impl Walk {
    fn at(start: u64) -> Self {
        Self { start, here: start, loads: 0, sum: 0, returns: 0 }
    }

    /// Walks on for `loads` loads. Only the load of the next node is on the dependent path.
    fn on(mut self, nodes: &[Node], loads: u64) -> Self {
        for _ in 0..loads {
            self.here = nodes[self.here as usize][0];
            self.sum = self.sum.wrapping_add(self.here);
            self.returns += u64::from(self.here == self.start);
        }
        self.loads += loads;
        self
    }
}

/// Completes the current round, and checks that every round visited every node once.
fn check(nodes: &[Node], walk: Walk) -> Result<(), WorkloadError> {
    let count = nodes.len() as u64;
    let rounds = walk.loads.div_ceil(count);
    let walk = walk.on(nodes, rounds * count - walk.loads);
    let round = (u128::from(count) * u128::from(count - 1) / 2) as u64;
    let expected = (walk.start, rounds, rounds.wrapping_mul(round));
    if (walk.here, walk.returns, walk.sum) == expected {
        return Ok(());
    }
    Err(WorkloadError::Verification {
        workload: Workload::Chase,
        what: format!(
            "a walk of {rounds} round(s) of {count} nodes ended at node {} after {} return(s) with \
             checksum {}, not at node {} after {} with {}",
            walk.here, walk.returns, walk.sum, expected.0, expected.1, expected.2
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn linked(count: u64, seed: u64) -> Vec<Node> {
        let mut nodes = vec![Node::default(); count as usize];
        link(&mut nodes, seed);
        nodes
    }

    proptest! {
        #[test]
        fn is_one_cycle_through_all(count in 2u64..3000, seed: u64, threads in 1u64..5) {
            let nodes = linked(count, seed);
            let mut met = vec![false; count as usize];
            let mut here = 0;
            for _ in 0..count {
                prop_assert!(!std::mem::replace(&mut met[here as usize], true));
                here = nodes[here as usize][0];
            }
            prop_assert_eq!(here, 0);
            for loads in [1, count - 1, count, 3 * count + 1] {
                let plan = Plan { nodes: count, loads, threads, seed };
                for walk in chase(&nodes, &plan).unwrap().0 {
                    prop_assert!(check(&nodes, walk).is_ok());
                }
            }
        }

        #[test]
        fn two_cycles_or_a_lost_node_fail(
            count in 3u64..500, seed: u64, a: prop::sample::Index, b: prop::sample::Index,
        ) {
            let mut nodes = linked(count, seed);
            let (a, b) = (a.index(count as usize), b.index(count as usize));
            prop_assume!(a != b);
            let (next_a, next_b) = (nodes[a][0], nodes[b][0]);
            (nodes[a][0], nodes[b][0]) = (next_b, next_a); // splits the cycle in two
            prop_assert!(check(&nodes, Walk::at(0).on(&nodes, count)).is_err());
            (nodes[a][0], nodes[b][0]) = (next_a, next_a); // skips the part after b
            prop_assert!(check(&nodes, Walk::at(0).on(&nodes, count)).is_err());
        }
    }

    #[test]
    fn a_wrong_walk_fails_on_good_nodes() {
        let nodes = linked(100, 1);
        let good = Walk::at(0).on(&nodes, 50);
        assert!(check(&nodes, good).is_ok());
        assert!(check(&nodes, Walk { sum: good.sum + 1, ..good }).is_err());
        assert!(check(&nodes, Walk { loads: 49, ..good }).is_err());
    }
}
