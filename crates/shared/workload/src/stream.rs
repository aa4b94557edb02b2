//! `stream`: McCalpin's STREAM. It has three arrays, four kernels, and the arithmetic and checks of the reference
//! implementation.
//!
//! **Offset.** With superpages the virtual address alone determines the cache set, so three arrays with equal alignment
//! use the same sets at the same time. Gorman and Healy saw Triad lose 3.31 % on x86-64 because of this (WIOSCA 2010,
//! sec. 7.1), and Gorman's "Huge pages part 4" (LWN, 2010) sets STREAM's OFFSET so that no two arrays share a cache
//! colour. Here the start of array k is a multiple of 2 MiB plus k times `offset` after the first array, whatever the
//! size. The default is 341 lines: a third of the 64 sets of a first-level cache (341 mod 64 = 21) and also a third of
//! the 1024 sets of a common second-level cache, so the three starts are evenly spread in both. Zero gives the
//! conflicting layout, for experiments.

use std::sync::Barrier;
use std::time::Instant;

use crate::memory::{Zeroed, shares, split_mut};
use crate::outcome::{Details, Run, StreamKernel};
use crate::team::{self, Region};
use crate::{Settings, Workload, WorkloadError};

/// The default offset between the arrays, in bytes.
pub const OFFSET: u64 = 341 * 64;
/// Exclusive upper limit of offsets, in bytes.
pub const OFFSET_LIMIT: u64 = 1 << 20;
/// Without the offset, the distance between arrays is a multiple of this number of bytes, within which the set index of
/// every cache repeats.
pub const COLOUR_PERIOD: u64 = 2 << 20;
/// Default number of passes over the four kernels: the reference's NTIMES.
pub const ITERATIONS: u32 = 10;
/// The reference's scalar.
const SCALAR: f64 = 3.0;
/// The reference's limit for the average relative error of doubles.
const EPSILON: f64 = 1e-13;
/// Number of elements in a cache line. Threads' shares start at lines.
const LINE: usize = 8;

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of 8-byte elements in each array.
    pub elements: u64,
    /// Number of passes.
    pub iterations: u32,
    /// Offset of each array relative to the previous one, in bytes.
    pub offset: u64,
    /// Number of threads.
    pub threads: usize,
}

impl Plan {
    /// Applies the defaults.
    pub fn new(settings: &Settings) -> Self {
        Self {
            elements: settings.size.bytes() / 24,
            iterations: settings.options.iterations.unwrap_or(ITERATIONS),
            offset: settings.options.offset.map_or(OFFSET, |offset| offset.bytes()),
            threads: settings.threads.get(),
        }
    }

    /// Bytes from the start of one array to the start of the next.
    pub fn stride(&self) -> u64 {
        (self.elements * 8).div_ceil(COLOUR_PERIOD).saturating_mul(COLOUR_PERIOD) + self.offset
    }

    /// Number of bytes touched, without the gaps between the arrays.
    pub(crate) fn footprint(&self) -> u64 {
        self.elements * 24
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    let setup = Instant::now();
    let words = plan.stride().saturating_mul(2).saturating_add(plan.elements * 8) / 8;
    let mut memory = Zeroed::<f64>::new("the stream arrays", words as usize)?;
    let mut arrays = arrays(&mut memory, &plan);
    initialize(&mut arrays, &plan)?;
    let setup_seconds = setup.elapsed().as_secs_f64();
    let (times, region) = passes(&mut arrays, &plan)?;
    let verify = Instant::now();
    check(&arrays, plan.iterations)?;
    let [copy, scale, add, triad] = rates(&times, plan.elements);
    Ok(Run {
        footprint_bytes: plan.footprint(),
        setup_seconds,
        region,
        verify_seconds: verify.elapsed().as_secs_f64(),
        figure: triad.best_bytes_per_second,
        details: Details::Stream {
            elements: plan.elements,
            iterations: u64::from(plan.iterations),
            offset_bytes: plan.offset,
            copy,
            scale,
            add,
            triad,
        },
    })
}

type Arrays<'a> = [&'a mut [f64]; 3];

fn arrays<'a>(memory: &'a mut [f64], plan: &Plan) -> Arrays<'a> {
    let (stride, elements) = ((plan.stride() / 8) as usize, plan.elements as usize);
    let (a, rest) = memory.split_at_mut(stride);
    let (b, c) = rest.split_at_mut(stride);
    [a, b, c].map(|array| &mut array[..elements])
}

fn cut<'a>(arrays: &'a mut Arrays<'_>, threads: usize) -> Vec<Arrays<'a>> {
    let ranges = shares(arrays[0].len(), threads, LINE);
    let [a, b, c] = arrays.each_mut().map(|array| split_mut(array, &ranges));
    a.into_iter().zip(b).zip(c).map(|((a, b), c)| [a, b, c]).collect()
}

/// Sets a = 2 (the reference starts with 1 and doubles it when it tests the clock), b = 2, c = 0. The thread that uses
/// an element touches it first.
fn initialize(arrays: &mut Arrays<'_>, plan: &Plan) -> Result<(), WorkloadError> {
    team::timed(cut(arrays, plan.threads), |_, [a, b, c]| {
        a.fill(2.0);
        b.fill(2.0);
        c.fill(0.0);
    })?;
    Ok(())
}

/// Seconds of each kernel in each pass.
type Times = Vec<[f64; 4]>;

