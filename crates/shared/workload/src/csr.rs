//! `Csr`: a generated graph in compressed sparse rows, built in bounded memory, for `pagerank`.
//!
//! No edge list is stored: the edges are drawn twice, once to count degrees and once to place neighbours. Handling
//! edges one by one would make random accesses to all memory (measured: 310 ns an edge, a minute at 1 GiB). So both
//! passes collect directed edges in buckets by the region of their source, and apply a full bucket to a region that
//! fits in the second-level cache. During construction the buckets take 16 bytes per vertex: the same memory that the
//! scores and their check need afterwards.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::WorkloadError;
use crate::graph::Edges;
use crate::memory::{Zeroed, shares, split_mut};
use crate::rng::mix;
use crate::team;

/// Compressed sparse rows: the neighbours of all vertices in one array.
#[derive(Debug)]
pub struct Csr {
    /// End of each vertex's row; the row starts at the end of the previous one.
    ends: Zeroed<AtomicU64>,
    /// All rows, followed by untouched space for the self-loops.
    neighbours: Zeroed<u32>,
    entries: usize,
    /// Checksum of the generated edges, both directions, computed while counting.
    generated: u64,
}

impl Csr {
    /// Number of bytes of the rows. Construction takes 16 more bytes per vertex.
    pub const fn bytes(edges: &Edges) -> u64 {
        edges.vertices().saturating_mul(8).saturating_add(edges.drawn.saturating_mul(8))
    }

    /// Draws all edges twice; each thread keeps the edges that start in its share of the vertices. Sorts every row, so
    /// that the result does not depend on the number of threads.
    pub fn build(edges: &Edges, threads: usize) -> Result<Self, WorkloadError> {
        let vertices = edges.vertices() as usize;
        let ends = Zeroed::<AtomicU64>::new("the graph's rows", vertices)?;
        // Allocate before the first pass, so that a lack of memory is an error before any work.
        let most = edges.drawn.saturating_mul(2) as usize;
        let neighbours = Zeroed::<AtomicU32>::new("the graph's neighbours", most)?;
        let waiting = (vertices * WAITING).max(threads);
        let mut waiting = Zeroed::<u64>::new("the graph's waiting edges", waiting)?;
        let generated = each_edge(edges, threads, &mut waiting, |from, _| {
            next(&ends[from as usize]);
        })?;
        // Each count becomes the start of its row; placing neighbours moves it to the row's end.
        let mut entries = 0;
        for end in ends.iter() {
            let count = end.load(Relaxed);
            end.store(entries, Relaxed);
            entries += count;
        }
        each_edge(edges, threads, &mut waiting, |from, to| {
            neighbours[next(&ends[from as usize]) as usize].store(to, Relaxed);
        })?;
        drop(waiting);
        let neighbours = neighbours.into_plain();
        let mut csr = Self { ends, neighbours, entries: entries as usize, generated };
        csr.sort_rows(threads)?;
        Ok(csr)
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.ends.len()
    }

    /// Number of directed edges.
    pub fn edges(&self) -> usize {
        self.entries
    }

    /// Range of the row of `vertex` in the array of neighbours.
    #[inline]
    pub fn row(&self, vertex: usize) -> Range<usize> {
        let begin = if vertex == 0 { 0 } else { self.ends[vertex - 1].load(Relaxed) };
        begin as usize..self.ends[vertex].load(Relaxed) as usize
    }

    /// The neighbours of `vertex`, in order.
    #[inline]
    pub fn neighbours(&self, vertex: usize) -> &[u32] {
        &self.neighbours[self.row(vertex)]
    }

    /// Splits the vertices into ranges with nearly equal numbers of edges.
    pub fn parts(&self, parts: usize) -> Vec<Range<usize>> {
        let border = |part: usize| match part {
            0 => 0,
            _ if part == parts => self.vertices(),
            _ => {
                let edge = (self.edges() as u128 * part as u128 / parts as u128) as u64;
                self.ends.partition_point(|end| end.load(Relaxed) <= edge)
            }
        };
        (0..parts).map(|part| border(part)..border(part + 1)).collect()
    }

