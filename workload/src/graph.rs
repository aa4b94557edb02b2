//! Generated graphs and their compressed rows (CSR). `pagerank` builds and reads them; `lab` may.
//!
//! The graphs are GAP's (Beamer, Asanovic, Patterson 2015): Kronecker is R-MAT with a = .57,
//! b = .19, c = .19, vertex numbers scrambled; uniform draws both ends evenly. Both are undirected,
//! loops are left out. Unlike GAP, edges drawn twice stay: then the size is known beforehand and
//! the generator alone can vouch for the rows.
//!
//! Edge `i` is a pure function of (seed, i). So there is never an edge list: one pass counts
//! degrees, a second one places neighbours, and building needs no memory but the rows' own.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::WorkloadError;
use crate::memory::{Zeroed, shares, split_mut};
use crate::rng::{SplitMix64, below, mix};
use crate::team;

/// Which graph is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Graph {
    /// R-MAT: a few vertices have very many neighbours, as in a social network.
    Kronecker,
    /// Every pair of vertices alike.
    Uniform,
}

/// A name that no graph has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a graph; known are kronecker, uniform")]
pub struct UnknownGraph(pub String);

impl std::str::FromStr for Graph {
    type Err = UnknownGraph;
    fn from_str(name: &str) -> Result<Self, UnknownGraph> {
        match name {
            "kronecker" => Ok(Self::Kronecker),
            "uniform" => Ok(Self::Uniform),
            _ => Err(UnknownGraph(name.to_string())),
        }
    }
}

/// The shares a, b, c, d of R-MAT in percent.
const QUADRANTS: [u32; 4] = [57, 19, 19, 5];
/// Bits of a draw that decide two levels of R-MAT.
const SYMBOL_BITS: u32 = 14;
/// Two levels at once, by table (a third of the time of comparing at each level): entry = the two
/// bits of u above the two bits of v. The shares of the 16 outcomes are exact to 1 / 2^14.
static SYMBOLS: [u8; 1 << SYMBOL_BITS] = symbols();

const fn symbols() -> [u8; 1 << SYMBOL_BITS] {
    let mut table = [0; 1 << SYMBOL_BITS];
    let (mut pair, mut share, mut place) = (0, 0, 0);
    while pair < 16 {
        let (first, second) = (pair / 4, pair % 4); // quadrants a, b, c, d: bits (u, v)
        share += QUADRANTS[first] * QUADRANTS[second];
        while place < (share << SYMBOL_BITS).div_ceil(10_000) as usize {
            let (u, v) = (first & 2 | second >> 1, first << 1 & 2 | second & 1);
            table[place] = (u << 2 | v) as u8;
            place += 1;
        }
        pair += 1;
    }
    table
}

/// The edges of a generated graph, by number.
#[derive(Debug, Clone, Copy)]
pub struct Edges {
    /// Which graph.
    pub graph: Graph,
    /// log2 of the number of vertices, 1 to 32.
    pub scale: u32,
    /// Edges drawn, loops included.
    pub drawn: u64,
    /// The seed.
    pub seed: u64,
}

impl Edges {
    /// Vertices.
    pub const fn vertices(&self) -> u64 {
        1 << self.scale
    }

    /// Edge `number`; both ends may be the same vertex, which is then to be left out.
    #[inline]
    pub fn edge(&self, number: u64) -> (u32, u32) {
        let mut rng = SplitMix64::stream(self.seed, number);
        match self.graph {
            Graph::Uniform => {
                let mut end = || below(rng.draw(), self.vertices()) as u32;
                (end(), end())
            }
            Graph::Kronecker => {
                let (mut u, mut v, mut bits) = (0, 0, 0);
                for pair in 0..self.scale.div_ceil(2) {
                    bits = if pair % 4 == 0 { rng.draw() } else { bits >> SYMBOL_BITS };
                    let symbol = SYMBOLS[bits as usize % SYMBOLS.len()];
                    u = u << 2 | u64::from(symbol >> 2);
                    v = v << 2 | u64::from(symbol & 3);
                }
                let odd = self.scale % 2; // one level too many was drawn
                (self.scramble(u >> odd), self.scramble(v >> odd))
            }
        }
    }

    /// A bijection of the vertex numbers: R-MAT gives its hubs neighbouring numbers, GAP shuffles
    /// them with a table, this does it without one.
    #[inline]
    fn scramble(&self, vertex: u64) -> u32 {
        let (mask, shift) = (self.vertices() - 1, self.scale.div_ceil(2));
        let odd = mix(self.seed) | 1;
        let mixed = vertex.wrapping_mul(odd) & mask;
        let mixed = (mixed ^ mixed >> shift).wrapping_mul(odd) & mask;
        (mixed ^ mixed >> shift) as u32
    }