/// Runs all passes. With barriers between kernels, a kernel's time is that of the slowest thread; thread 0 measures it.
fn passes(arrays: &mut Arrays<'_>, plan: &Plan) -> Result<(Times, Region), WorkloadError> {
    let barrier = Barrier::new(plan.threads);
    let (mut times, region) = team::timed(cut(arrays, plan.threads), |_, [a, b, c]| {
        let clock = |kernel: &mut dyn FnMut()| {
            let start = Instant::now();
            kernel();
            barrier.wait();
            start.elapsed().as_secs_f64()
        };
        let pass = |_| {
            [
                clock(&mut || copy(c, a)),
                clock(&mut || scale(b, c)),
                clock(&mut || add(c, a, b)),
                clock(&mut || triad(a, b, c)),
            ]
        };
        (0..plan.iterations).map(pass).collect::<Times>()
    })?;
    Ok((times.swap_remove(0), region))
}

fn copy(c: &mut [f64], a: &[f64]) {
    c.copy_from_slice(a); // memcpy, which is what gcc makes of the reference's loop too
}

fn scale(b: &mut [f64], c: &[f64]) {
    for (b, c) in b.iter_mut().zip(c) {
        *b = SCALAR * c;
    }
}

fn add(c: &mut [f64], a: &[f64], b: &[f64]) {
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
}

fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + SCALAR * c;
    }
}

fn rates(times: &[[f64; 4]], elements: u64) -> [StreamKernel; 4] {
    let counted = &times[1..]; // the reference excludes the first pass
    std::array::from_fn(|kernel| {
        let seconds = || counted.iter().map(|pass| pass[kernel]);
        let least = seconds().fold(f64::INFINITY, f64::min);
        let arrays = [2, 2, 3, 3][kernel];
        StreamKernel {
            best_bytes_per_second: (arrays * 8 * elements) as f64 / least,
            average_seconds: seconds().sum::<f64>() / counted.len() as f64,
            least_seconds: least,
            most_seconds: seconds().fold(0.0, f64::max),
        }
    })
}

/// The reference's verification: computes the passes on three single numbers, and limits the average relative
/// difference of each array from them.
fn check(arrays: &Arrays<'_>, iterations: u32) -> Result<(), WorkloadError> {
    let (mut a, mut b, mut c) = (2.0, 2.0, 0.0);
    for _ in 0..iterations {
        c = a;
        b = SCALAR * c;
        c = a + b;
        a = b + SCALAR * c;
    }
    for ((name, expected), array) in [("a", a), ("b", b), ("c", c)].into_iter().zip(arrays) {
        let sum = array.iter().map(|value| (value - expected).abs()).sum::<f64>();
        let error = sum / array.len() as f64 / expected.abs();
        if error.is_nan() || error > EPSILON {
            let what = format!(
                "array {name} differs from {expected:e} by {error:e} on average, relatively; \
                 the limit is {EPSILON:e}"
            );
            return Err(WorkloadError::Verification { workload: Workload::Stream, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(elements: u64, iterations: u32, offset: u64, threads: usize) -> Plan {
        Plan { elements, iterations, offset, threads }
    }

    fn memory(plan: &Plan) -> Vec<f64> {
        vec![f64::NAN; (plan.stride() / 8 * 2 + plan.elements) as usize]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn passes_leave_what_the_reference_expects(
            elements in 1u64..3000, iterations in 2u32..12, threads in 1usize..5,
        ) {
            let plan = plan(elements, iterations, 64, threads);
            let mut memory = memory(&plan);
            let mut arrays = arrays(&mut memory, &plan);
            initialize(&mut arrays, &plan).unwrap();
            let (times, _) = passes(&mut arrays, &plan).unwrap();
            prop_assert_eq!(times.len(), iterations as usize);
            prop_assert!(check(&arrays, iterations).is_ok());
            prop_assert!(check(&arrays, iterations + 1).is_err());
            for array in 0..3 {
                for corrupt in [f64::NAN, 0.0, arrays[array][0] * 2.0] {
                    let kept = std::mem::replace(&mut arrays[array][0], corrupt);
                    prop_assert!(check(&arrays, iterations).is_err());
                    arrays[array][0] = kept;
                }
            }
        }

        #[test]
        fn arrays_start_at_multiples_of_the_offset(elements in 1u64..500_000, step in 0u64..1000) {
            let plan = plan(elements, 2, step * 8, 1);
            let mut memory = vec![0.0; (plan.stride() / 8 * 2 + elements) as usize];
            let [a, b, c] = arrays(&mut memory, &plan).map(|array| array.as_ptr() as u64);
            prop_assert_eq!((b - a) % COLOUR_PERIOD, plan.offset);
            prop_assert_eq!((c - a) % COLOUR_PERIOD, 2 * plan.offset);
            prop_assert!(b - a >= elements * 8 && c - b >= elements * 8);
        }
    }

    #[test]
    fn the_default_offset_spreads_over_common_caches() {
        for sets in [64, 512, 1024, 2048] {
            let starts = [0, 1, 2].map(|array| array * OFFSET / 64 % sets);
            for (i, j) in [(0, 1), (0, 2), (1, 2)] {
                let apart = (starts[i] as i64 - starts[j] as i64).rem_euclid(sets as i64);
                assert!(apart.min(sets as i64 - apart) >= sets as i64 / 7, "{sets} {starts:?}");
            }
        }
    }

    #[test]
    fn rates_leave_the_first_pass_out() {
        let triad = rates(&[[9.0; 4], [2.0; 4], [4.0; 4]], 100)[3];
        assert_eq!(triad.best_bytes_per_second, 1200.0);
        let seconds = (triad.least_seconds, triad.average_seconds, triad.most_seconds);
        assert_eq!(seconds, (2.0, 3.0, 4.0));
    }
}