    /// Whether the rows hold exactly the generated edges, according to a checksum.
    pub fn is_as_generated(&self, threads: usize) -> Result<bool, WorkloadError> {
        let (sums, _) = team::timed(self.parts(threads), |_, vertices| {
            let mut sum = 0u64;
            for u in vertices {
                for &v in self.neighbours(u) {
                    sum = sum.wrapping_add(check_edge(u as u32, v));
                }
            }
            sum
        })?;
        Ok(sums.into_iter().fold(0, u64::wrapping_add) == self.generated)
    }

    fn sort_rows(&mut self, threads: usize) -> Result<(), WorkloadError> {
        let parts = self.parts(threads);
        let span = |part: &Range<usize>| match part.is_empty() {
            true => 0..0,
            false => self.row(part.start).start..self.row(part.end - 1).end,
        };
        let spans = parts.iter().map(span).collect::<Vec<_>>();
        let slices = split_mut(&mut self.neighbours, &spans);
        let ends = &self.ends;
        let work = parts.into_iter().zip(slices).collect();
        team::timed(work, |_, (vertices, mut rest): (Range<usize>, &mut [u32])| {
            let mut begin = match vertices.start {
                0 => 0,
                first => ends[first - 1].load(Relaxed),
            };
            for vertex in vertices {
                let end = ends[vertex].load(Relaxed);
                let (row, after) = rest.split_at_mut((end - begin) as usize);
                row.sort_unstable();
                (rest, begin) = (after, end);
            }
        })?;
        Ok(())
    }
}

/// Calls `visit(from, to)` for both directions of every edge that is not a self-loop, ordered so that many successive
/// calls have `from` in the same region. A single thread visits all edges of one `from`. Returns a checksum of the
/// edges.
fn each_edge(
    edges: &Edges,
    threads: usize,
    waiting: &mut [u64],
    visit: impl Fn(u32, u32) + Sync,
) -> Result<u64, WorkloadError> {
    let parts = shares(edges.vertices() as usize, threads, 1);
    let memory = split_mut(waiting, &shares(waiting.len(), threads, 1));
    let work = parts.into_iter().zip(memory).collect();
    let (sums, _) = team::timed(work, |_, (vertices, memory): (Range<usize>, &mut [u64])| {
        let mut buckets = Buckets::new(vertices.clone(), memory);
        let mut sum = 0u64;
        for (u, v) in (0..edges.drawn).map(|number| edges.edge(number)).filter(|(u, v)| u != v) {
            for (from, to) in [(u, v), (v, u)] {
                if vertices.contains(&(from as usize)) {
                    sum = sum.wrapping_add(check_edge(from, to));
                    buckets.push(from, to, &visit);
                }
            }
        }
        (0..buckets.full.len()).for_each(|bucket| buckets.empty(bucket, &visit));
        sum
    })?;
    Ok(sums.into_iter().fold(0, u64::wrapping_add))
}

/// Bucket space per vertex in words.
const WAITING: usize = 2;
/// Maximum number of buckets of a thread: each bucket is filled in its own page, and the pages of all buckets must stay
/// in the TLB.
const BUCKETS: usize = 256;
/// Minimum number of words in a bucket. Smaller buckets do not pay off.
const BUCKET_WORDS: usize = 64;

/// Buckets of one thread: directed edges collected by region.
struct Buckets<'a> {
    first: usize,
    /// Each bucket covers 2^shift vertices.
    shift: u32,
    memory: &'a mut [u64],
    /// Capacity of each bucket in words.
    capacity: usize,
    /// Number of used words in each bucket.
    full: Vec<usize>,
}

