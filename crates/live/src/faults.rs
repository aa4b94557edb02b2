//! Where memory grows: one of some page faults of the machine, with its address, as the kernel serves it.
//!
//! The rings are the machine's, one a CPU: the served programs inherit nothing, and neither their context switches nor
//! their forks get slower. Samples of other programs are passed over. See docs/decisions/live.md#7.

use std::collections::BTreeMap;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::SysError;
use sys::perf::{Event, Ring};
use units::Pid;

/// Faults per sample, at least and at most: two samples or more of the faults that a design waits for.
const EVERY: (u64, u64) = (32, 128);
/// Base pages of a ring, of 512 samples.
const RING: usize = 4;
/// A wait ends after so many samples on a CPU at most: they are those of 2 MiB that is filled page by page.
const MAX_WAKE: u32 = 16;

/// The faults of the machine.
#[derive(Debug)]
pub(crate) struct Faults {
    rings: Vec<Ring>,
    cpus: Vec<u32>,
    /// Closed when the executor is to stop.
    stop: PipeReader,
}

impl Faults {
    /// Not permitted without CAP_PERFMON, and in containers that forbid `perf_event_open(2)`.
    /// A wait ends once some CPU took so many, as far as samples tell.
    pub(crate) fn open(stop: PipeReader, faults: u16) -> Result<Self, SysError> {
        let every = (u64::from(faults) / 2).clamp(EVERY.0, EVERY.1);
        let wake = (u32::from(faults) / every as u32).clamp(1, MAX_WAKE);
        let open = |cpu| Ring::sample_cpu(Event::MinorFaults, cpu, RING, every, wake);
        let cpus = sys::affinity::online()?;
        let rings = cpus.iter().map(|&cpu| open(cpu)).collect::<Result<_, _>>()?;
        Ok(Self { rings, cpus, stop })
    }

    /// The addresses of faults since the last call, by process, in the order that each CPU took them, and the last of
    /// these CPUs.
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

    /// Waits for many faults, for the end, or so long.
    pub(crate) fn wait(&self, timeout: Duration) {
        Ring::wait(&self.rings, self.stop.as_fd(), timeout);
    }
}