    /// Both directions of all edges that are no loops, as far as they begin in `vertices`.
    fn from(&self, vertices: Range<usize>) -> impl Iterator<Item = (u32, u32)> {
        let edges = *self;
        let ends = (0..self.drawn).map(move |number| edges.edge(number)).filter(|(u, v)| u != v);
        let both = ends.flat_map(|(u, v)| [(u, v), (v, u)]);
        both.filter(move |(from, _)| vertices.contains(&(*from as usize)))
    }
}

/// Compressed rows: the neighbours of all vertices behind one another.
#[derive(Debug)]
pub struct Csr {
    /// Where each vertex's row ends; it begins where the one before ends.
    ends: Zeroed<AtomicU64>,
    /// All rows, and behind them the places of loops, which stay untouched.
    neighbours: Zeroed<u32>,
    entries: usize,
    /// Checksum of the generated edges, both directions, made while counting.
    generated: u64,
}

impl Csr {
    /// Bytes of the rows of a graph whose edges are no loops; also the most held while building.
    pub const fn bytes(edges: &Edges) -> u64 {
        edges.vertices().saturating_mul(8).saturating_add(edges.drawn.saturating_mul(8))
    }

    /// Draws all edges twice, each thread keeping those that begin in its share of the vertices.
    /// Rejected: a share of the edges for each thread, and `fetch_add`. Drawing an edge takes less
    /// than one locked addition far away in memory, of which no two overlap (60 s instead of 15
    /// at 1 GiB).
    pub fn build(edges: &Edges, threads: usize) -> Result<Self, WorkloadError> {
        let ends = Zeroed::<AtomicU64>::new("the graph's rows", edges.vertices() as usize)?;
        // Asked for before the first pass, so that a lack of memory shows before any work.
        let most = edges.drawn.saturating_mul(2) as usize;
        let neighbours = Zeroed::<AtomicU32>::new("the graph's neighbours", most)?;
        let parts = shares(ends.len(), threads, 1);
        let (sums, _) = team::timed(parts.clone(), |_, vertices| {
            let mut sum = 0u64;
            for (from, to) in edges.from(vertices) {
                next(&ends[from as usize]);
                sum = sum.wrapping_add(check_edge(from, to));
            }
            sum
        })?;
        // Each count becomes its row's beginning, and placing moves it to the row's end.
        let mut entries = 0;
        for end in ends.iter() {
            let count = end.load(Relaxed);
            end.store(entries, Relaxed);
            entries += count;
        }
        team::timed(parts, |_, vertices| {
            for (from, to) in edges.from(vertices) {
                neighbours[next(&ends[from as usize]) as usize].store(to, Relaxed);
            }
        })?;
        let generated = sums.into_iter().fold(0, u64::wrapping_add);
        let neighbours = neighbours.into_plain();
        let mut csr = Self { ends, neighbours, entries: entries as usize, generated };
        csr.sort_rows(threads)?;
        Ok(csr)
    }

    /// Vertices.
    pub fn vertices(&self) -> usize {
        self.ends.len()
    }

    /// Directed edges.
    pub fn edges(&self) -> usize {
        self.entries
    }

    /// Where the row of `vertex` lies among all neighbours.
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

    /// Cuts the vertices into ranges with nearly equal numbers of edges.
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

    /// Whether the rows hold exactly the generated edges (by checksum).
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

/// Counts one more in a counter that only one thread uses; what it was.
#[inline]
fn next(counter: &AtomicU64) -> u64 {
    let value = counter.load(Relaxed);
    counter.store(value + 1, Relaxed);
    value
}

/// A number for a directed edge; the sum over all edges does not depend on their order.
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

        #[test]
        fn scrambling_is_a_bijection(scale in 1u32..13, seed: u64) {
            let edges = Edges { graph: Graph::Kronecker, scale, drawn: 0, seed };
            let mut met = vec![false; 1 << scale];
            (0..1 << scale).for_each(|vertex| met[edges.scramble(vertex) as usize] = true);
            prop_assert!(met.into_iter().all(|met| met));
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

    #[test]
    fn quadrants_have_the_published_shares() {
        // One level: vertex pairs are the quadrants, up to the scrambling of one bit.
        let edges = Edges { graph: Graph::Kronecker, scale: 1, drawn: 0, seed: 2 };
        let same = (0..100_000).filter(|&n| edges.edge(n).0 == edges.edge(n).1).count();
        assert!((61_000..63_000).contains(&same), "a + d = .57 + .05, not {same}");
    }
}
