//! `gups`: the updates of `workload::gups`. An update reads and writes one word; the stream has one
//! write for it.

use trace::{Access, BLOCK, Block};
use workload::gups::{Plan, STRIPE, Updates};
use workload::memory::shares;

use super::{Sweep, bytes};
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, Space};
use crate::{Emit, Figure, Setup, Tables};

/// The published run: `gups 30 4194304 1024` is 2^30 words and 2^32 updates (docs/sources/policies.md 4.1).
pub(super) const SIZE: u64 = 8 << 30;
pub(super) const UPDATES: u64 = 4 << 30;
/// Weight: one of 64 updates is simulated, which is still 16 per page of the table.
pub(super) const WEIGHT: u32 = 64;
/// Number of updates of a thread per turn: the batch size of the live kernel.
const TURN: usize = 128;
/// Number of words per page.
const WORDS: u64 = 512;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let size = setup.size_or(SIZE)?;
    let operations = setup.operations.unwrap_or(UPDATES);
    // The weight is at most the number of updates per thread.
    let most = (operations / u64::from(threads)).clamp(1, u64::from(u32::MAX)) as u32;
    let weight = setup.weight.unwrap_or(WEIGHT).min(most);
    let mut plan = Plan::new(&setup.settings(size, threads)?);
    plan.updates = (operations / u64::from(weight)).max(plan.threads);
    let mut space = Space::of(setup);
    let table = space.anonymous(plan.words * 8);
    let fill = shares(plan.words as usize, threads.into(), STRIPE as usize);

    let mut program = Program::new(setup);
    program
        .map(table)
        .phase("setup")
        .pace(setup.pace(tables.gups.setup, threads))
        .step(Sweep::write(table, fill.into_iter().map(|words| [bytes(words, 8)]), 8))
        .phase("run")
        .pace(setup.sampled(tables.gups.run, threads, weight))
        .step(Random::new(&plan, table));
    let figure = Figure::Rate { unit: "updates/s", operations };
    program.exit(setup, threads, figure, Extent::new(&[table]))
}

/// The updates of all threads, which take turns.
struct Random {
    threads: Vec<Updates>,
    updates: u64,
    table: Area,
    turn: usize,
}

impl Random {
    fn new(plan: &Plan, table: Area) -> Self {
        let threads = (0..plan.threads).map(|thread| plan.updates(thread)).collect();
        Self { threads, updates: plan.updates, table, turn: 0 }
    }
}

impl Step for Random {
    fn fill(&mut self, block: &mut Block) -> bool {
        if block.has_counts() {
            return true; // a block without counts is faster to read
        }
        while block.accesses.len() < BLOCK {
            if self.turn == self.threads.len() {
                self.turn = 0;
            }
            let before = block.accesses.len();
            let first = self.table.first;
            let updates = self.threads[self.turn].by_ref().take(TURN);
            // Do not check bounds: the plan's words are in the table (tested).
            let access = |(word, _)| Access(Access::WRITE | (first + (word / WORDS) as u32));
            block.accesses.extend(updates.map(access));
            // The threads' shares differ by at most one update, so the first thread that finishes ends the round.
            if block.accesses.len() - before < TURN {
                let turn = self.turn;
                self.threads.remove(turn);
                if self.threads.is_empty() {
                    return false;
                }
                continue;
            }
            self.turn += 1;
        }
        true
    }

    fn records(&self) -> Option<u64> {
        Some(self.updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Compares with the live loop, with threads that take turns of one batch.
        #[test]
        fn updates_are_those_of_the_live_kernel(
            stripes in 8u64..4000, updates in 8u64..60_000, threads in 1u64..6, seed: u64,
        ) {
            let plan = Plan { words: stripes * STRIPE, updates, threads, seed };
            let table = Space::new(3).anonymous(plan.words * 8);
            let own = (0..threads).map(|thread| plan.updates(thread).collect::<Vec<_>>());
            let own = own.collect::<Vec<_>>();
            let turns = own.iter().map(|updates| updates.len().div_ceil(TURN)).max().unwrap();
            let mut naive = Vec::new();
            for turn in 0..turns {
                for updates in &own {
                    let drawn = updates.iter().skip(turn * TURN).take(TURN);
                    naive.extend(drawn.map(|(word, _)| Access::write(table.page(word * 8 / 4096))));
                }
            }
            let mut random = Random::new(&plan, table);
            let (mut made, mut block) = (Vec::new(), Block::default());
            loop {
                block.clear();
                let more = random.fill(&mut block);
                made.extend_from_slice(&block.accesses);
                if !more { break }
            }
            prop_assert_eq!(made, naive);
        }
    }
}
