//! Samples page faults with their addresses, to see where memory grows.
//!
//! One ring per CPU samples the whole machine. The served programs inherit no event, so their context switches and
//! forks cost nothing extra. Samples of other programs are skipped. See docs/decisions/live.md#7.

use std::collections::BTreeMap;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::SysError;
use sys::perf::{Event, Ring};
use units::Pid;

/// Minimum and maximum number of faults per sample. A design's threshold of faults contains at least two samples.
const EVERY: (u64, u64) = (32, 128);
/// Number of pages of a ring; they hold 512 samples.
const RING: usize = 4;
/// Maximum number of samples on a CPU until a wait ends: as many as 2 MiB give when touched page by
/// page.
const MAX_WAKE: u32 = 16;

#[derive(Debug)]
pub(crate) struct Faults {
    rings: Vec<Ring>,
    cpus: Vec<u32>,
    /// The executor is stopped when the other end is closed.
    stop: PipeReader,
}

impl Faults {
    /// Opens the rings. Needs CAP_PERFMON; containers may forbid `perf_event_open(2)`. A wait ends after about `faults`
    /// faults on one CPU.
    pub(crate) fn open(stop: PipeReader, faults: u16) -> Result<Self, SysError> {
        let every = (u64::from(faults) / 2).clamp(EVERY.0, EVERY.1);
        let wake = (u32::from(faults) / every as u32).clamp(1, MAX_WAKE);
        let open = |cpu| Ring::sample_cpu(Event::MinorFaults, cpu, RING, every, wake);
        let cpus = sys::affinity::online()?;
        let rings = cpus.iter().map(|&cpu| open(cpu)).collect::<Result<_, _>>()?;
        Ok(Self { rings, cpus, stop })
    }

    /// Returns the fault addresses since the last call, by process, in the order of each CPU, and the CPU of the last
    /// sample.
    pub(crate) fn take(&mut self) -> BTreeMap<Pid, (Vec<u64>, usize)> {
        let mut taken = BTreeMap::<Pid, (Vec<u64>, usize)>::new();
        for (ring, &cpu) in self.rings.iter_mut().zip(&self.cpus) {
            ring.drain(|record| {
                if let Some(sample) = record.sample() {
                    let (addresses, at) = taken.entry(sample.pid).or_default();
                    addresses.push(sample.address);
                    *at = cpu as usize;
                }
            });
        }
        taken
    }

    /// Starts or stops counting. Each fault that is counted takes 0.1 us longer, and each sample that ends a wait costs the
    /// program 10 us in a guest: an interrupt that the hypervisor delivers.
    pub(crate) fn set_counting(&self, is_on: bool) {
        for ring in &self.rings {
            // A CPU may have gone offline.
            let _ = ring.set_counting(is_on);
        }
    }

    /// Starts or stops taking samples, without interrupting the CPUs.
    pub(crate) fn set_sampling(&self, is_on: bool) {
        for ring in &self.rings {
            let _ = ring.set_output(is_on);
        }
    }

    pub(crate) fn wait(&self, timeout: Duration) {
        Ring::wait(&self.rings, self.stop.as_fd(), timeout);
    }
}
