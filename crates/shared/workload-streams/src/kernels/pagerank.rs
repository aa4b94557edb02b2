//! `pagerank`: the iterations of `workload::pagerank` over the live kernel's own rows. The rows are built on this
//! machine and need as much memory as the simulated program.
//!
//! Vertices are processed in groups of 64. In a group, each page of the sequential arrays (row ends, neighbours,
//! scores) is one run; then follow the contributions that the rows name, one by one. Every TLB holds the few pages of
//! the sequential arrays meanwhile. The construction of the rows is modelled, not replayed: one bucket after another is
//! filled and emptied, on average as often as in the live kernel.

use std::ops::Range;
use std::sync::Arc;

use trace::{Access, Block, SLOTS};
use workload::csr::Csr;
use workload::graph::Edges;
use workload::pagerank::Plan;

use super::Sweep;
use crate::emit::access;
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Description, Emit, Figure, Setup, Tables, WorkloadError};

/// Default size of the live kernel in bytes.
pub(super) const SIZE: u64 = 1 << 30;
/// Default number of iterations. The live kernel iterates until the scores converge, but the stream computes no scores.
/// Every iteration makes the same accesses.
pub(super) const ITERATIONS: u32 = 3;
const GROUP: usize = 64;
/// Maximum number of buckets in the live kernel's construction (`csr::BUCKETS`).
const BUCKETS: u64 = 256;

#[derive(Clone, Copy)]
struct Arrays {
    ends: Area,
    neighbours: Area,
    scores: Area,
    contributions: Area,
    waiting: Area,
}

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let threads = setup.threads_or(1);
    let plan = Plan::new(&setup.settings(setup.size_or(SIZE)?, threads)?);
    let iterations = setup.iterations.unwrap_or(ITERATIONS);
    // Use one thread: the rows do not depend on the number of threads, and the lab runs
    // single-threaded.
    let csr = Arc::new(Csr::build(&plan.edges, 1).map_err(|error| setup.host(error))?);
    let vertices = csr.vertices() as u64;
    let edges = csr.edges() as u64;
    let (arrays, extent) = layout(setup, &plan.edges, edges);
    let Arrays { ends, neighbours, scores, contributions, waiting } = arrays;
    let rows = edges * 4;

    let mut program = Program::new(setup);
    program
        .phase("setup")
        .events([ends, neighbours, waiting].map(|area| area.map()))
        .pace(setup.pace(tables.pagerank.setup, threads))
        .step(Place::new(&csr, arrays, false))
        .step(Place::new(&csr, arrays, true))
        .events([waiting.unmap()])
        .step(Sweep::first(neighbours, rows, 4)) // sorts each row
        .events([scores.map(), contributions.map()])
        .step(Sweep::first(scores, vertices * 4, 4))
        .step(Sweep::first(contributions, vertices * 4, 4))
        .phase("run")
        .pace(setup.pace(tables.pagerank.run, threads));
    let parts = csr.parts(threads.into());
    for _ in 0..iterations {
        for pull in [false, true] {
            program.step(Pass { csr: csr.clone(), arrays, pull, parts: parts.clone(), turn: 0 });
        }
    }
    program.exit(setup, threads, figure(setup, edges), extent)
}

/// Describes the kernel without building its graph, which would take long. So edges include self-loops, and the number
/// of records is unknown.
pub(crate) fn describe(setup: &Setup) -> Result<Description, WorkloadError> {
    let threads = setup.threads_or(1);
    let plan = Plan::new(&setup.settings(setup.size_or(SIZE)?, threads)?);
    // An edge is in the rows of both its ends.
    let edges = plan.edges.drawn * 2;
    let (_, extent) = layout(setup, &plan.edges, edges);
    Ok(Description {
        name: setup.name(),
        summary: setup.entry().summary,
        footprint_pages: extent.pages,
        superpages: extent.superpages,
        threads,
        figure: figure(setup, edges),
        phases: vec!["setup", "run"],
        regions: extent.regions as u32,
        records: None,
    })
}

fn figure(setup: &Setup, edges: u64) -> Figure {
    let iterations = setup.iterations.unwrap_or(ITERATIONS);
    Figure::Rate { unit: "edges/s", operations: edges * u64::from(iterations) }
}

