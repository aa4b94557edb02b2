//! `Live`: this machine as a [`Probe`]. It allocates memory of every page size and reads the sizes back, pins the
//! thread to one CPU, and counts time in core cycles.
//!
//! This module changes no system settings. A caller that changed settings to enable page sizes can restore them on a
//! signal: see [`Live::stop_when`].

mod arena;
mod clock;
mod code;
mod means;
mod tlb_flusher;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use host::{MemInfo, Root, Thp};
use units::PageSize;
use workload::latency::{Chain, adds, whole};

use crate::probe::{Clock, NotOffered, Offer, Place, Probe, ProbeError};
use arena::Arena;
use clock::Meter;
use tlb_flusher::TlbFlusher;

pub use code::LiveCode;

/// This machine.
#[derive(Debug)]
pub struct Live {
    arenas: Vec<Arena>,
    meter: Meter,
    flusher: TlbFlusher,
    line: u64,
    without: Vec<NotOffered>,
    stop: Arc<AtomicI32>,
    /// The CPU that all chases run on.
    pub cpu: usize,
}

/// Number of time windows per chase. The fastest counts, because other programs may use the CPU or its SMT sibling.
const WINDOWS: u32 = 5;
/// Minimum number of loads in a window: a few microseconds, much longer than a counter reading takes.
const LOADS: u64 = 1 << 13;
/// The probe touches at most 1/SHARE of the available memory.
const SHARE: u64 = 4;
/// Maximum number of bytes that the probe touches.
const MAX_BYTES: u64 = 2 << 30;

impl Live {
    /// Allocates address ranges for every available page size, and pins the calling thread to the quietest of its CPUs,
    /// permanently.
    pub fn new(root: &Root) -> Result<Self, ProbeError> {
        let cpu = quietest(&sys::affinity::allowed()?)?;
        sys::affinity::pin(cpu)?;
        let free = MemInfo::read(root).ok().and_then(|memory| memory.available);
        let budget = free.map_or(MAX_BYTES, |free| free.bytes() / SHARE).min(MAX_BYTES);
        let mut without = Vec::new();
        let arenas = means::arenas(root, budget, &mut without)?;
        let line = means::line(root);
        let (meter, flusher, stop) = (Meter::new(), TlbFlusher::new(line)?, Arc::default());
        Ok(Self { arenas, meter, flusher, line, without, stop, cpu })
    }

    /// Makes the next chase fail with [`ProbeError::Interrupted`] once `asked` is nonzero.
    pub fn stop_when(&mut self, asked: Arc<AtomicI32>) {
        self.stop = asked;
    }

    /// Page sizes that are not offered, with reasons.
    pub fn without(&self) -> &[NotOffered] {
        &self.without
    }
}

/// Finds the element of `all` with pages of this size.
fn of_page<T>(
    all: &mut [T],
    offer: impl Fn(&T) -> &Offer,
    page: PageSize,
) -> Result<&mut T, ProbeError> {
    let found = all.iter_mut().find(|one| offer(one).page == page);
    found.ok_or(ProbeError::NotOffered(page))
}

/// Fails if a stop was requested.
fn check_stop(stop: &AtomicI32) -> Result<(), ProbeError> {
    match stop.load(Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err(ProbeError::Interrupted),
    }
}

impl Probe for Live {
    fn offers(&self) -> Vec<Offer> {
        self.arenas.iter().map(|arena| arena.offer.clone()).collect()
    }

    fn line(&self) -> u64 {
        self.line
    }

    fn chase(&mut self, page: PageSize, places: &[Place], seed: u64) -> Result<f64, ProbeError> {
        check_stop(&self.stop)?;
        let line = self.line;
        let arena = of_page(&mut self.arenas, |arena| &arena.offer, page)?;
        arena.populate(places)?;
        let offsets: Vec<usize> = places.iter().map(|place| place.offset(page, line)).collect();
        let mut chain = Chain::link(arena.memory(), &offsets, seed)
            .map_err(|error| ProbeError::NotGot { page, why: error.to_string() })?;
        self.flusher.flush()?;
        let lap = places.len() as u64;
        let loads = whole(lap.max(LOADS));
        chain.ticks(2 * lap);
        Ok(self.meter.cycles(|| {
            let ticks = (0..WINDOWS).map(|_| chain.ticks(loads)).min();
            ticks.expect("there are windows") as f64 / loads as f64
        }))
    }

    fn renew(&mut self, page: PageSize) -> Result<(), ProbeError> {
        of_page(&mut self.arenas, |arena| &arena.offer, page)?.renew()
    }

    fn clock(&self) -> Clock {
        self.meter.clock()
    }
}

/// Maximum number of CPUs to try.
const MAX_CPUS: usize = 8;
/// Time for trying one CPU.
const TRIAL: Duration = Duration::from_millis(4);

/// Finds the CPU on which additions run fastest, which has the least other load from this system, other guests or its
/// SMT sibling. Among equals, takes the last.
fn quietest(allowed: &[usize]) -> Result<usize, ProbeError> {
    let mut best = (0.0, *allowed.last().expect("this thread runs somewhere"));
    for cpu in allowed.iter().rev().take(MAX_CPUS) {
        sys::affinity::pin(*cpu)?;
        let start = Instant::now();
        let mut done = 0;
        while start.elapsed() < TRIAL {
            done += adds(200).map_or(1, |(adds, _)| adds);
        }
        let speed = done as f64 / start.elapsed().as_secs_f64();
        if speed > 1.02 * best.0 {
            best = (speed, *cpu);
        }
    }
    Ok(best.1)
}

/// Measures the clock of the current core; this takes about 20 milliseconds.
pub fn clock() -> Clock {
    let mut meter = Meter::new();
    for _ in 0..21 {
        let start = Instant::now();
        // Busy-wait, because an idle core lowers its clock.
        meter.cycles(|| {
            while start.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            0.0
        });
    }
    meter.clock()
}

/// The superpage size (one PMD), if this kernel has THP.
fn pmd_size(root: &Root) -> Option<PageSize> {
    Thp::pmd_size_of(root).ok()
}
