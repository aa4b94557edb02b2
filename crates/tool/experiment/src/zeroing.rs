//! Measures the cost of zeroing on this machine: every zeroing kernel that the processor supports, in calls of several
//! lengths, and the operating system's faults, which zero too.
//!
//! Memory is on superpages, so that translation makes no difference. It is larger than the caches, because a program
//! zeroes pages that it has not used lately. (`warm` is measured on memory that is still in a cache.) No setting of the
//! machine is changed.

use std::time::Instant;

use sys::SysError;
use sys::mem::{Advice, Mapping};
use units::PageSize;
use workload::zero::{Kernel, Stores, kernels};

use crate::first_touch::{first_touches, on_superpages};
use crate::stats::describe::median;

/// Bytes that a measurement zeroes: 2 MiB, as in the published figures (Quicksilver, slide 17), also where superpages have
/// another size.
pub const UNIT: usize = 2 << 20;
/// Bytes of memory; larger than the last-level cache of every known processor.
const ARENA: usize = 512 << 20;
/// If at least this share of the memory is on superpages, all of it counts as on superpages.
pub const ALL: f64 = 0.95;
/// Number of units that one sample zeroes, and number of times that one of them is zeroed again.
const UNITS: usize = 8;
/// Number of rounds over all kernels; the first is a warm-up.
const ROUNDS: usize = 8;

/// Results of the measurement.
#[derive(Clone, Debug)]
pub struct Zeroing {
    /// Share (0 to 1) of the memory that was on superpages; `None` if the operating system does not report it.
    pub on_superpages: Option<f64>,
    /// Results by zeroing kernel.
    pub ways: Vec<Way>,
    /// Nanoseconds of a fault that brings a zeroed base page.
    pub base_fault: f64,
    /// Nanoseconds of the faults that bring a [`UNIT`] of zeroed superpages; `None` if they brought other pages, or if
    /// that is unknown.
    pub superpage_fault: Option<f64>,
}

/// Times of one zeroing kernel.
#[derive(Clone, Debug)]
pub struct Way {
    /// The zeroing kernel.
    pub kernel: Kernel,
    /// Nanoseconds to zero a [`UNIT`] that is in no cache, for each length of call.
    pub cold: Vec<f64>,
    /// Nanoseconds to zero a [`UNIT`] that was zeroed just before, for each length of call.
    pub warm: Vec<f64>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum ZeroingError {
    /// The operating system refused.
    #[error("zeroing: {0}")]
    Sys(#[from] SysError),
    /// The user requested a stop.
    #[error("interrupted")]
    Interrupted,
    /// One of our zeroing kernels left nonzero memory.
    #[error("{0} left memory that is not zero; the memory may be faulty: report it")]
    NotZero(&'static str),
}

impl Zeroing {
    /// Returns the fastest kernel with this kind of stores, in calls of the last length.
    pub fn best(&self, stores: Stores) -> Option<&Way> {
        let ways = self.ways.iter().filter(|way| way.kernel.stores == stores);
        ways.min_by(|a, b| a.cold.last().partial_cmp(&b.cold.last()).expect("times are numbers"))
    }
}

/// Measures all kernels in calls of `bulks` bytes. `step` gets the number of rounds done and the total, and cancels by
/// returning false.
pub fn measure(
    superpage: PageSize,
    bulks: &[u64],
    mut step: impl FnMut(usize, usize) -> bool,
) -> Result<Zeroing, ZeroingError> {
    let mut arena = Mapping::aligned(ARENA, superpage)?;
    // An operating system without THP refuses the advice; the actual pages are read back.
    let _ = arena.advise(Advice::HugePage);
    arena.bytes_mut().fill(1);
    let on_superpages = on_superpages(&arena);
    let mut samples: Vec<Samples> =
        kernels().into_iter().map(|kernel| Samples::new(kernel, bulks.len())).collect();
    let mut places = (0..ARENA / UNIT / UNITS).cycle();
    for round in 0..ROUNDS {
        if !step(round, ROUNDS) {
            return Err(ZeroingError::Interrupted);
        }
        for sample in &mut samples {
            for (bulk, times) in bulks.iter().zip(sample.times.iter_mut()) {
                let place = places.next().expect("endless") * UNITS * UNIT;
                let memory = &mut arena.bytes_mut()[place..place + UNITS * UNIT];
                let found = time(&sample.kernel, memory, *bulk as usize)?;
                if round > 0 {
                    times[0].push(found[0]);
                    times[1].push(found[1]);
                }
            }
        }
    }
    drop(arena);
    let page = sys::param::page_size().bytes() as usize;
    let (base_fault, _) = fault(superpage, Advice::NoHugePage, page)?;
    let (whole, share) = fault(superpage, Advice::HugePage, superpage.bytes() as usize)?;
    let whole = whole * UNIT as f64 / superpage.bytes() as f64;
    Ok(Zeroing {
        on_superpages,
        ways: samples.into_iter().map(Samples::way).collect(),
        base_fault,
        superpage_fault: share.is_some_and(|share| share >= ALL).then_some(whole),
    })
}

/// Times of one zeroing kernel: for each length of call, cold and warm.
struct Samples {
    kernel: Kernel,
    times: Vec<[Vec<f64>; 2]>,
}

impl Samples {
    fn new(kernel: Kernel, bulks: usize) -> Self {
        Self { kernel, times: vec![Default::default(); bulks] }
    }

    fn way(self) -> Way {
        let middle = |times: &mut Vec<f64>| median(times).expect("there was a round");
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for mut times in self.times {
            cold.push(middle(&mut times[0]));
            warm.push(middle(&mut times[1]));
        }
        Way { kernel: self.kernel, cold, warm }
    }
}

/// Measures the nanoseconds to zero a unit of `memory` cold, and to zero its last unit again. Leaves ones in it.
fn time(kernel: &Kernel, memory: &mut [u8], bulk: usize) -> Result<[f64; 2], ZeroingError> {
    let start = Instant::now();
    kernel.zero(memory, bulk);
    let cold = start.elapsed();
    if memory.as_chunks::<8>().0.iter().any(|word| u64::from_ne_bytes(*word) != 0) {
        return Err(ZeroingError::NotZero(kernel.name));
    }
    let last = memory.len() - UNIT;
    let start = Instant::now();
    for _ in 0..UNITS {
        kernel.zero(&mut memory[last..], bulk);
    }
    let warm = start.elapsed();
    memory.fill(1);
    Ok([cold, warm].map(|took| took.as_secs_f64() * 1e9 / UNITS as f64))
}

/// Measures the nanoseconds of the first touch of a page of `page` bytes in memory with this advice. Also returns the
/// smallest share of the memory that came on superpages.
fn fault(
    superpage: PageSize,
    advice: Advice,
    page: usize,
) -> Result<(f64, Option<f64>), ZeroingError> {
    let touches = first_touches(superpage, advice, page, ROUNDS - 1)?;
    let mut times: Vec<f64> = touches.iter().map(|touch| touch.touching).collect();
    let shares: Option<Vec<f64>> = touches.iter().map(|touch| touch.on_superpages).collect();
    let least = shares.and_then(|shares| shares.into_iter().reduce(f64::min));
    Ok((median(&mut times).expect("there was a round"), least))
}