/// The arrays of a graph with `edges` entries in its rows, and the memory that they take.
fn layout(setup: &Setup, graph: &Edges, edges: u64) -> (Arrays, Extent) {
    let vertices = graph.vertices();
    let mut space = Space::of(setup);
    let arrays = Arrays {
        ends: space.anonymous(vertices * 8),
        neighbours: space.anonymous(graph.drawn * 8),
        scores: space.anonymous(vertices * 4),
        contributions: space.anonymous(vertices * 4),
        waiting: space.anonymous(vertices * 16),
    };
    let Arrays { ends, neighbours, scores, contributions, waiting } = arrays;
    // Rows contain no self-loops; memory peaks either while edges are in buckets or while scores exist.
    let filled = (edges * 4).div_ceil(PAGE);
    let base = u64::from(ends.pages) + filled;
    let ranked = u64::from(scores.pages + contributions.pages);
    let superpages = ends.regions()
        + filled.div_ceil(SLOTS.into())
        + waiting.regions().max(scores.regions() + contributions.regions());
    let all = Extent::new(&[ends, neighbours, scores, contributions, waiting]);
    let pages = base + ranked.max(waiting.pages.into());
    (arrays, Extent { pages, superpages, ..all })
}

/// A pass of the construction. It collects edges in buckets, and applies each full bucket to its part of the arrays: in
/// the first pass (counting) to the row ends, in the second also to the neighbours.
struct Place {
    arrays: Arrays,
    neighbours: bool,
    rows: u64,
    rounds: u64,
    /// Next round and bucket.
    at: u64,
}

impl Place {
    fn new(csr: &Csr, arrays: Arrays, neighbours: bool) -> Self {
        let rows = csr.edges() as u64 * 4;
        // A bucket has two words per vertex.
        let rounds = (csr.edges() as u64).div_ceil(csr.vertices() as u64 * 2).max(1);
        Self { arrays, neighbours, rows, rounds, at: 0 }
    }

    /// Accesses part `bucket` of the first `bytes` of an area, `count` times per page.
    fn part(area: Area, bytes: u64, bucket: u64, count: u32, writes: bool, block: &mut Block) {
        let pages = bytes.div_ceil(PAGE);
        for page in pages * bucket / BUCKETS..pages * (bucket + 1) / BUCKETS {
            block.run(access(area.page(page), writes), count);
        }
    }
}

impl Step for Place {
    fn fill(&mut self, block: &mut Block) -> bool {
        while self.at < self.rounds * BUCKETS {
            if block.is_full() {
                return true;
            }
            let bucket = self.at % BUCKETS;
            let Arrays { ends, neighbours, waiting, .. } = self.arrays;
            let whole = |area: Area| u64::from(area.pages) * PAGE;
            Self::part(waiting, whole(waiting), bucket, 512, true, block);
            Self::part(waiting, whole(waiting), bucket, 512, false, block);
            Self::part(ends, whole(ends), bucket, 1024, true, block);
            if self.neighbours {
                let each = (1024 / self.rounds).max(1) as u32;
                Self::part(neighbours, self.rows, bucket, each, true, block);
            }
            self.at += 1;
        }
        false
    }

    fn records(&self) -> Option<u64> {
        let Arrays { ends, waiting, .. } = self.arrays;
        let placed = if self.neighbours { self.rows.div_ceil(PAGE) } else { 0 };
        Some((u64::from(waiting.pages) * 2 + u64::from(ends.pages) + placed) * self.rounds)
    }
}

/// Half an iteration: writing contributions, or reading (pulling) them.
struct Pass {
    csr: Arc<Csr>,
    arrays: Arrays,
    pull: bool,
    parts: Vec<Range<usize>>,
    turn: usize,
}

