//! Generated graphs: each edge is a pure function of its number.
//!
//! The graphs are GAP's (Beamer, Asanovic, Patterson 2015): Kronecker is R-MAT with a = .57, b = .19, c = .19 and
//! scrambled vertex numbers; uniform draws both ends of an edge evenly. Both graphs are undirected and have no
//! self-loops. Unlike in GAP, duplicate edges stay, so the size is known in advance and the generator alone can verify
//! the rows.

use serde::{Deserialize, Serialize};

use crate::rng::{SplitMix64, below, mix};

/// Kind of generated graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Graph {
    /// R-MAT: a few vertices have very many neighbours, as in social networks.
    Kronecker,
    /// All pairs of vertices are equally likely.
    Uniform,
}

/// An unknown name of a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown graph `{0}`: expected kronecker or uniform")]
pub struct UnknownGraph(pub String);

impl std::fmt::Display for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kronecker => "kronecker",
            Self::Uniform => "uniform",
        })
    }
}

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
/// Number of bits of a draw that select two levels of R-MAT.
const SYMBOL_BITS: u32 = 14;
/// Table that selects two levels at once and fits in the first-level cache. An entry holds two bits of u above two bits
/// of v. The shares of the 16 outcomes are exact to 1 / 2^14.
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
    /// Kind of graph.
    pub graph: Graph,
    /// log2 of the number of vertices, 1 to 32.
    pub scale: u32,
    /// Number of drawn edges, including self-loops.
    pub drawn: u64,
    /// The seed.
    pub seed: u64,
}

impl Edges {
    /// Number of vertices.
    pub const fn vertices(&self) -> u64 {
        1 << self.scale
    }

    /// Returns edge `number`. If both ends are the same vertex, the caller must skip the edge.
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

    /// Permutes the vertex numbers, because R-MAT numbers its hubs consecutively. GAP shuffles vertices with a table;
    /// this function needs none.
    #[inline]
    fn scramble(&self, vertex: u64) -> u32 {
        let (mask, shift) = (self.vertices() - 1, self.scale.div_ceil(2));
        let odd = mix(self.seed) | 1;
        let mixed = vertex.wrapping_mul(odd) & mask;
        let mixed = (mixed ^ mixed >> shift).wrapping_mul(odd) & mask;
        (mixed ^ mixed >> shift) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn scrambling_is_a_bijection(scale in 1u32..13, seed: u64) {
            let edges = Edges { graph: Graph::Kronecker, scale, drawn: 0, seed };
            let mut met = vec![false; 1 << scale];
            (0..1 << scale).for_each(|vertex| met[edges.scramble(vertex) as usize] = true);
            prop_assert!(met.into_iter().all(|met| met));
        }
    }

    #[test]
    fn quadrants_have_the_published_shares() {
        // With one level, the vertex pairs are the quadrants, except that one bit is scrambled.
        let edges = Edges { graph: Graph::Kronecker, scale: 1, drawn: 0, seed: 2 };
        let same = (0..100_000).filter(|&n| edges.edge(n).0 == edges.edge(n).1).count();
        assert!((61_000..63_000).contains(&same), "a + d = .57 + .05, not {same}");
    }
}
