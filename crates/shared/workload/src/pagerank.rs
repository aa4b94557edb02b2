//! `pagerank`: GAP's pull-based PageRank. Each vertex sums the contributions of its neighbours: sequential reads of the
//! rows, random reads of the contributions.
//!
//! As in GAP (`pr_spmv.cc`): 32-bit scores and damping .85, until the scores change by less than 1e-4 in total or after
//! 20 iterations. The verification makes one push-based iteration, which shares no arithmetic with the timed code. It
//! sums in fixed point, which is exact and so independent of the order and the number of threads. It also compares the
//! rows with the generator's checksum.
//!
//! Memory per vertex: 8 bytes for rows, 8 for scores and contributions, and 8 for the verification (construction uses
//! the latter 16 first). Memory per drawn edge: 8 bytes for its two directions. The scale is the largest for which a
//! graph of GAP's degree, 16, fits in the size. Then the degree is raised (to at most 35) to fill the size.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::csr::Csr;
use crate::graph::{Edges, Graph};
use crate::memory::{Zeroed, split_mut};
use crate::outcome::{Details, Run};
use crate::team::{self, Region};
use crate::{Settings, Workload, WorkloadError};

/// GAP's average degree; here the minimum of the average degree.
const DEGREE: u64 = 16;
/// GAP's damping factor.
const DAMPING: f32 = 0.85;
/// GAP's tolerance: scores have converged if the sum of all changes is below it.
const EPSILON: f64 = 1e-4;
/// GAP's limit of iterations.
const ITERATIONS: u32 = 20;
/// Bytes per vertex: row end 8, score 4, contribution 4, sum of the verification 8.
const VERTEX_BYTES: u64 = 24;
/// Bytes per drawn edge: 4 in each direction.
const EDGE_BYTES: u64 = 8;
/// Scale of the verification's fixed point: scores sum to at most 1, so the scale 2^62 cannot overflow, and errors are
/// 2^-62.
const FIXED: f64 = (1u64 << 62) as f64;

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The graph to generate.
    pub edges: Edges,
    /// Maximum number of iterations.
    pub iterations: u32,
    /// Number of threads.
    pub threads: usize,
}

impl Plan {
    /// Applies the defaults and fits the graph to the size.
    pub fn new(settings: &Settings) -> Self {
        let size = settings.size.bytes();
        let vertices = size / (VERTEX_BYTES + DEGREE * EDGE_BYTES);
        let scale = vertices.max(2).ilog2().min(32);
        let degree = ((size >> scale).saturating_sub(VERTEX_BYTES) / EDGE_BYTES).max(1);
        let graph = settings.options.graph.unwrap_or(Graph::Kronecker);
        Self {
            edges: Edges { graph, scale, drawn: degree << scale, seed: settings.seed },
            iterations: settings.options.iterations.unwrap_or(ITERATIONS),
            threads: settings.threads.get(),
        }
    }