impl Pass {
    fn group(&self, vertices: Range<usize>, block: &mut Block) {
        let Arrays { ends, neighbours, scores, contributions, .. } = self.arrays;
        let bytes = |unit| super::bytes(vertices.clone(), unit);
        block.bytes(ends, bytes(8), 8, false);
        if !self.pull {
            block.bytes(scores, bytes(4), 4, false);
            block.bytes(contributions, bytes(4), 4, true);
            return;
        }
        let edges = self.csr.row(vertices.start).start..self.csr.row(vertices.end - 1).end;
        block.bytes(neighbours, super::bytes(edges, 4), 4, false);
        let (mut page, mut count) = (0, 0);
        for vertex in vertices.clone() {
            for &neighbour in self.csr.neighbours(vertex) {
                let here = u64::from(neighbour) * 4 / PAGE;
                if here != page {
                    block.run(Access::read(contributions.page(page)), count);
                    (page, count) = (here, 0);
                }
                count += 1;
            }
        }
        block.run(Access::read(contributions.page(page)), count);
        block.bytes(scores, bytes(4), 4, true);
    }
}

impl Step for Pass {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() {
            if self.turn == self.parts.len() {
                self.turn = 0;
                self.parts.retain(|part| !part.is_empty());
            }
            let Some(part) = self.parts.get(self.turn) else { return false };
            // A part that was empty from the start stays until the round ends.
            let end = (part.start + GROUP).min(part.end);
            if !part.is_empty() {
                self.group(part.start..end, block);
            }
            self.parts[self.turn].start = end;
            self.turn += 1;
        }
        true
    }

    fn records(&self) -> Option<u64> {
        let groups = self.csr.vertices().div_ceil(GROUP) as u64;
        if !self.pull {
            return Some(groups * 3);
        }
        // The share of neighbours that are on another page than the preceding neighbour, from a
        // sample of vertices.
        const SAMPLES: usize = 1 << 14;
        let (mut page, mut others, mut seen) = (0, 0, 0);
        for vertex in (0..self.csr.vertices()).step_by(self.csr.vertices().div_ceil(SAMPLES).max(1))
        {
            for &neighbour in self.csr.neighbours(vertex) {
                let here = u64::from(neighbour) * 4 / PAGE;
                others += u64::from(here != page);
                seen += 1;
                page = here;
            }
        }
        let edges = self.csr.edges() as u64;
        let share = others as f64 / f64::from(seen.max(1));
        Some(groups * 3 + edges * 4 / PAGE + (edges as f64 * share) as u64 + groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use workload::graph::Graph;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn an_iteration_touches_what_the_live_loop_touches(
            scale in 1u32..13, degree in 1u64..20, seed: u64, threads in 1usize..4,
        ) {
            let edges = Edges { graph: Graph::Kronecker, scale, drawn: degree << scale, seed };
            let csr = Arc::new(Csr::build(&edges, 1).unwrap());
            let mut space = Space::new(0);
            let mut area = |bytes| space.anonymous(bytes);
            let vertices = csr.vertices() as u64;
            let arrays = Arrays {
                ends: area(vertices * 8), neighbours: area(edges.drawn * 8),
                scores: area(vertices * 4), contributions: area(vertices * 4), waiting: area(1),
            };
            let mut pass = Pass { csr: csr.clone(), arrays, pull: true, parts: csr.parts(threads), turn: 0 };
            let (mut made, mut block) = (BTreeMap::new(), Block::default());
            let mut random = Vec::new();
            loop {
                block.clear();
                let more = pass.fill(&mut block);
                for (access, &count) in block.accesses.iter().zip(&block.counts) {
                    *made.entry(access.0).or_insert(0u64) += u64::from(count);
                    if access.page().region() == arrays.contributions.page(0).region() {
                        random.extend(std::iter::repeat_n(*access, count as usize));
                    }
                }
                if !more { break }
            }
            // The live loop (`pagerank::pull`), vertex by vertex.
            let (mut naive, mut order) = (BTreeMap::new(), Vec::new());
            let mut touch = |access: Access| *naive.entry(access.0).or_insert(0u64) += 1;
            for vertex in 0..csr.vertices() {
                let at = |area: Area, byte: usize| Access::read(area.page(byte as u64 / PAGE));
                touch(at(arrays.ends, vertex * 8));
                for edge in csr.row(vertex) {
                    touch(at(arrays.neighbours, edge * 4));
                }
                for &neighbour in csr.neighbours(vertex) {
                    let access = at(arrays.contributions, neighbour as usize * 4);
                    touch(access);
                    order.push(access);
                }
                touch(Access::write(at(arrays.scores, vertex * 4).page()));
            }
            prop_assert_eq!(made, naive);
            if threads == 1 {
                prop_assert_eq!(random, order);
            }
        }
    }
}