impl<'a> Buckets<'a> {
    fn new(vertices: Range<usize>, memory: &'a mut [u64]) -> Self {
        let most = (memory.len() / BUCKET_WORDS).clamp(1, BUCKETS);
        let shift = vertices.len().div_ceil(most).next_power_of_two().ilog2();
        let count = vertices.len().div_ceil(1 << shift).max(1);
        let capacity = memory.len() / count;
        Self { first: vertices.start, shift, memory, capacity, full: vec![0; count] }
    }

    #[inline]
    fn push(&mut self, from: u32, to: u32, visit: &impl Fn(u32, u32)) {
        let bucket = (from as usize - self.first) >> self.shift;
        let place = bucket * self.capacity + self.full[bucket];
        self.memory[place] = u64::from(from) << 32 | u64::from(to);
        self.full[bucket] += 1;
        if self.full[bucket] == self.capacity {
            self.empty(bucket, visit);
        }
    }

    fn empty(&mut self, bucket: usize, visit: &impl Fn(u32, u32)) {
        let start = bucket * self.capacity;
        for edge in &self.memory[start..start + self.full[bucket]] {
            visit((edge >> 32) as u32, *edge as u32);
        }
        self.full[bucket] = 0;
    }
}

/// Increments a counter that no other thread uses; returns the old value.
#[inline]
fn next(counter: &AtomicU64) -> u64 {
    let value = counter.load(Relaxed);
    counter.store(value + 1, Relaxed);
    value
}

/// Hash of a directed edge; the sum over all edges does not depend on their order.
#[inline]
fn check_edge(from: u32, to: u32) -> u64 {
    mix(u64::from(from) << 32 | u64::from(to))
}

#[cfg(test)]
impl Csr {
    /// Injects a fault.
    pub(crate) fn corrupt(&mut self, entry: usize) {
        self.neighbours[entry] ^= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use proptest::prelude::*;

    fn any_edges() -> impl Strategy<Value = Edges> {
        let graph = prop_oneof![Just(Graph::Kronecker), Just(Graph::Uniform)];
        (graph, 1u32..9, 0u64..2000, any::<u64>()).prop_map(|(graph, scale, drawn, seed)| Edges {
            graph,
            scale,
            drawn,
            seed,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn rows_equal_the_edge_list(edges in any_edges(), threads in 1usize..5) {
            let mut list = vec![Vec::new(); edges.vertices() as usize];
            for (u, v) in (0..edges.drawn).map(|number| edges.edge(number)) {
                if u != v {
                    list[u as usize].push(v);
                    list[v as usize].push(u);
                }
            }
            list.iter_mut().for_each(|row| row.sort());
            let mut csr = Csr::build(&edges, threads).unwrap();
            prop_assert_eq!(csr.vertices() as u64, edges.vertices());
            for (vertex, row) in list.iter().enumerate() {
                prop_assert_eq!(csr.neighbours(vertex), &row[..]);
            }
            prop_assert!(csr.is_as_generated(threads).unwrap());
            let parts = csr.parts(threads);
            prop_assert_eq!(parts[0].start, 0);
            prop_assert_eq!(parts[threads - 1].end, csr.vertices());
            prop_assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            if csr.edges() > 0 {
                csr.corrupt(csr.edges() / 2);
                prop_assert!(!csr.is_as_generated(threads).unwrap());
            }
        }
    }

    #[test]
    fn kronecker_has_hubs_and_uniform_has_none() {
        let most = |graph| {
            let edges = Edges { graph, scale: 12, drawn: 16 << 12, seed: 1 };
            let csr = Csr::build(&edges, 1).unwrap();
            (0..csr.vertices()).map(|vertex| csr.neighbours(vertex).len()).max().unwrap()
        };
        assert!(most(Graph::Kronecker) > 500, "{}", most(Graph::Kronecker));
        assert!(most(Graph::Uniform) < 100, "{}", most(Graph::Uniform));
    }
}
