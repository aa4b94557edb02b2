//! `stream`: the passes of `workload::stream`, split into segments.
//!
//! A segment is a range of elements in which no array crosses a page. The live loop alternates between the arrays
//! within a segment; here each array's accesses form one run. At most three pages alternate, which every TLB holds, so
//! the number of misses is the same.

use std::ops::Range;

use trace::{Access, Block};
use workload::memory::shares;
use workload::stream::Plan;

use super::Sweep;
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Emit, Figure, Setup, Tables};

/// Default size of the live kernel in bytes.
pub(super) const SIZE: u64 = 1 << 30;
/// Number of elements per cache line. Threads' shares start at lines, as in the live kernel.
const LINE: usize = 8;
/// The arrays that each kernel reads, and the array it writes: copy, scale, add, triad.
pub(crate) const KERNELS: [(&[u64], u64); 4] = [(&[0], 2), (&[2], 1), (&[0, 1], 2), (&[1, 2], 0)];

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let mut plan = Plan::new(&setup.settings(setup.size_or(SIZE)?, threads)?);
    plan.iterations = setup.iterations.unwrap_or(plan.iterations);
    let mut space = Space::of(setup);
    let area = space.anonymous(plan.stride() * 2 + plan.elements * 8);
    let parts = parts(&plan);
    let array = |number: u64, part: &Range<u64>| {
        let start = number * plan.stride();
        start + part.start * 8..start + part.end * 8
    };
    let filled = parts.iter().map(|part| [0, 1, 2].map(|number| array(number, part)));

    let mut program = Program::new(setup);
    program
        .map(area)
        .phase("setup")
        .pace(setup.pace(setup.streamed(tables.stream.setup), threads))
        .step(Sweep::write(area, filled, 8))
        .phase("run")
        .pace(setup.pace(setup.streamed(tables.stream.run), threads));
    let stride = plan.stride();
    for _ in 0..plan.iterations {
        for kernel in KERNELS {
            program.step(Pass { area, stride, kernel, parts: parts.clone(), turn: 0 });
        }
    }
    // The four kernels access 2 + 2 + 3 + 3 arrays of 8-byte elements, as in the reference
    // implementation.
    let operations = plan.elements * 80 * u64::from(plan.iterations);
    let extent = Extent { pages: touched(&plan), ..Extent::new(&[area]) };
    program.exit(setup, threads, Figure::Rate { unit: "bytes/s", operations }, extent)
}

fn parts(plan: &Plan) -> Vec<Range<u64>> {
    let parts = shares(plan.elements as usize, plan.threads, LINE).into_iter();
    parts.map(|part| part.start as u64..part.end as u64).collect()
}

/// Number of pages that the arrays occupy, without gaps. Two arrays may share a page.
fn touched(plan: &Plan) -> u64 {
    let mut after = 0; // the page after the last one counted
    (0..3)
        .map(|array| {
            let start = (array * plan.stride() / PAGE).max(after);
            after = (array * plan.stride() + plan.elements * 8).div_ceil(PAGE);
            after - start
        })
        .sum()
}

/// One kernel of a pass, which ends at a barrier.
struct Pass {
    area: Area,
    stride: u64,
    kernel: (&'static [u64], u64),
    /// Remaining elements of each thread.
    parts: Vec<Range<u64>>,
    turn: usize,
}

impl Pass {
    /// Number of elements up to the next page boundary of any array.
    fn segment(&self, part: &Range<u64>) -> u64 {
        let (reads, writes) = self.kernel;
        let left = |array: &u64| {
            let byte = array * self.stride + part.start * 8;
            (PAGE - byte % PAGE) / 8
        };
        let nearest = reads.iter().chain([&writes]).map(left).min();
        nearest.unwrap_or(0).min(part.end - part.start)
    }
}

impl Step for Pass {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() {
            if self.turn == self.parts.len() {
                self.turn = 0;
                self.parts.retain(|part| !part.is_empty());
                if self.parts.is_empty() {
                    return false;
                }
            }
            let part = self.parts[self.turn].clone();
            let count = self.segment(&part);
            let at = |array: u64| self.area.page((array * self.stride + part.start * 8) / PAGE);
            let (reads, writes) = self.kernel;
            for &array in reads {
                block.run(Access::read(at(array)), count as u32);
            }
            block.run(Access::write(at(writes)), count as u32);
            self.parts[self.turn].start += count;
            self.turn += 1;
        }
        true
    }

    fn records(&self) -> Option<u64> {
        let (reads, writes) = self.kernel;
        let arrays = reads.iter().chain([&writes]);
        // Number of segments per page of elements: the number of distinct page offsets of the
        // arrays.
        let mut places: Vec<u64> = arrays.map(|array| array * self.stride % PAGE).collect();
        let touched = places.len() as u64;
        places.sort_unstable();
        places.dedup();
        let elements: u64 = self.parts.iter().map(|part| part.end - part.start).sum();
        Some((elements * 8).div_ceil(PAGE) * places.len() as u64 * touched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Compares with the live loops. In a segment the live loops' accesses are sorted by array.
        #[test]
        fn passes_are_those_of_the_live_loops(
            elements in 1u64..6000, offset in 0u64..3000, kernel in 0usize..4,
        ) {
            let plan = Plan { elements, iterations: 2, offset: offset * 8, threads: 1 };
            let area = Space::new(0).anonymous(plan.stride() * 2 + elements * 8);
            let (reads, writes) = KERNELS[kernel];
            let mut naive: Vec<(Access, u32)> = Vec::new();
            let mut before = Vec::new();
            for element in 0..elements {
                let page = |array: u64| area.page((array * plan.stride() + element * 8) / PAGE);
                let mut now = reads.iter().map(|&array| Access::read(page(array))).collect::<Vec<_>>();
                now.push(Access::write(page(writes)));
                if now == before {
                    let last = naive.len() - now.len();
                    naive[last..].iter_mut().for_each(|(_, count)| *count += 1);
                } else {
                    naive.extend(now.iter().map(|&access| (access, 1)));
                    before = now;
                }
            }
            let parts = parts(&plan);
            let mut pass = Pass { area, stride: plan.stride(), kernel: KERNELS[kernel], parts, turn: 0 };
            let mut block = Block::default();
            prop_assert!(!pass.fill(&mut block));
            let made = block.accesses.iter().copied().zip(block.counts.iter().copied());
            prop_assert_eq!(made.collect::<Vec<_>>(), naive);
        }
    }
}