    pub(crate) fn footprint(&self) -> u64 {
        Csr::bytes(&self.edges) + self.edges.vertices() * (VERTEX_BYTES - 8)
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let setup = Instant::now();
    let csr = Csr::build(&plan.edges, plan.threads)?;
    let mut scores = Zeroed::<f32>::new("the scores", csr.vertices())?;
    let contributions = Zeroed::<AtomicU32>::new("the contributions", csr.vertices())?;
    scores.fill(1.0 / csr.vertices() as f32);
    contributions.iter().for_each(|word| word.store(0, Relaxed)); // first touch is setup
    let setup_seconds = setup.elapsed().as_secs_f64();
    let (done, region) = rank(&csr, &mut scores, &contributions, &plan)?;
    let verify = Instant::now();
    let verified_change = check(&csr, &scores, done, plan.threads)?;
    Ok(Run {
        footprint_bytes: plan.footprint(),
        setup_seconds,
        verify_seconds: verify.elapsed().as_secs_f64(),
        figure: csr.edges() as f64 * f64::from(done.iterations) / region.seconds,
        region,
        details: Details::Pagerank {
            graph: plan.edges.graph,
            scale: plan.edges.scale,
            vertices: csr.vertices() as u64,
            edges: csr.edges() as u64,
            iterations: u64::from(done.iterations),
            last_change: done.change,
            verified_change,
        },
    })
}

/// State at the end of the iterations.
#[derive(Debug, Clone, Copy)]
struct Done {
    iterations: u32,
    change: f64,
}

/// The timed region. After each iteration every thread adds the threads' changes in the same order. So all threads get
/// the same total and stop together.
fn rank(
    csr: &Csr,
    scores: &mut [f32],
    contributions: &[AtomicU32],
    plan: &Plan,
) -> Result<(Done, Region), WorkloadError> {
    let parts = csr.parts(plan.threads);
    let work = parts.iter().cloned().zip(split_mut(scores, &parts)).collect::<Vec<_>>();
    let barrier = Barrier::new(plan.threads);
    let changes = (0..plan.threads).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (done, region) = team::timed(work, |thread, (vertices, scores)| {
        let mut done = Done { iterations: 0, change: f64::INFINITY };
        while done.iterations < plan.iterations && done.change >= EPSILON {
            contribute(csr, vertices.clone(), scores, contributions);
            barrier.wait(); // all contributions are written
            let change = pull(csr, vertices.clone(), scores, contributions);
            changes[thread].store(change.to_bits(), Relaxed);
            barrier.wait(); // all changes are written, all contributions read
            done.iterations += 1;
            done.change = changes.iter().map(|bits| f64::from_bits(bits.load(Relaxed))).sum();
        }
        done
    })?;
    Ok((done[0], region))
}

fn contribute(csr: &Csr, vertices: Range<usize>, scores: &[f32], contributions: &[AtomicU32]) {
    for (vertex, score) in vertices.zip(scores) {
        // A vertex without neighbours gets an infinite contribution, which nothing reads.
        let share = score / csr.row(vertex).len() as f32;
        contributions[vertex].store(share.to_bits(), Relaxed);
    }
}

/// One iteration over a part of the vertices; returns the sum of the changes. The contributions are atomics because
/// other threads wrote them; a relaxed load compiles to a plain load.
fn pull(csr: &Csr, vertices: Range<usize>, scores: &mut [f32], contributions: &[AtomicU32]) -> f64 {
    let base = (1.0 - DAMPING) / csr.vertices() as f32;
    let mut change = 0.0;
    for (vertex, score) in vertices.zip(scores) {
        let mut sum = 0.0f32;
        for &neighbour in csr.neighbours(vertex) {
            sum += f32::from_bits(contributions[neighbour as usize].load(Relaxed));
        }
        let new = base + DAMPING * sum;
        change += f64::from((new - *score).abs());
        *score = new;
    }
    change
}

/// Pushes one more iteration and returns the change of the scores. Each iteration shrinks the change by the damping
/// factor, so the returned change must be below the last change, or below the tolerance if the scores had converged.
fn check(csr: &Csr, scores: &[f32], done: Done, threads: usize) -> Result<f64, WorkloadError> {
    let failed = |what| WorkloadError::Verification { workload: Workload::Pagerank, what };
    if !csr.is_as_generated(threads)? {
        return Err(failed("the rows are not the generated edges".to_string()));
    }
    let sums = Zeroed::<AtomicU64>::new("the check's sums", csr.vertices())?;
    team::timed(csr.parts(threads), |_, vertices| {
        for vertex in vertices {
            let row = csr.neighbours(vertex);
            let share = f64::from(scores[vertex]) / row.len() as f64 * FIXED;
            for &neighbour in row {
                sums[neighbour as usize].fetch_add(share as u64, Relaxed);
            }
        }
    })?;
    let damping = f64::from(DAMPING);
    let base = (1.0 - damping) / csr.vertices() as f64;
    let pushed = sums.iter().map(|sum| base + damping * sum.load(Relaxed) as f64 / FIXED);
    let change = pushed.zip(scores).map(|(new, &old)| (new - f64::from(old)).abs()).sum::<f64>();
    let limit = done.change.max(EPSILON);
    if change.is_nan() || change >= limit {
        return Err(failed(format!(
            "one more iteration, pushed, changes the scores by {change:e}; the limit is {limit:e}"
        )));
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranked(plan: &Plan) -> (Csr, Vec<f32>, Done) {
        let csr = Csr::build(&plan.edges, plan.threads).unwrap();
        let mut scores = vec![1.0 / csr.vertices() as f32; csr.vertices()];
        let contributions = Zeroed::new("a test", csr.vertices()).unwrap();
        let (done, _) = rank(&csr, &mut scores, &contributions, plan).unwrap();
        (csr, scores, done)
    }

    /// Reference model: power iteration with a dense matrix built from the edge list.
    fn dense(edges: &Edges, iterations: u32) -> Vec<f64> {
        let n = edges.vertices() as usize;
        let mut links = vec![vec![0.0; n]; n];
        let drawn = (0..edges.drawn).map(|number| edges.edge(number));
        for (u, v) in drawn.filter(|(u, v)| u != v) {
            links[u as usize][v as usize] += 1.0;
            links[v as usize][u as usize] += 1.0;
        }
        let degrees = links.iter().map(|row| row.iter().sum::<f64>()).collect::<Vec<_>>();
        let mut scores = vec![1.0 / n as f64; n];
        for _ in 0..iterations {
            let into = |v: usize| -> f64 {
                (0..n)
                    .filter(|&u| links[u][v] > 0.0)
                    .map(|u| scores[u] * links[u][v] / degrees[u])
                    .sum()
            };
            scores = (0..n).map(|v| 0.15 / n as f64 + 0.85 * into(v)).collect();
        }
        scores
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_a_dense_power_iteration(
            uniform: bool, scale in 2u32..7, degree in 1u64..20, seed: u64, threads in 1usize..4,
            iterations in 1u32..30,
        ) {
            let graph = if uniform { Graph::Uniform } else { Graph::Kronecker };
            let edges = Edges { graph, scale, drawn: degree << scale, seed };
            let (csr, mut scores, done) = ranked(&Plan { edges, iterations, threads });
            prop_assert!(done.iterations == iterations || done.change < EPSILON);
            for (fast, slow) in scores.iter().zip(dense(&edges, done.iterations)) {
                prop_assert!((f64::from(*fast) - slow).abs() < 1e-5, "{} {}", fast, slow);
            }
            prop_assert!(check(&csr, &scores, done, threads).is_ok());
            let settled = Done { change: EPSILON / 2.0, ..done };
            for corrupt in [f32::NAN, scores[0] + 0.01, -1.0] {
                let kept = std::mem::replace(&mut scores[0], corrupt);
                prop_assert!(check(&csr, &scores, settled, threads).is_err());
                scores[0] = kept;
            }
        }
    }

    #[test]
    fn a_corrupt_row_is_found() {
        let edges = Edges { graph: Graph::Kronecker, scale: 8, drawn: 16 << 8, seed: 1 };
        let (mut csr, scores, done) = ranked(&Plan { edges, iterations: 20, threads: 2 });
        assert!(check(&csr, &scores, done, 2).is_ok());
        csr.corrupt(77);
        let error = check(&csr, &scores, done, 2).unwrap_err().to_string();
        assert!(error.contains("rows are not the generated edges"), "{error}");
    }

    #[test]
    fn the_graph_fills_the_size() {
        for size in [1u64 << 16, 1 << 20, 3 << 20, 1 << 30, 5 << 30, 1 << 40] {
            let mut settings = Settings::new(Workload::Pagerank);
            settings.size = units::ByteSize(size);
            let plan = Plan::new(&settings);
            let footprint = plan.footprint();
            assert!(footprint <= size && footprint as f64 > 0.94 * size as f64, "{size}");
            let degree = plan.edges.drawn >> plan.edges.scale;
            assert!((16..36).contains(&degree) || size == 1 << 40, "{size} {degree}");
        }
    }
}
